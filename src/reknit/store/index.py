"""The index of the log, in LMDB: where streams' events are, and the ledger, as of one position.

    meta        "state" → State (what the log had to be replayed from)
    streams     stream number → topic, source, what is known of it, its published ranges
    extents     stream number · first · position → stop, end           find by seq
    places      position → stream number · first · stop · end          what a part of the log holds
    segments    start → totals of a file of the log
    marks       time in µs → position
    accounts    account number → name, pattern, since, floor
    ends        account number · stream number → {end: ranges}

Numbers in keys are big endian, so that they sort. Every transaction is synced. The log is the truth: all of
this but the ledger's part from removed segments can be built again from it.
"""

from __future__ import annotations

import errno
import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import lmdb
import msgspec

from reknit.errors import JournalError, JournalFull
from reknit.ledger import Account, Ledger
from reknit.outcome import End
from reknit.seqset import SeqSet
from reknit.store.retention import Segment
from reknit.store.streams import Extent, Stream, Streams
from reknit.topic import Pattern

MAP_BYTES: Final = 64 << 20
FORMAT: Final = 1

_U64: Final = struct.Struct(">Q")
_EXTENT_KEY: Final = struct.Struct(">QQQ")
_EXTENT: Final = struct.Struct("<QQ")
_PLACE: Final = struct.Struct("<QQQQ")
_PAIR: Final = struct.Struct(">QQ")
_SEGMENT: Final = struct.Struct("<QQQQ")

_DATABASES: Final = ("meta", "streams", "extents", "places", "segments", "marks", "accounts", "ends")
_encode: Final = msgspec.msgpack.encode

T = TypeVar("T")


class State(msgspec.Struct, frozen=True, array_like=True):
    """What the index is about."""

    format: int
    indexed_to: int
    """Everything before this position of the log is in here, and nothing after."""
    start: int
    """The log begins here; files before are left from a removal."""
    paused: list[str]


class StreamRow(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    source: bytes
    first_held: int
    last: int
    span_max: int
    published: bytes


class AccountRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    pattern: str
    since: list[tuple[str, bytes, int]]
    floor: int


class Loaded(NamedTuple):
    """What was loaded beside streams and ledger."""

    state: State | None
    segments: list[Segment]
    account_numbers: dict[str, int]


class Snapshot(msgspec.Struct):
    """What one checkpoint writes, taken in one moment at position `to`."""

    to: int
    start: int
    extents: Sequence[Extent]
    segments: list[tuple[bytes, bytes]]
    marks: list[tuple[int, int]]
    paused: list[str]
    streams: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    accounts: dict[bytes, bytes | None] = msgspec.field(default_factory=dict)
    """None: the account is gone; its ends are among `ends`."""
    ends: dict[bytes, bytes | None] = msgspec.field(default_factory=dict)


_state_decoder: Final = msgspec.msgpack.Decoder(State)
_stream_decoder: Final = msgspec.msgpack.Decoder(StreamRow)
_account_decoder: Final = msgspec.msgpack.Decoder(AccountRow)
_ends_decoder: Final = msgspec.msgpack.Decoder(dict[int, bytes])


def pack_ranges(seqs: SeqSet) -> bytes:
    """A set of seqs as bytes.

    >>> unpack_ranges(pack_ranges(SeqSet.from_ranges([(1, 4), (6, 9)]))).ranges()
    [(1, 4), (6, 9)]
    """
    return array("Q", [bound for bounds in seqs.ranges() for bound in bounds]).tobytes()


def unpack_ranges(data: bytes) -> SeqSet:
    bounds = array("Q")
    bounds.frombytes(data)
    return SeqSet.from_ranges(zip(bounds[::2], bounds[1::2], strict=True))


def segment_row(segment: Segment) -> tuple[bytes, bytes]:
    row = _SEGMENT.pack(segment.end, segment.events, segment.first_us, segment.last_us)
    return _U64.pack(segment.start), row


class _Environment:
    """An LMDB environment. A process may open one only once, so all that use it share it."""

    open_ones: ClassVar[dict[Path, _Environment]] = {}
    registry: ClassVar[Lock] = Lock()

    def __init__(self, path: Path, readonly: bool, map_bytes: int) -> None:
        self.path, self.readonly = path, readonly
        self.users = 0
        self.gate = Lock()
        """Held while a reading transaction is open: the map can't grow under one."""
        self.lmdb = self._open(map_bytes)

    def _open(self, map_bytes: int) -> Any:
        options: dict[str, Any] = {"max_dbs": len(_DATABASES), "max_readers": 512}
        if not self.readonly:
            return lmdb.open(str(self.path), map_size=map_bytes, **options)
        try:
            return lmdb.open(str(self.path), map_size=0, readonly=True, create=False, **options)
        except (lmdb.ReadonlyError, lmdb.LockError, lmdb.DiskError, PermissionError):
            # A file system that can't be written has no writer either: then no lock is needed.
            return lmdb.open(str(self.path), map_size=0, readonly=True, create=False, lock=False, **options)

    @classmethod
    def join(cls, directory: Path, readonly: bool, map_bytes: int) -> _Environment:
        path = directory.resolve()
        with cls.registry:
            found = cls.open_ones.get(path)
            if found is None or (found.readonly and not readonly):
                found = cls.open_ones[path] = cls(path, readonly, map_bytes)
            found.users += 1
            return found

    def leave(self) -> None:
        with self.registry:
            self.users -= 1
            if not self.users:
                del self.open_ones[self.path]
                with self.gate:
                    self.lmdb.close()


class Index:
    """One LMDB environment. Written by one thread at a time, read by any."""

    def __init__(self, directory: Path, readonly: bool = False, map_bytes: int = MAP_BYTES) -> None:
        self.directory = directory
        try:
            self._shared = _Environment.join(directory, readonly, map_bytes)
            self._env, self._gate = self._shared.lmdb, self._shared.gate
            self._dbs = {name: self._env.open_db(name.encode(), create=not readonly) for name in _DATABASES}
        except lmdb.Error as error:
            raise _explained(error, directory) from error

    def close(self) -> None:
        self._shared.leave()

    # -- writing

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot; all of it or nothing."""
        self._write(lambda txn: self._put(txn, snapshot))

    def rebuild(self, snapshot: Snapshot) -> None:
        """Write a snapshot in place of everything that is known of where things are."""
        self._write(lambda txn: self._rebuild(txn, snapshot))

    def _rebuild(self, txn: Any, snapshot: Snapshot) -> None:
        for name in ("extents", "places", "segments"):
            txn.drop(self._dbs[name], delete=False)
        self._put(txn, snapshot)

    def _write(self, act: Callable[[Any], T]) -> T:
        """Do something in a synced transaction; when the map is full, make it larger and do it again."""
        self._grow_ahead()
        while True:
            try:
                with self._env.begin(write=True) as txn:
                    return act(txn)
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise _explained(error, self.directory) from error

    def _grow_ahead(self) -> None:
        info = self._env.info()
        if info["last_pgno"] * self._env.stat()["psize"] * 2 > info["map_size"]:
            self._grow()

    def _grow(self) -> None:
        with self._gate:
            self._env.set_mapsize(self._env.info()["map_size"] * 2)

    def _put(self, txn: Any, snapshot: Snapshot) -> None:
        self._put_extents(txn, snapshot.extents)
        for key, row in snapshot.segments:
            txn.put(key, row, db=self._dbs["segments"])
        for time_us, position in snapshot.marks:
            txn.put(_U64.pack(time_us), _U64.pack(position), db=self._dbs["marks"])
        for key, data in snapshot.streams.items():
            txn.put(key, data, db=self._dbs["streams"])
        for key, account in snapshot.accounts.items():
            if account is None:
                txn.delete(key, db=self._dbs["accounts"])
            else:
                txn.put(key, account, db=self._dbs["accounts"])
        for key, ends in snapshot.ends.items():
            if ends is None:
                txn.delete(key, db=self._dbs["ends"])
            else:
                txn.put(key, ends, db=self._dbs["ends"])
        state = State(FORMAT, snapshot.to, snapshot.start, snapshot.paused)
        txn.put(b"state", _encode(state), db=self._dbs["meta"])

    def _put_extents(self, txn: Any, extents: Sequence[Extent]) -> None:
        rows = [(e.stream.number, e.first, e.position, e.stop, e.end) for e in extents]
        pack_key, pack, pack_place, pack_position = _EXTENT_KEY.pack, _EXTENT.pack, _PLACE.pack, _U64.pack
        keyed = sorted([(pack_key(n, first, at), pack(stop, end)) for n, first, at, stop, end in rows])
        places = [(pack_position(at), pack_place(n, first, stop, end)) for n, first, at, stop, end in rows]
        with txn.cursor(db=self._dbs["extents"]) as cursor:
            cursor.putmulti(keyed)
        with txn.cursor(db=self._dbs["places"]) as cursor:
            cursor.putmulti(places)

    def remove(self, low: int, high: int, start: int, streams: Streams, moved_to: int | None = None) -> None:
        """The log from position `low` to `high` is gone; it begins at `start`.

        `moved_to` sets where a replay starts, when the end of the log went.
        """
        self._write(lambda txn: self._remove(txn, low, high, start, streams, moved_to))

    def _remove(
        self, txn: Any, low: int, high: int, start: int, streams: Streams, moved_to: int | None
    ) -> None:
        touched: set[int] = set()
        with txn.cursor(db=self._dbs["places"]) as cursor, txn.cursor(db=self._dbs["extents"]) as by_seq:
            cursor.set_range(_U64.pack(low))
            while (key := cursor.key()) and key < _U64.pack(high):
                touched.add(_delete_extent(by_seq, key, cursor.value()))
                cursor.delete()
        with txn.cursor(db=self._dbs["segments"]) as cursor:
            cursor.set_range(_U64.pack(low))
            _delete_while(cursor, lambda key, _: key < _U64.pack(high))
        if low < start:
            self._remove_marks(txn, start)
        for number in touched:
            self._put_first_held(txn, streams.numbered(number))
        state = self._state(txn)
        assert state is not None, "what is removed was saved"
        indexed_to = state.indexed_to if moved_to is None else moved_to
        state = msgspec.structs.replace(state, start=start, indexed_to=indexed_to)
        txn.put(b"state", _encode(state), db=self._dbs["meta"])

    def _put_first_held(self, txn: Any, stream: Stream) -> None:
        """Only that: the stream's published events are ahead of the log in memory, and must not be here."""
        key = _U64.pack(stream.number)
        row = _stream_decoder.decode(txn.get(key, db=self._dbs["streams"]))
        row = msgspec.structs.replace(row, first_held=stream.first_held)
        txn.put(key, _encode(row), db=self._dbs["streams"])

    def _remove_marks(self, txn: Any, start: int) -> None:
        with txn.cursor(db=self._dbs["marks"]) as cursor:
            cursor.first()
            _delete_while(cursor, lambda _, row: _U64.unpack(row)[0] < start)

    # -- reading

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._gate:
            try:
                txn = self._env.begin()
            except lmdb.MapResizedError:
                self._env.set_mapsize(0)  # another process made it larger
                txn = self._env.begin()
            with txn:
                yield txn

    def state(self) -> State | None:
        """What the index is about; None while it is empty."""
        with self._reading() as txn:
            return self._state(txn)

    def _state(self, txn: Any) -> State | None:
        data = txn.get(b"state", db=self._dbs["meta"])
        if data is None:
            return None
        state = _state_decoder.decode(data)
        if state.format != FORMAT:
            what = f"the journal has format {state.format}, this reknit reads {FORMAT}"
            raise JournalError(what, str(self.directory))
        return state

    def load(self, streams: Streams, ledger: Ledger) -> Loaded:
        """Fill streams and ledger, all as of one moment."""
        with self._reading() as txn:
            by_number = {
                _U64.unpack(key)[0]: _load_stream(_U64.unpack(key)[0], data, streams, ledger)
                for key, data in txn.cursor(db=self._dbs["streams"])
            }
            accounts = {
                _U64.unpack(key)[0]: _load_account(data, ledger)
                for key, data in txn.cursor(db=self._dbs["accounts"])
            }
            for key, data in txn.cursor(db=self._dbs["ends"]):
                number, stream_number = _PAIR.unpack(key)
                stream = by_number[stream_number]
                accounts[number].ends[stream.topic, stream.source] = {
                    End(end): unpack_ranges(ranges) for end, ranges in _ends_decoder.decode(data).items()
                }
            ledger.take_changes()
            numbers = {account.name: number for number, account in accounts.items()}
            return Loaded(self._state(txn), self._segments(txn), numbers)

    def segments(self) -> list[Segment]:
        """The totals of the log's files."""
        with self._reading() as txn:
            return self._segments(txn)

    def _segments(self, txn: Any) -> list[Segment]:
        rows = txn.cursor(db=self._dbs["segments"])
        return [Segment(_U64.unpack(key)[0], *_SEGMENT.unpack(row)) for key, row in rows]

    def extents(self, stream: Stream, start: int, stop: int) -> list[Extent]:
        """Those that hold any of `[start, stop)`.

        None is longer than `span_max`, so that bounds the way back.
        """
        low = _EXTENT_KEY.pack(stream.number, max(0, start - stream.span_max), 0)
        found: list[Extent] = []
        with self._reading() as txn, txn.cursor(db=self._dbs["extents"]) as cursor:
            there = cursor.set_range(low)
            while there:
                number, first, position = _EXTENT_KEY.unpack(cursor.key())
                if number != stream.number or first >= stop:
                    break
                extent_stop, end = _EXTENT.unpack(cursor.value())
                if extent_stop > start:
                    found.append(Extent(stream, first, extent_stop, position, end))
                there = cursor.next()
        return found

    def places(self, low: int, high: int) -> list[tuple[int, int, int, int, int]]:
        """(position, stream number, first, stop, end) of what lies in `[low, high)` of the log."""
        found: list[tuple[int, int, int, int, int]] = []
        with self._reading() as txn, txn.cursor(db=self._dbs["places"]) as cursor:
            there = cursor.set_range(_U64.pack(low))
            while there and (position := _U64.unpack(cursor.key())[0]) < high:
                found.append((position, *_PLACE.unpack(cursor.value())))
                there = cursor.next()
        return found

    def held(self, streams: Streams, low: int, high: int) -> list[Extent]:
        """The extents that lie in `[low, high)` of the log."""
        return [
            Extent(streams.numbered(number), first, stop, position, end)
            for position, number, first, stop, end in self.places(low, high)
        ]

    def place_before(self, position: int) -> int | None:
        """The last known start of a batch at or before a position."""
        with self._reading() as txn, txn.cursor(db=self._dbs["places"]) as cursor:
            there = cursor.set_range(_U64.pack(position))
            if there and cursor.key() == _U64.pack(position):
                return position
            there = cursor.prev() if there else cursor.last()
            return _U64.unpack(cursor.key())[0] if there else None

    def mark_before(self, time_us: int) -> int:
        """The position of the last mark at or before a time, or 0."""
        with self._reading() as txn, txn.cursor(db=self._dbs["marks"]) as cursor:
            there = cursor.set_range(_U64.pack(time_us + 1))
            there = cursor.prev() if there else cursor.last()
            return _U64.unpack(cursor.value())[0] if there else 0


def _delete_while(cursor: Any, goes: Callable[[bytes, bytes], bool]) -> None:
    """Delete from where the cursor is for as long as `goes` says so.

    Past the last, a cursor's key is empty.
    """
    while (key := cursor.key()) and goes(key, cursor.value()):
        cursor.delete()


def _delete_extent(cursor: Any, key: bytes, place: bytes) -> int:
    """Delete the extent that is in this place; gives its stream's number."""
    number: int
    number, first, _, _ = _PLACE.unpack(place)
    if cursor.set_key(_EXTENT_KEY.pack(number, first, _U64.unpack(key)[0])):
        cursor.delete()
    return number


def _load_stream(number: int, data: bytes, streams: Streams, ledger: Ledger) -> Stream:
    row = _stream_decoder.decode(data)
    stream = streams.make(row.topic, row.source, number)
    stream.first_held, stream.last, stream.span_max = row.first_held, row.last, row.span_max
    published = unpack_ranges(row.published)
    if published:
        ledger.published[row.topic, row.source] = published
    return stream


def _load_account(data: bytes, ledger: Ledger) -> Account:
    row = _account_decoder.decode(data)
    since = {(topic, source): seq for topic, source, seq in row.since}
    return ledger.open(row.name, Pattern(row.pattern), since, row.floor)


def stream_row(stream: Stream, published: SeqSet) -> tuple[bytes, bytes]:
    """A stream as key and value."""
    ranges = pack_ranges(published)
    row = StreamRow(stream.topic, stream.source, stream.first_held, stream.last, stream.span_max, ranges)
    return _U64.pack(stream.number), _encode(row)


def account_row(number: int, account: Account) -> tuple[bytes, bytes]:
    """A durable subscriber as key and value."""
    since = [(*stream, seq) for stream, seq in account.since.items()]
    return _U64.pack(number), _encode(AccountRow(account.name, account.pattern.text, since, account.floor))


def ends_row(number: int, stream: Stream, ends: Mapping[End, SeqSet] | None) -> tuple[bytes, bytes | None]:
    """What became of a stream for a subscriber, as key and value."""
    packed = None if ends is None else _encode({int(end): pack_ranges(seqs) for end, seqs in ends.items()})
    return _PAIR.pack(number, stream.number), packed


def account_key(number: int) -> bytes:
    return _U64.pack(number)


def _explained(error: lmdb.Error, directory: Path) -> JournalError:
    text = str(error)
    kind = JournalFull if f"{errno.ENOSPC}" in text or "No space left" in text else JournalError
    return kind(f"the index failed: {text}", str(directory))
