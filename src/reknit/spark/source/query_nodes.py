"""The nodes of a query, as its driver sees them: which answer, how far each journal reaches, how to partition it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from reknit.checkpoint import Checkpoint
from reknit.errors import JournalError, NotConnected, RemoteError
from reknit.spark.blocking_connection import BlockingConnection, JournalSpan
from reknit.spark.options import InvalidOption
from reknit.spark.source.log_files import NO_LIMIT, LogFiles, SplitPoints, epoch_of, is_here
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.partitions import DataLoss, JournalPartition, open_connection, removed_series
from reknit.store.reader import open_reader

__all__ = ["NodeJournal", "QueryNodes", "table_step"]

log = logging.getLogger("reknit.spark")

PARTITIONS: Final = 4
STEP_MIN: Final = 8 << 20
STEP_MAX: Final = 64 << 20
"""By default a micro-batch is cut into this many partitions, each between these sizes: a task has a fixed cost.

The numbers are the same on every machine. A sink numbers events per partition, so a micro-batch that runs again on
another machine must be cut in the same way.
"""
TABLE_STEP_MAX: Final = 128 << 20
"""A table that is read once is cut into one partition per core, or into several if those would exceed this size."""

AWAY_FACTOR: Final = 5
"""A node that timed out is tried again after this many times the timeout, so that it does not delay the others."""

SPLIT_SLACK: Final = 1.25
"""A partition may exceed the wanted size by this factor before it is split."""


@dataclass(frozen=True)
class NodeJournal:
    """A node that answered, and how far its journal reaches now."""

    url: str
    span: JournalSpan

    @property
    def key(self) -> str:
        """Its name in offsets: node and epoch, since a position is valid in one journal only."""
        return f"{self.span.node}@{self.span.epoch}"

    def partition(self, start: int, stop: int, is_gone: bool = False) -> JournalPartition:
        span = self.span
        return JournalPartition(
            span.node, self.url, span.epoch, span.data_dir, start, stop, is_gone, span.dead_letter_topic
        )


class QueryNodes:
    """All nodes of a query. Connections stay open, and are opened again if they break."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connections: dict[str, BlockingConnection] = {}
        self._retry_at: dict[str, float] = {}
        self.away: dict[str, str] = {}
        """The addresses that did not answer the last poll, and why."""

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    def poll(self) -> dict[str, NodeJournal]:
        """Every node that answers, by its key. The others are in `away`; changes are logged."""
        time_us = self._options.start if isinstance(self._options.start, int) else None
        found: dict[str, NodeJournal] = {}
        before, self.away = self.away, {}
        for url in self._options.nodes:
            begin = time.monotonic()
            if begin < self._retry_at.get(url, 0.0):
                self.away[url] = before.get(url, "it did not answer")
                continue
            try:
                journal = NodeJournal(url, self._span(url, time_us))
            except (NotConnected, JournalError) as error:
                self._note_away(url, error, begin, is_new=url not in before)
                continue
            if url in before:
                log.warning("node %s at %s is back", journal.span.node, url)
            _check_name(journal, found.values())
            found[journal.key] = journal
        return found

    def _note_away(self, url: str, error: Exception, begin: float, is_new: bool) -> None:
        self.away[url] = str(error)
        if isinstance(error.__context__, TimeoutError):
            now = time.monotonic()
            self._retry_at[url] = now + AWAY_FACTOR * (now - begin)
        if is_new:
            log.warning("%s; its events stay there until it is back, the other nodes are read", error)

    def _span(self, url: str, time_us: int | None) -> JournalSpan:
        if url.startswith("file://"):
            return _span_of_directory(url, time_us)
        connection = self._connections.pop(url, None)
        if connection is not None:
            try:
                span = connection.span(time_us)
                self._connections[url] = connection
                return span
            except (NotConnected, RemoteError):
                # The node restarted, or closed an idle connection: connect again.
                connection.close()
        connection = open_connection(url, self._options)
        self._connections[url] = connection
        return connection.span(time_us)

    def first_position(self, journal: NodeJournal) -> int:
        """Where to start in a journal that was not read before."""
        match self._options.start:
            case "latest":
                return journal.span.end
            case int():
                return journal.span.position
            case "earliest" | Checkpoint():
                return journal.span.start
            case _:
                raise InvalidOption("start", repr(self._options.start), "is not a valid start")

    # -- splitting

    def split_points(
        self, journal: NodeJournal, position: int, stop: int, step: int, events_max: int = NO_LIMIT
    ) -> Iterator[SplitPoints]:
        """Where `[position, stop)` can be split, a few MiB at a time. Raises `Gone`."""
        span, files = journal.span, self._options.journal != "tcp"
        if journal.url.startswith("file://") or (files and is_here(span.data_dir, span.epoch)):
            yield from LogFiles(span.data_dir).split_points(position, stop, position, step, events_max)
            return
        origin = position
        while position < stop and events_max > 0:
            body = self._connections[journal.url].ask(
                "index", position=position, stop=stop, origin=origin, step=step, events_max=events_max
            )
            yield SplitPoints(body["marks"], body["events"], body["next"], body["full"])
            position, events_max = body["next"], events_max - body["events"]
            if body["full"]:
                return

    def partitions(
        self, journal: NodeJournal, start: int, stop: int, step: int = 0
    ) -> list[JournalPartition]:
        """`[start, stop)` of a journal in partitions of about `step` bytes; the same for the same arguments.

        Positions that retention removed raise `DataLoss`, or become a partition that reports them.
        """
        held = min(max(start, journal.span.start), stop)
        gone = [journal.partition(start, held, True)] if start < held else []
        if gone and self._options.fail_on_data_loss:
            raise DataLoss(journal.span.node, start, held, removed_series(gone[0], self._options))
        quarter = min(max((stop - held) // PARTITIONS, STEP_MIN), STEP_MAX)
        step = self._options.partition_bytes or step or quarter
        marks = [held, stop] if held < stop else []
        if stop - held > step * SPLIT_SLACK:
            found = [mark for one in self.split_points(journal, held, stop, step) for mark in one.marks]
            marks = sorted({held, *found, stop})
        return gone + [journal.partition(low, high) for low, high in pairwise(marks)]

    def limited(
        self, journal: NodeJournal, position: int, stop: int, *, events_max: int, bytes_max: int
    ) -> tuple[int, int]:
        """How far to read, at most `stop`, to stay within the limits; and the events up to there.

        At least one batch is read. A limit of 0 means none.
        """
        position = max(position, journal.span.start)
        events = 0
        step = bytes_max or NO_LIMIT
        for one in self.split_points(journal, position, stop, step, events_max or NO_LIMIT):
            over = [mark for mark in one.marks if mark - position >= step]
            if over:
                return over[0], events + one.events
            events += one.events
            if one.full:
                return one.next, events
        return stop, events


def table_step(size: int, cores: int) -> int:
    """The size of the partitions of a table of `size` bytes, so that all cores get the same share.

    >>> [table_step(mib << 20, cores=2) >> 20 for mib in (4, 200, 400)]
    [8, 100, 100]
    """
    turns = max(1, -(-size // (cores * TABLE_STEP_MAX)))
    return max(STEP_MIN, -(-size // (cores * turns)))


def _check_name(journal: NodeJournal, others: Iterable[NodeJournal]) -> None:
    for other in others:
        if other.span.node == journal.span.node:
            raise InvalidOption(
                "nodes",
                f"{other.url} and {journal.url}",
                f"are both called {journal.span.node}: set another node.name for one of them",
            )


def _span_of_directory(url: str, time_us: int | None) -> JournalSpan:
    """The journal of a node that is stopped, or runs on this machine. `file:///DIR#NAME`."""
    address = urlsplit(url)
    directory = Path(unquote(address.path)).absolute()
    epoch = epoch_of(directory)
    if not epoch:
        raise NotConnected(url, "this directory has no journal of a node")
    with open_reader(directory) as reader:
        position = -1 if time_us is None else reader.position_at(time_us)
        name = address.fragment or directory.name
        return JournalSpan(name, epoch, reader.start, reader.end, str(directory), position)
