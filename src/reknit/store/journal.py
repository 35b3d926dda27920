"""The journal's contract. Its values are in `reknit.entries` and `reknit.records`.

A journal stores batches and records in the order in which they were staged. A **position** is a byte offset in that
order. No position is ever reused, not even after a crash, so other programs may store it.

Three threads may use one journal: the event loop's stages and reads, one commits, one checkpoints. Any other sharing is
not safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from reknit.batch import Head
from reknit.entries import Entry, Removed, Run, UnreadablePart
from reknit.frame import Buffer
from reknit.ledger import Ledger
from reknit.records import Record
from reknit.seqset import SeqSet

READ_BYTES_MAX: Final = 1 << 20
"""How much one read returns by default. A longer batch is returned whole, alone."""


class OpenReport(msgspec.Struct, frozen=True):
    """The result of opening a journal. `str()` gives a line for the log."""

    clean: bool = True
    """The journal had been closed properly, and nothing was missing."""
    replayed_from: int = 0
    replayed_bytes: int = 0
    replayed_batches: int = 0
    replayed_records: int = 0
    cut_position: int | None = None
    """Where a torn or damaged tail was cut off."""
    cut_bytes: int = 0
    cut_why: str = ""
    cut_file: str = ""
    """The file with the bytes that were cut off."""
    missing_bytes: int = 0
    """How many durable bytes are missing at the end of the log. A crash never causes this, only damage does."""
    lost: tuple[Removed, ...] = ()
    """The events in them, as far as the index knows them."""
    set_aside: tuple[Removed, ...] = ()
    """The events that were lost with damage which repairs set aside, now or long ago."""
    index_rebuilt: bool = False
    index_damage: str = ""
    """Why the index could not be used."""
    index_aside: str = ""
    """Where the damaged index was put."""

    def __str__(self) -> str:
        parts = ["closed cleanly" if self.clean else "not closed cleanly"]
        if self.replayed_bytes:
            parts.append(f"replayed {self.replayed_batches} batches and {self.replayed_records} records")
        if self.index_damage:
            parts.append(f"the index was damaged ({self.index_damage}) and is kept in {self.index_aside}")
        if self.index_rebuilt:
            parts.append("the index was rebuilt from the log")
        if self.index_damage and self.replayed_from:
            parts.append("what it knew of events that retention removed is lost")
        if self.cut_position is not None:
            kept = f", kept in {self.cut_file}" if self.cut_file else ""
            parts.append(f"cut {self.cut_bytes} bytes at position {self.cut_position} ({self.cut_why}){kept}")
        if self.missing_bytes:
            events = sum(gone.stop - gone.start for gone in self.lost)
            parts.append(f"{self.missing_bytes} durable bytes are lost, with {events} known events")
        return "; ".join(parts)


class JournalStatus(msgspec.Struct, frozen=True):
    """Totals of a journal, for people and metrics."""

    start: int
    end: int
    staged_end: int
    indexed_to: int
    events: int
    bytes: int
    segments: int
    streams: int
    cache_bytes: int
    problem: str = ""
    """Why nothing more can be stored until the journal is opened again."""


class Readable(Protocol):
    """The part of the contract that a journal and a reader of one share."""

    @property
    def id(self) -> str:
        """Positions of journals with different ids can't be compared."""
        ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def paused(self) -> set[str]:
        """The patterns of topics that are paused."""
        ...

    @property
    def start(self) -> int:
        """The first position held."""
        ...

    @property
    def end(self) -> int:
        """The position after the last committed entry (durable, or written where that is enough)."""
        ...

    def read(self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX) -> Run:
        """Batches from `position` on, at most up to `stop` or `end`. Raises `Gone(start)` before `start`.

        Damaged bytes are skipped; the run says which events are lost with them.
        """
        ...

    def records(
        self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX
    ) -> tuple[list[tuple[int, Record]], int]:
        """Records from `position` on within about `max_bytes` of the log, and the position to continue from."""
        ...

    def find(
        self, topic: str, source: bytes, start: int, stop: int, max_bytes: int | None = None
    ) -> list[Entry]:
        """The batches that hold any of `[start, stop)`, in seq order.

        With `max_bytes`, as many as fit (≥ 1).
        """
        ...

    def fetch(self, entry: Entry) -> memoryview:
        """A batch's bytes. Raises `Gone(start)` if it was removed meanwhile."""
        ...

    def held(self, topic: str, source: bytes) -> SeqSet:
        """Which events of a series are held or staged."""
        ...

    def lost(self, topic: str, source: bytes) -> SeqSet:
        """Which events of a series are in parts that were found to be unreadable."""
        ...

    def unreadable(self, position: int) -> list[UnreadablePart]:
        """The parts from a position on that were found to be unreadable."""
        ...

    def first_held(self, topic: str, source: bytes) -> int:
        """Nothing from this seq on was removed; 1 while everything is held."""
        ...

    def topics(self) -> list[str]: ...

    def sources(self, topic: str) -> dict[bytes, int]:
        """The last seq of each source on a topic, including staged events."""
        ...

    def position_at(self, time_us: int) -> int:
        """Where to start reading to get everything stored at or after a time; maybe a little early, never late."""
        ...

    def status(self) -> JournalStatus: ...

    def close(self) -> None: ...


class Journal(Readable, Protocol):
    """A journal that can be written, such as `DiskJournal` and `MemoryJournal`."""

    @property
    def origin(self) -> str:
        """The id that it had before it was restored from a backup, or its id."""
        ...

    @property
    def report(self) -> OpenReport: ...

    @property
    def staged_end(self) -> int:
        """The position after the last staged entry."""
        ...

    @property
    def staged_bytes(self) -> int:
        """How many bytes wait for a commit."""
        ...

    @property
    def problem(self) -> str:
        """Why nothing more can be stored until the journal is opened again; empty if it can. A full disk is no problem
        of this kind."""
        ...

    def stage(self, data: Buffer, heads: Sequence[Head]) -> int:
        """Take whole, validated batches back to back; returns the first one's position.

        Raises `JournalFull`.
        """
        ...

    def check_room(self, size: int) -> None:
        """Raise `JournalFull` unless so many bytes can be staged now."""
        ...

    def stage_record(self, record: Record) -> int:
        """Take a record and apply it to the ledger; returns its position. Raises `JournalFull`."""
        ...

    def commit(self, sync: bool = True) -> int:
        """Write everything staged (and sync it); returns the new `end`.

        Raises `JournalFull`, `JournalError`.
        """
        ...

    @property
    def unsaved_bytes(self) -> int:
        """How many bytes a replay would have to read."""
        ...

    @property
    def is_save_wanted(self) -> bool:
        """Whether `trim` could remove more after a checkpoint."""
        ...

    def checkpoint(self) -> int:
        """Commit, then save index and ledger as of then; returns the position that a replay would start from."""
        ...

    def take_unreadable(self) -> list[UnreadablePart]:
        """The parts that reads found to be unreadable since the last call, for subscribers that are owed them."""
        ...

    def expired_to(self) -> int:
        """The position before which retention would remove everything, if nobody needed it."""
        ...

    def trim(self, now_us: int | None = None, floor: int | None = None, waits: bool = True) -> list[Removed]:
        """Apply retention, never past position `floor`; returns the removed events.

        What the index does not cover yet can't be removed. With `waits`, the index is saved first. Without, that is
        left to the next `checkpoint`, which `is_save_wanted` asks for: then this never waits for the disk to sync.
        """
        ...
