"""A part of a journal, as one task reads it. What is read depends on the part alone."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from reknit.errors import Gone, NotConnected, ReknitError
from reknit.spark.source.arrow import BatchTables, EventTables
from reknit.spark.source.filters import Wanted
from reknit.spark.source.frame_scan import Frames, scan
from reknit.spark.source.log_files import LogFiles, is_here
from reknit.spark.source.nodes import NodeLink
from reknit.spark.source.options import InvalidOption, SourceOptions
from reknit.spark.source.outcome_rows import outcome_tables, table
from reknit.store.reader import open_reader

__all__ = ["DataLoss", "JournalReplaced", "Part", "PartReader", "linked", "removed_streams"]

log = logging.getLogger("reknit.spark")

PAUSE_S: Final = 0.5
NAMED_MAX: Final = 5

Streams = list[tuple[str, bytes, int, int]]
"""(topic, source, first held seq, last seq) of streams of which something was removed."""


class DataLoss(ReknitError):
    """What was to be read is not there any more.

    >>> print(DataLoss("a", 0, 4096, [("plant/temp", b"s" * 16, 100, 120)]))
    positions [0, 4096) of node a's journal were removed before they were read: plant/temp source \
73737373737373737373737373737373 seqs before 100; set failOnDataLoss=false to go on without them
    """

    def __init__(self, node: str, start: int, stop: int, streams: Streams) -> None:
        super().__init__(node, start, stop, streams)
        self.node, self.start, self.stop, self.streams = node, start, stop, streams

    def __str__(self) -> str:
        named = [
            f"{topic} source {source.hex()} seqs before {first}" for topic, source, first, _ in self.streams
        ]
        more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
        what = f": {', '.join(named[:NAMED_MAX])}{more}" if named else ""
        return (
            f"positions [{self.start}, {self.stop}) of node {self.node}'s journal were removed before they were "
            f"read{what}; set failOnDataLoss=false to go on without them"
        )


class JournalReplaced(ReknitError):
    """A node has another journal than the one that was read so far.

    >>> print(JournalReplaced("a", "11", "22", 4096))
    node a has another journal (epoch 22) than the one that was read up to position 4096 (epoch 11): what that \
still held is lost; bring its directory back, or set failOnDataLoss=false to start with the new one
    """

    def __init__(self, node: str, old: str, new: str, position: int) -> None:
        super().__init__(node, old, new, position)
        self.node, self.old, self.new, self.position = node, old, new, position

    def __str__(self) -> str:
        return (
            f"node {self.node} has another journal (epoch {self.new}) than the one that was read up to position "
            f"{self.position} (epoch {self.old}): what that still held is lost; bring its directory back, or set "
            "failOnDataLoss=false to start with the new one"
        )


@dataclass(frozen=True)
class Part(InputPartition):
    """Positions `[start, stop)` of one node's journal; or, with `is_gone`, what could not be read of it."""

    node: str
    url: str
    epoch: str
    directory: str
    """Where the journal lies on the node's machine; empty if it is not on disk."""
    start: int
    stop: int
    is_gone: bool = False


def linked(url: str, options: SourceOptions, wait_s: float = 0.0) -> NodeLink:
    """A connection to a node, tried for so long. Raises `NotConnected`."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return NodeLink(url, options.token, options.timeout_s, options.tls_ca_file)
        except NotConnected:
            if time.monotonic() + PAUSE_S > deadline:
                raise
            time.sleep(PAUSE_S)


def removed_streams(part: Part, options: SourceOptions) -> Streams:
    """Of which streams something was removed; nothing where nobody can tell."""
    try:
        if part.url.startswith("file://"):
            with open_reader(part.directory) as reader:
                rows = [
                    (t, s, reader.first_held(t, s), last)
                    for t in reader.topics()
                    for s, last in reader.sources(t).items()
                ]
            return [row for row in rows if row[2] > 1]
        with linked(part.url, options) as link:
            return [(t, bytes(s), first, last) for t, s, first, last in link.ask("streams")["streams"]]
    except (ReknitError, OSError) as error:
        log.warning("can't tell which events of node %s are gone: %s", part.node, error)
        return []


@cache
def _settle_in() -> None:
    """Once in a worker: what is loaded stays, so that the worker need not look through it after each task.

    Spark's workers collect garbage when a task ends. With all that pyarrow brings that took as long as reading a
    few MiB.
    """
    gc.freeze()


class PartReader:
    """Reads parts into record batches of one schema."""

    def __init__(self, options: SourceOptions, wanted: Wanted, schema: pa.Schema) -> None:
        self._options, self._wanted, self._schema = options, wanted, schema

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Everything of the part. Raises `DataLoss`, unless that is to be passed over."""
        _settle_in()
        if part.is_gone:
            yield from self._gone(part)
            return
        position = part.start
        while position < part.stop:
            try:
                for tables, end in self._pieces(part, position):
                    yield from tables
                    position = end
                return
            except Gone as gone:
                held = min(gone.first_held, part.stop)
                if self._options.fail_on_data_loss or held <= position:
                    streams = removed_streams(part, self._options)
                    raise DataLoss(part.node, position, held, streams) from None
                lost = Part(part.node, part.url, part.epoch, part.directory, position, held, True)
                yield from self._gone(lost)
                position = held

    def _pieces(self, part: Part, position: int) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
        """Record batches, and the position after them."""
        if self._options.rows == "outcomes":
            for records, end in self._records(part, position):
                yield outcome_tables(part.node, records, self._wanted, self._schema), end
            return
        tables = (EventTables if self._options.rows == "events" else BatchTables)(part.node, self._schema)
        for frames, end in self._frames(part, position):
            yield tables.tables(self._wanted.pick(frames)), end

    def _files(self, part: Part) -> LogFiles | None:
        """The journal's files, if they are to be read and can be."""
        how = self._options.journal
        if part.url.startswith("file://") or (how != "tcp" and is_here(part.directory, part.epoch)):
            return LogFiles(part.directory)
        if how == "file":
            raise InvalidOption(
                "journal", "file", f"needs the journal of {part.node}, {part.directory}, on this machine"
            )
        return None

    def _frames(self, part: Part, position: int) -> Iterator[tuple[Frames, int]]:
        files = self._files(part)
        if files is not None:
            for frames in files.frames(position, part.stop):
                yield frames, frames.position + len(frames.view)
            return
        with self._link(part) as link:
            for place, data in link.read(position, part.stop):
                frames, _ = scan(data, place)
                yield frames, place + len(data)

    def _records(self, part: Part, position: int) -> Iterator[tuple[list[tuple[int, Any]], int]]:
        files = self._files(part)
        if files is None:
            with self._link(part) as link:
                yield list(link.records(position, part.stop)), part.stop
            return
        found: list[tuple[int, memoryview]] = []
        for frames in files.frames(position, part.stop, found):
            yield list(found), frames.position + len(frames.view)
            found.clear()

    def _link(self, part: Part) -> NodeLink:
        link = linked(part.url, self._options, self._options.node_wait_s)
        if link.welcome.epoch != part.epoch:
            link.close()
            raise JournalReplaced(part.node, part.epoch, link.welcome.epoch, part.start)
        return link

    def _gone(self, part: Part) -> Iterator[pa.RecordBatch]:
        """What is reported instead of what could not be read."""
        streams = removed_streams(part, self._options)
        log.warning("passed over: %s", DataLoss(part.node, part.start, part.stop, streams))
        rows = gone_rows(self._options.rows, part, [row for row in streams if self._wanted.wants(row[0])])
        if rows:
            yield table(rows, self._schema)


def gone_rows(rows: str, part: Part, streams: Streams) -> list[dict[str, Any]]:
    """Rows that say what was passed over: one for the positions, one for each stream that lost events."""
    common = {"node": part.node, "position": part.start}
    if rows == "batches":
        # Without a topic, `first` and `stop` are positions.
        whole = {**common, "count": 0, "first": part.start, "stop": part.stop}
        return [
            whole,
            *(
                {**common, "count": 0, "topic": t, "source": s, "first": 1, "stop": f}
                for t, s, f, _ in streams
            ),
        ]
    if rows == "outcomes":
        return [{**common, "row": 0, "kind": "gone", "floor": part.stop}]
    return []
