"""Reading a journal from another process, while a node writes it or after it died.

While the journal is in use, a reader sees what the writer shares as its end: never more than is kept. When
nobody uses it, a reader sees every valid frame, and syncs them first: opening the journal would keep the
same.

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

from reknit.entries import Entry, Run
from reknit.errors import Closed, Gone, JournalError
from reknit.ledger import Ledger
from reknit.records import Record
from reknit.seqset import SeqSet
from reknit.store.directory import Layout, SharedEnd, is_locked
from reknit.store.frames import Damaged
from reknit.store.index import Index
from reknit.store.journal import READ_BYTES_MAX, Status
from reknit.store.log import SegmentFiles, segment_path, segment_starts
from reknit.store.log_walk import scan
from reknit.store.opening import Opened, load_index
from reknit.store.reading import Reading, wall_clock_us
from reknit.store.retention import Segment
from reknit.store.segments import SegmentChunks
from reknit.store.series import Extent, Stream
from reknit.store.tail import Chunk


def open_reader(directory: Path | str) -> Reader:
    """A reader of the journal in a directory. Raises `JournalError` where there is none."""
    return Reader(Path(directory))


class Reader(Reading):
    """A journal as another process sees it. Each call sees what is kept by then.

    Reading by position needs the log's files only. Whatever needs the index or the ledger reads, the first
    time, what the index does not have yet.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory), 0, wall_clock_us)
        self._layout = Layout(directory)
        self._id = self._layout.read_label().id
        try:
            self._shared = SharedEnd(self._layout.end, writable=False)
        except (OSError, ValueError) as error:
            raise JournalError(f"the shared end can't be read: {error}", str(self._layout.end)) from error
        self._index = Index(self._layout.index, readonly=True)
        self._files = SegmentFiles(self._layout.log)
        self._chunks = SegmentChunks(self._files, self._index)
        self._opened: Opened | None = None
        self._closed = False
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        if not self._closed:
            self._closed = True
            self._files.close()
            self._index.close()
            self._shared.close()

    # -- keeping up

    def refresh(self) -> int:
        """See how far the journal reaches by now; gives the end. Every call does this by itself."""
        if self._closed:
            raise Closed(f"the reader of {self._where}")
        end, _ = self._shared.read()
        if end > self._end or not self._end:
            self._list_segments(end)
        return self._end

    def _list_segments(self, end: int) -> None:
        """The log's files and where each ends, the last one at `end`."""
        indexed = self._index.segments() if self._opened is None else self._segments
        known = {one.start: one for one in indexed}
        starts = segment_starts(self._layout.log)
        segments = [known.get(start) or Segment(start, start) for start in starts] or [Segment(end, end)]
        for segment, following in pairwise(segments):
            file_end = segment.start + self._files.size(segment.start)
            segment.end = max(segment.end, min(following.start, file_end))
        last = segments[-1]
        if not is_locked(self._layout.lock):
            end = max(end, self._valid_end(last, end))
        last.end = max(last.start, last.end, end)
        self._segments, self._end = segments, max(self._end, last.end)

    def _valid_end(self, last: Segment, end: int) -> int:
        """Nobody writes: everything valid counts, as it would on opening, once it is synced."""
        path = segment_path(self._layout.log, last.start)
        if not path.exists():
            return end
        at = max(end, last.end)
        try:
            for chunk in scan(self._files, last, at, last.start + self._files.size(last.start)):
                at = chunk.end
        except Damaged as damage:
            at = damage.position
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
        return at

    def _catch_up(self) -> None:
        """Have streams and ledger as of the end: from the index, and from the log what the index does not have."""
        end = self.refresh()
        state = self._index.state()
        opened = self._opened
        if opened is None or (state is not None and state.start > opened.segments[0].start):
            opened = self._opened = load_index(self._index, self._layout.log)
            opened.end = opened.indexed_to
            self._ledger, self._paused, self._streams = opened.ledger, opened.paused, opened.streams
            self._segments = opened.segments or [Segment(opened.end, opened.end)]
            self._list_segments(end)
        for segment in self._segments:
            stop = min(segment.end, end)
            if opened.end < stop:
                for chunk in scan(self._files, segment, max(opened.end, segment.start), stop):
                    opened.keep(chunk)

    # -- reading what is not in memory, which is everything

    def _load(self, position: int, stop: int, max_bytes: int) -> Chunk | None:
        place = self._segment_at(position, stop)
        if place is None:
            return None
        segment, position = place
        try:
            return self._chunks.load(segment, position, min(stop, segment.end), max_bytes)
        except FileNotFoundError:
            self._list_segments(self._end)
            raise Gone(self.start, f"the journal in {self._where}") from None

    def _saved_extents(self, stream: Stream, start: int, stop: int) -> list[Extent]:
        return self._index.extents(stream, start, stop)

    def _saved_mark(self, time_us: int) -> int:
        return self._index.mark_before(time_us)

    def _indexed_to(self) -> int:
        state = self._index.state()
        return state.indexed_to if state else 0

    # -- the same questions, of what is kept by now

    @property
    def ledger(self) -> Ledger:
        """The ledger as of the end."""
        self._catch_up()
        return self._ledger

    @property
    def paused(self) -> set[str]:
        """The patterns of topics that are paused."""
        self._catch_up()
        return self._paused

    @property
    def start(self) -> int:
        """The first position held."""
        return self._segments[0].start

    @property
    def end(self) -> int:
        """The position after the last that is kept."""
        return self.refresh()

    def read(self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX) -> Run:
        """Batches from `position` on, up to `stop` or the end. Records are passed over."""
        self.refresh()
        return super().read(position, stop, max_bytes)

    def records(
        self, position: int, stop: int | None = None, max_bytes: int = READ_BYTES_MAX
    ) -> tuple[list[tuple[int, Record]], int]:
        """Records from `position` on within about `max_bytes` of the log, and where to go on."""
        self.refresh()
        return super().records(position, stop, max_bytes)

    def find(
        self, topic: str, source: bytes, start: int, stop: int, max_bytes: int | None = None
    ) -> list[Entry]:
        """The batches that hold any of `[start, stop)`, in seq order."""
        self._catch_up()
        return super().find(topic, source, start, stop, max_bytes)

    def held(self, topic: str, source: bytes) -> SeqSet:
        """Which of a stream's events are held, or staged."""
        self._catch_up()
        return super().held(topic, source)

    def first_held(self, topic: str, source: bytes) -> int:
        """The seq from which on nothing was removed; 1 while everything is there."""
        self._catch_up()
        return super().first_held(topic, source)

    def topics(self) -> list[str]:
        """Every topic that ever had an event here."""
        self._catch_up()
        return super().topics()

    def sources(self, topic: str) -> dict[bytes, int]:
        """The last seq of each source on a topic."""
        self._catch_up()
        return super().sources(topic)

    def position_at(self, time_us: int) -> int:
        """Where to read from to get everything kept at or after a time; at most one mark too early."""
        self.refresh()
        return super().position_at(time_us)

    def status(self) -> Status:
        """What is held."""
        self._catch_up()
        return super().status()
