"""The streaming reader. Its offset is {node@epoch: position}: how far each node's journal was read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from reknit.errors import NotConnected
from reknit.spark.source.fabric import Fabric, Place
from reknit.spark.source.filters import Wanted
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.partitions import PAUSE_S, DataLoss, JournalReplaced, Part, PartReader

__all__ = ["ReknitStreamReader"]

log = logging.getLogger("reknit.spark")

Offset = dict[str, int]


class ReknitStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on where the offset says, up to what is durable."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._parts = PartReader(options, Wanted(options.topics, _checkpoint(options)), schema)
        self._fabric: Fabric | None = None
        self._target: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fabric": None}

    @property
    def fabric(self) -> Fabric:
        if self._fabric is None:
            self._fabric = Fabric(self._options)
        return self._fabric

    def _look(self) -> dict[str, Place]:
        places = self.fabric.look()
        if self._options.fail_on_node_away and self.fabric.away:
            url, why = next(iter(self.fabric.away.items()))
            raise NotConnected(url, f"{why} (failOnNodeAway)")
        return places

    # -- offsets

    def initialOffset(self) -> dict[str, Any]:
        """Where to start. A node that is away now starts when it is first seen."""
        return {key: self.fabric.first(place) for key, place in self._look().items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options allow for one trigger."""
        if self._options.max_events_per_trigger:
            return ReadMaxRows(self._options.max_events_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing newer than this is read."""
        self._target = {key: place.span.end for key, place in self._look().items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the nodes have got, and which are away: for the query's progress."""
        fabric = self.fabric
        ends: dict[str, Any] = {key: place.span.end for key, place in fabric.look().items()}
        return ends | {url: f"away: {why}" for url, why in fabric.away.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far to read now. What a node that is away had is left where it is."""
        end: Offset = dict(start)
        behind: list[tuple[int, Place]] = []
        for key, place in self._look().items():
            if self._target is not None and key not in self._target:
                continue
            if key in start:
                stop = self._stop(key, place)
                if self._checked(place, start[key]) < stop:
                    behind.append((stop, place))
            else:
                self._replace(end, place)
                end[key] = self.fabric.first(place)
        for key, stop in self._admitted(start, behind, limit):
            end[key] = stop
        return end

    def _stop(self, key: str, place: Place) -> int:
        return place.span.end if self._target is None else min(self._target[key], place.span.end)

    def _checked(self, place: Place, position: int) -> int:
        """A position that the journal still has a use for."""
        span = place.span
        if position > span.end:
            text = "node %s ends at position %d, but was read up to %d: it lost what it had called durable"
            log.error(text, span.node, span.end, position)
            if self._options.fail_on_data_loss:
                raise DataLoss(span.node, span.end, position, [])
        return position

    def _replace(self, end: Offset, place: Place) -> None:
        """A node with a new journal: what the old one still held can't be had."""
        for key in [key for key in end if key.rpartition("@")[0] == place.span.node]:
            old = key.rpartition("@")[2]
            error = JournalReplaced(place.span.node, old, place.span.epoch, end[key])
            if self._options.fail_on_data_loss:
                raise error
            log.error("%s", error)
            del end[key]

    def _admitted(
        self, start: Mapping[str, int], behind: list[tuple[int, Place]], limit: ReadLimit
    ) -> Iterator[tuple[str, int]]:
        """How far each node is read within the limit. It is shared out evenly; what one leaves goes to the next."""
        options = self._options
        events = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
        if isinstance(limit, ReadMaxRows) and options.max_bytes_per_trigger:
            size = options.max_bytes_per_trigger
        behind.sort(key=lambda one: one[0] - start[one[1].key])
        for index, (stop, place) in enumerate(behind):
            if not events and not size:
                yield place.key, stop
                continue
            left = len(behind) - index
            share = (max(1, events // left) if events else 0, max(1, size // left) if size else 0)
            position = start[place.key]
            reached, taken = self.fabric.limited(place, position, stop, *share)
            # At least 1 stays, so that a limit that is used up does not turn into none.
            events, size = (
                max(1, events - taken) if events else 0,
                max(1, size - (reached - position)) if size else 0,
            )
            yield place.key, reached

    # -- reading

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts between two offsets: the same whenever it is asked, for as long as nothing was removed."""
        parts: list[Part] = []
        wanted = {key: stop for key, stop in end.items() if start.get(key, stop) < stop}
        places = self._wait_for(wanted)
        for key, stop in wanted.items():
            parts += self.fabric.parts(places[key], start[key], stop)
        for key in start.keys() - end.keys():
            node, _, epoch = key.rpartition("@")
            parts.append(Part(node, "", epoch, "", start[key], start[key], True))
        return parts

    def _wait_for(self, wanted: Mapping[str, int]) -> dict[str, Place]:
        """The places of these nodes. What is planned must be read, so one that is away is waited for."""
        deadline = time.monotonic() + self._options.node_wait_s
        while True:
            places = self.fabric.look() if wanted else {}
            missing = [key for key in wanted if key not in places]
            if not missing:
                return places
            for place in places.values():
                self._replace({key: wanted[key] for key in missing}, place)
            if time.monotonic() + PAUSE_S > deadline:
                urls = ", ".join(self.fabric.away)
                text = f"the micro-batch was planned with {', '.join(missing)} and can't do without it"
                raise NotConnected(urls, text)
            time.sleep(PAUSE_S)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Everything of one part."""
        assert isinstance(partition, Part), "a part that this reader planned"
        return self._parts.read(partition)

    def stop(self) -> None:
        """Let go of the nodes."""
        if self._fabric is not None:
            self._fabric.close()


def _checkpoint(options: SourceOptions) -> Any:
    return None if isinstance(options.start, str | int) else options.start
