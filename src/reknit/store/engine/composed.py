"""The common front of journals: every call goes to the part that does the work.

    LogState       the state that all parts share, and its lock
    StagingArea    stage, stage_record    event loop       assigns positions, indexes, applies records; no I/O
    LogCommitter   commit                 commit thread    writes everything staged, then makes it visible
    LogQueries     read, find, …          event loop       searches the tail in memory first, then the archive

`DiskJournal` adds a `Checkpointer` and a `Trimmer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from reknit.batch_layout import Head
from reknit.entries import Entry, Run, UnreadablePart
from reknit.frame import Buffer
from reknit.ledger import Ledger
from reknit.records import Record
from reknit.seqset import SeqSet
from reknit.store.engine.archive import LogArchive
from reknit.store.engine.commit import LogCommitter, LogWriter
from reknit.store.engine.log_state import LogState
from reknit.store.engine.queries import LogQueries
from reknit.store.engine.staging import StagingArea
from reknit.store.journal import READ_BYTES_MAX, JournalStatus, OpenReport


class ComposedJournal:
    """A journal made of parts. A subclass builds them, and adds checkpoints, retention and closing."""

    def __init__(
        self,
        id: str,
        state: LogState,
        staging: StagingArea,
        *,
        writer: LogWriter,
        archive: LogArchive,
        now_us: Callable[[], int],
        report: OpenReport,
        origin: str = "",
    ) -> None:
        self.id = id
        """Positions of journals with different ids can't be compared."""
        self.origin = origin or id
        """The id before it was restored from a backup."""
        self.report = report
        """The result of opening the journal."""
        self.state = state
        self.staging = staging
        self.committer = LogCommitter(state, staging, writer)
        self.queries = LogQueries(state, archive, now_us)

    @property
    def ledger(self) -> Ledger:
        """Changed only by staging. Until the commit it is ahead of the durable log."""
        return self.state.ledger

    @property
    def paused(self) -> set[str]:
        """The patterns of topics that are paused."""
        return self.state.paused

    @property
    def start(self) -> int:
        """The first position held."""
        return self.state.start

    @property
    def end(self) -> int:
        """The position after the last committed entry. Nothing past it is ever read."""
        return self.state.end

    @property
    def staged_end(self) -> int:
        """The position after the last staged entry."""
        return self.state.staged_end

    @property
    def staged_bytes(self) -> int:
        """How many bytes wait for a commit."""
        return self.state.staged_end - self.state.end

    @property
    def problem(self) -> str:
        """Why nothing more can be stored until the journal is opened again; empty if it can."""
        return self.committer.problem

    # -- writing

    def stage(self, data: Buffer, heads: Sequence[Head]) -> int:
        """Take whole, validated batches back to back; returns the first one's position."""
        return self.staging.stage(data, heads)

    def check_room(self, size: int) -> None:
        """Raise `JournalFull` unless so many bytes can be staged now."""
        self.staging.check_room(size)

    def stage_record(self, record: Record) -> int:
        """Take a record and apply it to the ledger; returns its position."""
        return self.staging.stage_record(record)

    def commit(self, sync: bool = True) -> int:
        """Write everything staged, then make it visible; returns the new end. With `sync` it is on disk then."""
        return self.committer.commit(sync)

    # -- reading

    def read(self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX) -> Run:
        """Batches from `position` on, up to `stop` or the end. Records are skipped."""
        return self.queries.read(position, stop, max_bytes)

    def records(
        self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX
    ) -> tuple[list[tuple[int, Record]], int]:
        """Records from `position` on within about `max_bytes` of the log, and the position to continue from."""
        return self.queries.records(position, stop, max_bytes)

    def find(
        self, topic: str, source: bytes, start: int, stop: int, max_bytes: int | None = None
    ) -> list[Entry]:
        """The batches that hold any of `[start, stop)`, in seq order."""
        return self.queries.find(topic, source, start, stop, max_bytes)

    def fetch(self, entry: Entry) -> memoryview:
        """A batch's bytes."""
        return self.queries.fetch(entry)

    def held(self, topic: str, source: bytes) -> SeqSet:
        """Which events of a series are held or staged."""
        return self.queries.held(topic, source)

    def lost(self, topic: str, source: bytes) -> SeqSet:
        """Which events of a series are in parts that were found to be unreadable."""
        return self.queries.lost(topic, source)

    def unreadable(self, position: int) -> list[UnreadablePart]:
        """The parts from a position on that were found to be unreadable."""
        return self.state.unreadable.since(position)

    def take_unreadable(self) -> list[UnreadablePart]:
        """The parts that reads found to be unreadable since the last call."""
        return self.state.unreadable.take()

    def first_held(self, topic: str, source: bytes) -> int:
        """Nothing from this seq on was removed; 1 while everything is held."""
        return self.queries.first_held(topic, source)

    def topics(self) -> list[str]:
        """Every topic that ever had an event here."""
        return self.queries.topics()

    def sources(self, topic: str) -> dict[bytes, int]:
        """The last seq of each source on a topic."""
        return self.queries.sources(topic)

    def position_at(self, time_us: int) -> int:
        """Where to start reading to get everything stored at or after a time; at most one mark too early."""
        return self.queries.position_at(time_us)

    def status(self) -> JournalStatus:
        """Totals of the held events, and whether more can be stored."""
        return msgspec.structs.replace(self.queries.status(), problem=self.problem)
