"""A partition of a journal, as one task reads it. The rows depend on the partition alone."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from reknit.errors import Gone, NotConnected, ReknitError
from reknit.spark.blocking_connection import BlockingConnection
from reknit.spark.options import InvalidOption
from reknit.spark.source.arrow import BatchTables, EventTables
from reknit.spark.source.filters import BatchFilter
from reknit.spark.source.frame_scan import ScannedFrames, scan
from reknit.spark.source.log_files import LogFiles, is_here
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.outcome_rows import outcome_tables, table
from reknit.store.reader import open_reader
from reknit.topic import Pattern

__all__ = [
    "DataLoss",
    "JournalPartition",
    "JournalReplaced",
    "PartitionReader",
    "open_connection",
    "removed_series",
]

log = logging.getLogger("reknit.spark")

PAUSE_S: Final = 0.5
NAMED_MAX: Final = 5

RemovedSeries = list[tuple[str, bytes, int, int]]
"""(topic, source, first held seq, last seq) of each series that lost events to retention."""


class DataLoss(ReknitError):
    """Positions were removed from a journal before they were read.

    >>> print(DataLoss("a", 0, 4096, [("plant/temp", b"s" * 16, 100, 120)]))
    positions [0, 4096) of node a's journal were removed before they were read: plant/temp source \
73737373737373737373737373737373 seqs before 100; set failOnDataLoss=false to continue without them
    """

    def __init__(self, node: str, start: int, stop: int, series: RemovedSeries) -> None:
        super().__init__(node, start, stop, series)
        self.node, self.start, self.stop, self.series = node, start, stop, series

    def __str__(self) -> str:
        named = [
            f"{topic} source {source.hex()} seqs before {first}" for topic, source, first, _ in self.series
        ]
        more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
        what = f": {', '.join(named[:NAMED_MAX])}{more}" if named else ""
        return (
            f"positions [{self.start}, {self.stop}) of node {self.node}'s journal were removed before they were "
            f"read{what}; set failOnDataLoss=false to continue without them"
        )


class JournalReplaced(ReknitError):
    """A node has another journal than the one that was read so far.

    >>> print(JournalReplaced("a", "11", "22", 4096))
    node a has another journal (epoch 22) than the one that was read up to position 4096 (epoch 11): the unread \
events of the old one are lost; restore its directory, or set failOnDataLoss=false to start with the new one
    """

    def __init__(self, node: str, old: str, new: str, position: int) -> None:
        super().__init__(node, old, new, position)
        self.node, self.old, self.new, self.position = node, old, new, position

    def __str__(self) -> str:
        return (
            f"node {self.node} has another journal (epoch {self.new}) than the one that was read up to position "
            f"{self.position} (epoch {self.old}): the unread events of the old one are lost; restore its directory, "
            "or set failOnDataLoss=false to start with the new one"
        )


@dataclass(frozen=True)
class JournalPartition(InputPartition):
    """Positions `[start, stop)` of one node's journal. With `is_gone` they can't be read, only reported."""

    node: str
    url: str
    epoch: str
    directory: str
    """The journal's directory on the node's machine; empty if it is not on disk."""
    start: int
    stop: int
    is_gone: bool = False
    dead_letter_topic: str = ""
    """The topic of the node's dead letters; empty if that is not known."""


def open_connection(url: str, options: SourceOptions, wait_s: float = 0.0) -> BlockingConnection:
    """Connect to a node, and retry for `wait_s`. Raises `NotConnected`."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return BlockingConnection(url, options.token, options.timeout_s, options.tls)
        except NotConnected:
            if time.monotonic() + PAUSE_S > deadline:
                raise
            time.sleep(PAUSE_S)


def removed_series(part: JournalPartition, options: SourceOptions) -> RemovedSeries:
    """The series that lost events to retention; empty if the journal can't be asked."""
    try:
        if part.url.startswith("file://"):
            with open_reader(part.directory) as reader:
                rows = [
                    (t, s, reader.first_held(t, s), last)
                    for t in reader.topics()
                    for s, last in reader.sources(t).items()
                ]
            return [row for row in rows if row[2] > 1]
        with open_connection(part.url, options) as connection:
            return [(t, bytes(s), first, last) for t, s, first, last in connection.ask("streams")["streams"]]
    except (ReknitError, OSError) as error:
        log.warning("can't find out which events of node %s were removed: %s", part.node, error)
        return []


@cache
def _freeze_loaded_modules() -> None:
    """Exempt what a worker has loaded from garbage collection, once per worker.

    Spark's workers collect garbage at the end of each task. With all of pyarrow's objects that took as long as
    reading a few MiB.
    """
    gc.freeze()


class PartitionReader:
    """Reads partitions into record batches of one schema."""

    def __init__(self, options: SourceOptions, batch_filter: BatchFilter, schema: pa.Schema) -> None:
        self._options, self._filter, self._schema = options, batch_filter, schema

    def read(self, part: JournalPartition) -> Iterator[pa.RecordBatch]:
        """All rows of the partition. Raises `DataLoss`, unless the options allow it."""
        _freeze_loaded_modules()
        if self._options.dead_letters and self._filter.patterns and part.dead_letter_topic:
            yield from self._with_dead_letters(part.dead_letter_topic).read(
                replace(part, dead_letter_topic="")
            )
            return
        if part.is_gone:
            yield from self._report_gone(part)
            return
        position = part.start
        while position < part.stop:
            try:
                for tables, end in self._tables(part, position):
                    yield from tables
                    position = end
                return
            except Gone as gone:
                held = min(gone.first_held, part.stop)
                if self._options.fail_on_data_loss or held <= position:
                    series = removed_series(part, self._options)
                    raise DataLoss(part.node, position, held, series) from None
                yield from self._report_gone(replace(part, start=position, stop=held, is_gone=True))
                position = held

    def _with_dead_letters(self, topic: str) -> PartitionReader:
        """A reader that also reads this topic."""
        patterns = (*self._filter.patterns, Pattern(topic))
        return PartitionReader(self._options, replace(self._filter, patterns=patterns), self._schema)

    def _tables(
        self, part: JournalPartition, position: int
    ) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
        """Record batches, and the position after them."""
        if self._options.rows == "outcomes":
            for records, end in self._records(part, position):
                yield outcome_tables(part.node, records, self._filter, self._schema), end
            return
        tables = (EventTables if self._options.rows == "events" else BatchTables)(part.node, self._schema)
        for frames, end in self._frames(part, position):
            yield tables.tables(self._filter.pick(frames)), end

    def _files(self, part: JournalPartition) -> LogFiles | None:
        """The journal's files, if the options allow them and they are on this machine."""
        journal = self._options.journal
        if part.url.startswith("file://") or (journal != "tcp" and is_here(part.directory, part.epoch)):
            return LogFiles(part.directory)
        if journal == "file":
            raise InvalidOption(
                "journal", "file", f"needs the journal of {part.node}, {part.directory}, on this machine"
            )
        return None

    def _frames(self, part: JournalPartition, position: int) -> Iterator[tuple[ScannedFrames, int]]:
        files = self._files(part)
        if files is not None:
            for frames in files.frames(position, part.stop):
                yield frames, frames.position + len(frames.view)
            return
        with self._connect(part) as connection:
            for place, data in connection.read(position, part.stop):
                frames, _ = scan(data, place)
                yield frames, place + len(data)

    def _records(self, part: JournalPartition, position: int) -> Iterator[tuple[list[tuple[int, Any]], int]]:
        files = self._files(part)
        if files is None:
            with self._connect(part) as connection:
                yield list(connection.records(position, part.stop)), part.stop
            return
        found: list[tuple[int, memoryview]] = []
        for frames in files.frames(position, part.stop, found):
            yield list(found), frames.position + len(frames.view)
            found.clear()

    def _connect(self, part: JournalPartition) -> BlockingConnection:
        connection = open_connection(part.url, self._options, self._options.node_wait_s)
        if connection.welcome.epoch != part.epoch:
            connection.close()
            raise JournalReplaced(part.node, part.epoch, connection.welcome.epoch, part.start)
        return connection

    def _report_gone(self, part: JournalPartition) -> Iterator[pa.RecordBatch]:
        """Rows that report the removed positions."""
        series = removed_series(part, self._options)
        log.warning("skipped: %s", DataLoss(part.node, part.start, part.stop, series))
        matching = [row for row in series if self._filter.matches_topic(row[0])]
        rows = gone_rows(self._options.rows, part, matching)
        if rows:
            yield table(rows, self._schema)


def gone_rows(rows: str, part: JournalPartition, series: RemovedSeries) -> list[dict[str, Any]]:
    """Rows that report removed positions: one for the positions, one for each series that lost events."""
    common = {"node": part.node, "position": part.start}
    if rows == "batches":
        # Without a topic, `first` and `stop` are positions.
        positions = {**common, "count": 0, "first": part.start, "stop": part.stop}
        seqs = (
            {**common, "count": 0, "topic": topic, "source": source, "first": 1, "stop": first_held}
            for topic, source, first_held, _ in series
        )
        return [positions, *seqs]
    if rows == "outcomes":
        return [{**common, "row": 0, "kind": "gone", "floor": part.stop}]
    return []
