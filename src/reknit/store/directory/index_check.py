"""Opening the index: it is checked before it is used, and replaced by an empty one if it is damaged.

The log is the truth, so an empty index is filled again by replaying the log. What can't be replayed is the part of the
ledger that comes from segments which retention has removed.
"""

from __future__ import annotations

import msgspec

from reknit.errors import JournalCorrupt
from reknit.store.directory.layout import Layout, is_locked
from reknit.store.index.index import Index
from reknit.store.index.lmdb_environment import MAP_BYTES
from reknit.store.index.lmdb_pages import damage_of
from reknit.store.index.rows import RowDamaged


class IndexDamage(msgspec.Struct, frozen=True):
    """Why an index was not used, and where it was put."""

    why: str
    aside: str


def open_index(layout: Layout, map_bytes: int = MAP_BYTES) -> tuple[Index, IndexDamage | None]:
    """The index, every page and row of it checked. The caller holds the directory's lock."""
    why = damage_of(layout.index / "data.mdb")
    if not why:
        try:
            return _checked(layout, map_bytes), None
        except (JournalCorrupt, RowDamaged) as error:
            why = error.why if isinstance(error, JournalCorrupt) else error.what
    aside = layout.aside / f"index.{len(list(layout.aside.glob('index.*'))) + 1}"
    layout.index.rename(aside)
    layout.create()
    return Index(layout.index, map_bytes=map_bytes), IndexDamage(why, str(aside))


def _checked(layout: Layout, map_bytes: int) -> Index:
    index = Index(layout.index, map_bytes=map_bytes)
    try:
        index.check()
    except BaseException:
        index.close()
        raise
    return index


def open_index_to_read(layout: Layout) -> Index:
    """The index for a reader. It is checked unless a node has it open: that node has checked it."""
    path = layout.index / "data.mdb"
    if not is_locked(layout.lock) and (why := damage_of(path)) and not is_locked(layout.lock):
        damage = JournalCorrupt(str(path), 0, f"the index is damaged: {why}")
        damage.do = "start the node, which rebuilds it from the log"
        raise damage
    return Index(layout.index, readonly=True)
