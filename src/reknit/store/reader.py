"""Reading a journal from another process, while a node writes it or after the node died.

While a node has the journal open, a reader sees the log up to the end that the node shares: never more than is
committed. When no node has it open, a reader sees every valid frame, and syncs them first, as opening the journal
would.

    >>> from tempfile import TemporaryDirectory
    >>> from reknit.batch import Batch
    >>> from reknit.store.disk import DiskJournal
    >>> batch = Batch.build(bytes(16), "plant/temp", 1, [b"21.5"], time_us=1)
    >>> with TemporaryDirectory() as directory:
    ...     journal = DiskJournal(directory)
    ...     with open_reader(directory) as reader:
    ...         _ = journal.stage(batch.data, [batch.head]), journal.commit()
    ...         [entry.head.topic for entry in reader.read(0).entries]
    ...     journal.close()
    ['plant/temp']
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from reknit import environment
from reknit.entries import Entry, Run, UnreadablePart
from reknit.errors import Closed, JournalError
from reknit.ledger import Ledger
from reknit.records import Record
from reknit.seqset import SeqSet
from reknit.store.directory.index_check import open_index_to_read
from reknit.store.directory.layout import Layout, SharedEnd, is_locked
from reknit.store.directory.opened_log import OpenedLog, load_index
from reknit.store.engine.archive import SegmentArchive
from reknit.store.engine.damage_finder import DamageFinder
from reknit.store.engine.log_state import LogState
from reknit.store.engine.queries import LogQueries
from reknit.store.engine.segments import SegmentChunks
from reknit.store.journal import READ_BYTES_MAX, JournalStatus
from reknit.store.log.frames import Damaged
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import SegmentFiles, segment_path, segment_starts
from reknit.store.log.walk import scan, valid_chunks


def open_reader(directory: Path | str) -> JournalReader:
    """A reader of the journal in a directory. Raises `JournalError` if there is none."""
    return JournalReader(Path(directory))


class LogFollower:
    """Keeps a reader's `LogState` up to date with a log that another process writes."""

    def __init__(self, layout: Layout, state: LogState) -> None:
        self._layout, self._state = layout, state
        self.id = layout.read_label().id
        try:
            self._shared = SharedEnd(layout.end, writable=False)
        except (OSError, ValueError) as error:
            raise JournalError(f"the shared end can't be read ({error})", str(layout.end)) from error
        self.index = open_index_to_read(layout)
        self.files = SegmentFiles(layout.log)
        self._opened: OpenedLog | None = None

    def close(self) -> None:
        self.files.close()
        self.index.close()
        self._shared.close()

    def follow(self) -> int:
        """Find the current end of the log, and return it."""
        end, _ = self._shared.read()
        if end > self._state.end or not self._state.end:
            self._list_segments(end)
        return self._state.end

    def relist(self) -> None:
        """A segment was removed: list the files again."""
        self._list_segments(self._state.end)

    def _list_segments(self, end: int) -> None:
        """List the log's files and where each ends, the last one at `end`."""
        indexed = self.index.segments() if self._opened is None else self._state.segments
        known = {one.start: one for one in indexed}
        starts = segment_starts(self._layout.log)
        segments = [known.get(start) or Segment(start, start) for start in starts] or [Segment(end, end)]
        for segment, following in pairwise(segments):
            file_end = segment.start + self.files.size(segment.start)
            segment.store(min(following.start, file_end))
        last = segments[-1]
        if not is_locked(self._layout.lock):
            end = max(end, self._valid_end(last, end))
        last.store(max(last.start, end))
        self._state.follow(segments, max(self._state.end, last.end))

    def _valid_end(self, last: Segment, end: int) -> int:
        """Nobody writes: every valid frame counts, as it would on opening, once it is synced."""
        path = segment_path(self._layout.log, last.start)
        if not path.exists():
            return end
        at = max(end, last.end)
        try:
            for chunk in scan(self.files, last, at, last.start + self.files.size(last.start)):
                at = chunk.end
        except Damaged as damage:
            at = damage.position
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
        return at

    def catch_up(self) -> None:
        """Have series and ledger as of the end: from the index, and from the log for the rest."""
        end = self.follow()
        index_state = self.index.state()
        opened = self._opened
        if opened is None or (index_state is not None and index_state.start > opened.segments[0].start):
            opened = self._opened = load_index(self.index, self._layout.log)
            opened.end = opened.indexed_to
            segments = opened.segments or [Segment(opened.end, opened.end)]
            self._state.load(opened.ledger, opened.paused, opened.series, segments)
            self._list_segments(end)
        for segment in self._state.segments:
            stop = min(segment.end, end)
            if opened.end < stop:
                for chunk in valid_chunks(self.files, segment, max(opened.end, segment.start), stop):
                    opened.replay(chunk)

    def indexed_to(self) -> int:
        state = self.index.state()
        return state.indexed_to if state else 0


class JournalReader:
    """A journal as another process sees it. Each call sees everything that is committed by then.

    Reading by position needs the log's files only. The first call that needs the index or the ledger loads the index and
    replays the rest of the log.
    """

    def __init__(self, directory: Path) -> None:
        self._where = str(directory)
        self._state = LogState(self._where, 0)
        self._follower = LogFollower(Layout(directory), self._state)
        self.id = self._follower.id
        follower = self._follower
        archive = SegmentArchive(
            self._state,
            SegmentChunks(follower.files),
            DamageFinder(self._state, follower.files, follower.index, prepare=follower.catch_up),
            follower.index,
            follower.indexed_to,
            on_removed=follower.relist,
        )
        self._queries = LogQueries(self._state, archive, environment.time_us)
        try:
            self.refresh()
        except BaseException:  # the index can't be read, for example
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        if not self._state.is_closed:
            self._state.close()
            self._follower.close()

    def refresh(self) -> int:
        """Find the journal's current end, and return it. Every other call does this first."""
        self._check_open()
        return self._follower.follow()

    def _check_open(self) -> None:
        if self._state.is_closed:
            raise Closed(f"the reader of {self._where}")

    def _catch_up(self) -> None:
        self._check_open()
        self._follower.catch_up()

    @property
    def ledger(self) -> Ledger:
        """The ledger as of the end."""
        self._catch_up()
        return self._state.ledger

    @property
    def paused(self) -> set[str]:
        """The patterns of topics that are paused."""
        self._catch_up()
        return self._state.paused

    @property
    def start(self) -> int:
        """The first position held."""
        return self._state.start

    @property
    def end(self) -> int:
        """The position after the last committed entry."""
        return self.refresh()

    def read(self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX) -> Run:
        """Batches from `position` on, up to `stop` or the end. Records are skipped."""
        self.refresh()
        return self._queries.read(position, stop, max_bytes)

    def records(
        self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX
    ) -> tuple[list[tuple[int, Record]], int]:
        """Records from `position` on within about `max_bytes` of the log, and the position to continue from."""
        self.refresh()
        return self._queries.records(position, stop, max_bytes)

    def find(
        self, topic: str, source: bytes, start: int, stop: int, max_bytes: int | None = None
    ) -> list[Entry]:
        """The batches that hold any of `[start, stop)`, in seq order."""
        self._catch_up()
        return self._queries.find(topic, source, start, stop, max_bytes)

    def fetch(self, entry: Entry) -> memoryview:
        """A batch's bytes."""
        self.refresh()
        return self._queries.fetch(entry)

    def held(self, topic: str, source: bytes) -> SeqSet:
        """Which events of a series are held."""
        self._catch_up()
        return self._queries.held(topic, source)

    def lost(self, topic: str, source: bytes) -> SeqSet:
        """Which events of a series are in parts that were found to be unreadable."""
        self._catch_up()
        return self._queries.lost(topic, source)

    def unreadable(self, position: int) -> list[UnreadablePart]:
        """The parts from a position on that were found to be unreadable."""
        return self._state.unreadable.since(position)

    def first_held(self, topic: str, source: bytes) -> int:
        """Nothing from this seq on was removed; 1 while everything is held."""
        self._catch_up()
        return self._queries.first_held(topic, source)

    def topics(self) -> list[str]:
        """Every topic that ever had an event here."""
        self._catch_up()
        return self._queries.topics()

    def sources(self, topic: str) -> dict[bytes, int]:
        """The last seq of each source on a topic."""
        self._catch_up()
        return self._queries.sources(topic)

    def position_at(self, time_us: int) -> int:
        """Where to start reading to get everything stored at or after a time; at most one mark too early."""
        self.refresh()
        return self._queries.position_at(time_us)

    def status(self) -> JournalStatus:
        """Totals of the held events."""
        self._catch_up()
        return self._queries.status()
