"""The nodes that a query reads, as its driver sees them: who is there, how far each has got, how to split it."""

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
from reknit.spark.source.log_files import NO_LIMIT, LogFiles, Survey, epoch_of, is_here
from reknit.spark.source.nodes import NodeLink, Span
from reknit.spark.source.options import InvalidOption, SourceOptions
from reknit.spark.source.partitions import DataLoss, Part, linked, removed_streams
from reknit.store.reader import open_reader

__all__ = ["Fabric", "Place", "table_step"]

log = logging.getLogger("reknit.spark")

PARTS: Final = 4
STEP_MIN: Final = 8 << 20
STEP_MAX: Final = 64 << 20
"""Unless told otherwise a micro-batch is cut into so many parts, each between these sizes: a task has its price.

They are the same on every machine: a sink tells events by their part, also where the micro-batch runs again elsewhere.
"""
TABLE_STEP_MAX: Final = 128 << 20
"""A table that is read once is cut into a part for each core, or into several where they would be larger than this."""

AWAY_FACTOR: Final = 5
"""A node that never answers is tried again after so many times the timeout: the others must not wait for it."""

SPLIT_SLACK: Final = 1.25
"""A part may be so much longer than wanted before it is split."""


@dataclass(frozen=True)
class Place:
    """A node that is there, and its journal as of now."""

    url: str
    span: Span

    @property
    def key(self) -> str:
        """What it is called in offsets: positions mean something in one journal only."""
        return f"{self.span.node}@{self.span.epoch}"

    def part(self, start: int, stop: int, is_gone: bool = False) -> Part:
        span = self.span
        return Part(span.node, self.url, span.epoch, span.data_dir, start, stop, is_gone)


class Fabric:
    """All nodes of a query. Connections are kept and opened again as needed."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._links: dict[str, NodeLink] = {}
        self._again_at: dict[str, float] = {}
        self.away: dict[str, str] = {}
        """The addresses that did not answer the last time, and why."""

    def close(self) -> None:
        """Let go of all connections."""
        while self._links:
            self._links.popitem()[1].close()

    def look(self) -> dict[str, Place]:
        """Every node that is there, by its key. The others are in `away`; who goes and comes is logged."""
        time_us = self._options.start if isinstance(self._options.start, int) else None
        found: dict[str, Place] = {}
        before, self.away = self.away, {}
        for url in self._options.nodes:
            begin = time.monotonic()
            if begin < self._again_at.get(url, 0.0):
                self.away[url] = before.get(url, "it did not answer")
                continue
            try:
                place = Place(url, self._span(url, time_us))
            except (NotConnected, JournalError) as error:
                self.away[url] = str(error)
                if isinstance(error.__context__, TimeoutError):
                    now = time.monotonic()
                    self._again_at[url] = now + AWAY_FACTOR * (now - begin)
                if url not in before:
                    log.warning("%s; what it has waits there, the other nodes go on", error)
                continue
            if url in before:
                log.warning("node %s at %s is back", place.span.node, url)
            _check_name(place, found.values())
            found[place.key] = place
        return found

    def _span(self, url: str, time_us: int | None) -> Span:
        if url.startswith("file://"):
            return _span_of(url, time_us)
        link = self._links.pop(url, None)
        if link is not None:
            try:
                span = link.span(time_us)
                self._links[url] = link
                return span
            except (NotConnected, RemoteError):
                link.close()  # it was closed for being quiet, or the node went: once more
        link = linked(url, self._options)
        self._links[url] = link
        return link.span(time_us)

    def first(self, place: Place) -> int:
        """Where to start reading a node that was not read before."""
        match self._options.start:
            case "latest":
                return place.span.end
            case int():
                return place.span.position
            case "earliest" | Checkpoint():
                return place.span.start
            case _:
                raise InvalidOption("start", repr(self._options.start), "can't be")

    # -- splitting

    def surveys(
        self, place: Place, position: int, stop: int, step: int, events_max: int = NO_LIMIT
    ) -> Iterator[Survey]:
        """What lies in `[position, stop)`, a few MiB at a time. Raises `Gone`."""
        span, files = place.span, self._options.journal != "tcp"
        if place.url.startswith("file://") or (files and is_here(span.data_dir, span.epoch)):
            yield from LogFiles(span.data_dir).surveys(position, stop, position, step, events_max)
            return
        origin = position
        while position < stop and events_max > 0:
            body = self._links[place.url].ask(
                "index", position=position, stop=stop, origin=origin, step=step, events_max=events_max
            )
            yield Survey(body["marks"], body["events"], body["next"], body["full"])
            position, events_max = body["next"], events_max - body["events"]
            if body["full"]:
                return

    def parts(self, place: Place, start: int, stop: int, step: int = 0) -> list[Part]:
        """`[start, stop)` of a journal in parts of about `step` bytes; the same for the same arguments.

        What was removed meanwhile is `DataLoss`, or a part that reports it.
        """
        held = min(max(start, place.span.start), stop)
        gone = [place.part(start, held, True)] if start < held else []
        if gone and self._options.fail_on_data_loss:
            raise DataLoss(place.span.node, start, held, removed_streams(gone[0], self._options))
        quarter = min(max((stop - held) // PARTS, STEP_MIN), STEP_MAX)
        step = self._options.partition_bytes or step or quarter
        marks = [held, stop] if held < stop else []
        if stop - held > step * SPLIT_SLACK:
            found = [mark for one in self.surveys(place, held, stop, step) for mark in one.marks]
            marks = sorted({held, *found, stop})
        return gone + [place.part(low, high) for low, high in pairwise(marks)]

    def limited(
        self, place: Place, position: int, stop: int, events_max: int, bytes_max: int
    ) -> tuple[int, int]:
        """How far to read, at most `stop`, to stay within the limits, but one batch at least; and the events."""
        position = max(position, place.span.start)
        events = 0
        step = bytes_max or NO_LIMIT
        for one in self.surveys(place, position, stop, step, events_max or NO_LIMIT):
            over = [mark for mark in one.marks if mark - position >= step]
            if over:
                return over[0], events + one.events
            events += one.events
            if one.full:
                return one.next, events
        return stop, events


def table_step(size: int, cores: int) -> int:
    """How large to cut parts of so many bytes, for cores that are all to have as much to do.

    >>> [table_step(mib << 20, cores=2) >> 20 for mib in (4, 200, 400)]
    [8, 100, 100]
    """
    turns = max(1, -(-size // (cores * TABLE_STEP_MAX)))
    return max(STEP_MIN, -(-size // (cores * turns)))


def _check_name(place: Place, others: Iterable[Place]) -> None:
    for other in others:
        if other.span.node == place.span.node:
            raise InvalidOption(
                "nodes",
                f"{other.url} and {place.url}",
                f"are both called {place.span.node}: give one another node.name",
            )


def _span_of(url: str, time_us: int | None) -> Span:
    """The journal of a node that is stopped, or runs on this machine. `file:///DIR#NAME`."""
    address = urlsplit(url)
    directory = Path(unquote(address.path)).absolute()
    epoch = epoch_of(directory)
    if not epoch:
        raise NotConnected(url, "there is no journal of a node in this directory")
    with open_reader(directory) as reader:
        position = -1 if time_us is None else reader.position_at(time_us)
        name = address.fragment or directory.name
        return Span(name, epoch, reader.start, reader.end, str(directory), position)
