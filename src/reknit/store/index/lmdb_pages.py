"""Checks the pages of an LMDB file without mapping it.

LMDB has no checksums and trusts its file: a page number beyond the end of a file that was cut short ends the process
with SIGBUS, and a changed pointer reads whatever is there. So every page that can be reached is checked first: it is
inside the file, it is of the right kind, everything in it is within it, no page is used twice, and the totals are those
that the file gives. The content of rows has checksums of its own (`rows.py`).

The layout is that of LMDB 0.9 on machines with 64 bits, little endian:

    page       number u64, pad u16, flags u16, lower u16, upper u16 (an overflow page: count u32), then offsets u16
    node       low u16, high u16, flags u16, key size u16, key, data
    database   pad u32, flags u16, depth u16, branch, leaf and overflow pages u64, entries u64, root u64
    meta       after the page's header: magic u32, version u32, address u64, size u64, two databases, last page u64,
               transaction u64
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

_PAGE: Final = struct.Struct("<QHHHH")
_OVERFLOW_PAGES: Final = struct.Struct("<I")
_NODE: Final = struct.Struct("<HHHH")
_DATABASE: Final = struct.Struct("<IHHQQQQQ")
_META: Final = struct.Struct("<II8xQ48s48sQQ")
_NUMBER: Final = struct.Struct("<Q")
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_NO_PAGE: Final = (1 << 64) - 1
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 1, 2, 4, 8
_BIG_DATA, _SUB_DATABASE = 1, 2
_PAGE_SIZES: Final = frozenset(1 << bits for bits in range(9, 17))
_DEPTH_MAX: Final = 32
_MAP_BYTES_MAX: Final = 1 << 44
"""No index is larger, and a process can map as much."""
_FREE_FLAGS: Final = 8
"""The list of free pages has numbers as keys; all other databases are plain."""


class _Invalid(Exception):
    """What is wrong with the file."""


class _Database(NamedTuple):
    pad: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class _Meta(NamedTuple):
    version: int
    map_bytes: int
    free: _Database
    main: _Database
    last_page: int
    transaction: int


def damage_of(path: Path) -> str:
    """Why an LMDB file can't be trusted; empty if it can, or if there is none. Nobody may be writing it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    if not data:
        return ""
    try:
        _PageWalk(data).check()
    except _Invalid as invalid:
        return str(invalid)
    except struct.error:
        return "it is cut off"
    return ""


class _PageWalk:
    """A walk through all pages that can be reached."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        metas = [_read_meta(data, at) for at in (0, _page_bytes(data))]
        if metas[0].version != metas[1].version:
            raise _Invalid("its first pages have different versions")
        if max(meta.map_bytes for meta in metas) > _MAP_BYTES_MAX:
            raise _Invalid("it says that it is larger than any index")
        self._meta = max(metas, key=lambda meta: meta.transaction)
        self._page_bytes = self._meta.free.pad
        self._used: set[int] = {0, 1}
        self._found = [0, 0, 0, 0]
        """Branch, leaf and overflow pages of the database that is being walked, and its entries."""

    def check(self) -> None:
        """Raises `_Invalid`."""
        if self._meta.free.flags & 0xFF != _FREE_FLAGS:
            raise _Invalid("its list of free pages is of another kind")
        free: list[bytes] = []
        self._database(self._meta.free, free)
        sub_databases: list[bytes] = []
        self._plain(self._meta.main, sub_databases, wants_sub=True)
        for row in sub_databases:
            self._plain(_Database(*_DATABASE.unpack(row)), None)
        self._check_free(free)
        self._check_last_page()

    def _plain(self, database: _Database, rows: list[bytes] | None, wants_sub: bool = False) -> None:
        if database.flags:
            raise _Invalid("a database is of another kind")
        self._database(database, rows, wants_sub)

    def _database(self, database: _Database, rows: list[bytes] | None, wants_sub: bool = False) -> None:
        """Walk one database; `rows` gets the data of its leaves."""
        self._found = [0, 0, 0, 0]
        if database.root != _NO_PAGE:
            if not 0 < database.depth <= _DEPTH_MAX:
                raise _Invalid(f"a database is {database.depth} pages deep")
            self._tree(database.root, database.depth, rows, wants_sub)
        if tuple(self._found) != database[3:7]:
            raise _Invalid("a database has other totals than its pages")

    def _tree(self, number: int, depth: int, rows: list[bytes] | None, wants_sub: bool) -> None:
        page = self._page(number)
        flags, lower, upper = _PAGE.unpack_from(page)[2:]
        is_leaf = depth == 1
        if flags & 0xFF != (_LEAF if is_leaf else _BRANCH) or not 16 <= lower <= upper <= self._page_bytes:
            raise _Invalid(f"page {number} is not what it should be")
        offsets = struct.unpack_from(f"<{(lower - 16) // 2}H", page, 16)
        if offsets and not upper <= min(offsets) <= max(offsets) <= self._page_bytes - _NODE.size:
            raise _Invalid(f"page {number} has a pointer to its outside")
        if is_leaf:
            self._found[1] += 1
            self._found[3] += len(offsets)
            self._leaf(number, page, offsets, rows, wants_sub)
            return
        self._found[0] += 1
        for at in offsets:
            low, high, node_flags, key_bytes = _NODE.unpack_from(page, at)
            if at + _NODE.size + key_bytes > self._page_bytes:
                raise _Invalid(f"page {number} has a row that is too long")
            self._tree(low | high << 16 | node_flags << 32, depth - 1, rows, wants_sub)

    def _leaf(
        self,
        number: int,
        page: memoryview,
        offsets: tuple[int, ...],
        rows: list[bytes] | None,
        wants_sub: bool,
    ) -> None:
        unpack, limit, is_plain = _NODE.unpack_from, self._page_bytes - _NODE.size, rows is None
        for at in offsets:
            low, high, flags, key_bytes = unpack(page, at)
            if is_plain and not flags and not high and at + key_bytes + low <= limit:
                continue  # nearly all rows
            self._leaf_row(
                number, page, at + _NODE.size + key_bytes, low | high << 16, flags, rows, wants_sub
            )

    def _leaf_row(
        self,
        number: int,
        page: memoryview,
        at: int,
        size: int,
        flags: int,
        rows: list[bytes] | None,
        wants_sub: bool,
    ) -> None:
        stored = 8 if flags & _BIG_DATA else size
        if at + stored > self._page_bytes or flags & ~(_BIG_DATA | _SUB_DATABASE):
            raise _Invalid(f"page {number} has a row that is too long")
        if wants_sub != bool(flags & _SUB_DATABASE) or (wants_sub and size != _DATABASE.size):
            raise _Invalid(f"page {number} has a row of another kind")
        value = page[at : at + stored]
        if flags & _BIG_DATA:
            value = self._overflow(_NUMBER.unpack(value)[0], size)
        if rows is not None:
            rows.append(bytes(value))

    def _overflow(self, number: int, size: int) -> memoryview:
        page = self._page(number)
        count = _OVERFLOW_PAGES.unpack_from(page, 12)[0]
        if _PAGE.unpack_from(page)[2] & 0xFF != _OVERFLOW or 16 + size > count * self._page_bytes:
            raise _Invalid(f"page {number} does not hold a long row")
        for one in range(number + 1, number + count):
            self._use(one)
        self._found[2] += count
        start = number * self._page_bytes + 16
        return memoryview(self._data)[start : start + size]

    def _page(self, number: int) -> memoryview:
        self._use(number)
        start = number * self._page_bytes
        page = memoryview(self._data)[start : start + self._page_bytes]
        if _PAGE.unpack_from(page)[0] != number:
            raise _Invalid(f"page {number} has another number")
        return page

    def _use(self, number: int) -> None:
        if number in self._used or number > self._meta.last_page:
            raise _Invalid(f"page {number} is used twice or does not exist")
        if (number + 1) * self._page_bytes > len(self._data):
            raise _Invalid(f"it is cut off before page {number}")
        self._used.add(number)

    def _check_free(self, rows: list[bytes]) -> None:
        """The pages that LMDB would use next may not be in use."""
        for row in rows:
            count = _NUMBER.unpack_from(row)[0]
            if (count + 1) * 8 > len(row):
                raise _Invalid("a list of free pages is cut off")
            for number in struct.unpack_from(f"<{count}Q", row, 8):
                if number in self._used or number > self._meta.last_page:
                    raise _Invalid(f"page {number} is in use and free")
                self._used.add(number)

    def _check_last_page(self) -> None:
        """LMDB maps as many pages as the file says it has. Those that it never wrote, beyond its end, are free."""
        if self._meta.last_page >= max(len(self._data) // self._page_bytes, max(self._used) + 1):
            raise _Invalid(f"it has no page {self._meta.last_page}")


def _page_bytes(data: bytes) -> int:
    size: int = _DATABASE.unpack_from(data, 40)[0]
    if size not in _PAGE_SIZES:
        raise _Invalid("its first page is not valid")
    return size


def _read_meta(data: bytes, at: int) -> _Meta:
    flags = _PAGE.unpack_from(data, at)[2]
    magic, version, map_bytes, free, main, last_page, transaction = _META.unpack_from(data, at + _PAGE.size)
    # The upper bits of the version belong to the variant of LMDB that wrote it.
    if flags & 0xFF != _META_PAGE or magic != _MAGIC or version & 0xFFFF != _VERSION:
        raise _Invalid("its first pages are not valid")
    return _Meta(
        version,
        map_bytes,
        _Database(*_DATABASE.unpack(free)),
        _Database(*_DATABASE.unpack(main)),
        last_page,
        transaction,
    )
