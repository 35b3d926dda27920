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
from reknit.spark.source.filters import BatchFilter
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.partitions import (
    PAUSE_S,
    DataLoss,
    JournalPartition,
    JournalReplaced,
    PartitionReader,
)
from reknit.spark.source.query_nodes import NodeJournal, QueryNodes

__all__ = ["ReknitStreamReader"]

log = logging.getLogger("reknit.spark")

Offset = dict[str, int]


class ReknitStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads from the offset up to the last durable position."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._reader = PartitionReader(options, BatchFilter(options.topics, options.checkpoint), schema)
        self._nodes: QueryNodes | None = None
        self._target: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_nodes": None}

    @property
    def nodes(self) -> QueryNodes:
        """The nodes, to which the driver alone connects."""
        if self._nodes is None:
            self._nodes = QueryNodes(self._options)
        return self._nodes

    def _poll(self) -> dict[str, NodeJournal]:
        journals = self.nodes.poll()
        if self._options.fail_on_node_away and self.nodes.away:
            url, why = next(iter(self.nodes.away.items()))
            raise NotConnected(url, f"{why} (failOnNodeAway)")
        return journals

    # -- offsets

    def initialOffset(self) -> dict[str, Any]:
        """Where to start. A node that is away now starts when it is first seen."""
        return {key: self.nodes.first_position(journal) for key, journal in self._poll().items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that the options set for one trigger."""
        if self._options.max_events_per_trigger:
            return ReadMaxRows(self._options.max_events_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: events that are published after this call are not read."""
        self._target = {key: journal.span.end for key, journal in self._poll().items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the journals, and the nodes that are away: for the query's progress."""
        nodes = self.nodes
        ends: dict[str, Any] = {key: journal.span.end for key, journal in nodes.poll().items()}
        return ends | {url: f"away: {why}" for url, why in nodes.away.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far to read now. The offset of a node that is away does not move."""
        end: Offset = dict(start)
        behind: list[tuple[int, NodeJournal]] = []
        for key, journal in self._poll().items():
            if self._target is not None and key not in self._target:
                continue
            if key in start:
                stop = self._stop(key, journal)
                if self._checked(journal, start[key]) < stop:
                    behind.append((stop, journal))
            else:
                self._drop_replaced(end, journal)
                end[key] = self.nodes.first_position(journal)
        for key, stop in self._limited(start, behind, limit):
            end[key] = stop
        return end

    def _stop(self, key: str, journal: NodeJournal) -> int:
        end = journal.span.end
        return end if self._target is None else min(self._target[key], end)

    def _checked(self, journal: NodeJournal, position: int) -> int:
        """The position. Raises `DataLoss` if the journal ends before it, unless data loss is allowed."""
        span = journal.span
        if position > span.end:
            text = (
                "node %s ends at position %d, but was read up to %d: it lost data that it had called durable"
            )
            log.error(text, span.node, span.end, position)
            if self._options.fail_on_data_loss:
                raise DataLoss(span.node, span.end, position, [])
        return position

    def _drop_replaced(self, end: Offset, journal: NodeJournal) -> None:
        """Drop the offset of an older journal of this node: its unread events can't be recovered."""
        for key in [key for key in end if key.rpartition("@")[0] == journal.span.node]:
            old = key.rpartition("@")[2]
            error = JournalReplaced(journal.span.node, old, journal.span.epoch, end[key])
            if self._options.fail_on_data_loss:
                raise error
            log.error("%s", error)
            del end[key]

    def _limited(
        self, start: Mapping[str, int], behind: list[tuple[int, NodeJournal]], limit: ReadLimit
    ) -> Iterator[tuple[str, int]]:
        """How far to read each node within the limit, which is shared evenly; an unused share goes to the next."""
        events = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
        if isinstance(limit, ReadMaxRows) and self._options.max_bytes_per_trigger:
            size = self._options.max_bytes_per_trigger
        behind.sort(key=lambda one: one[0] - start[one[1].key])
        for index, (stop, journal) in enumerate(behind):
            if not events and not size:
                yield journal.key, stop
                continue
            left, position = len(behind) - index, start[journal.key]
            reached, count = self.nodes.limited(
                journal, position, stop, events_max=_share(events, left), bytes_max=_share(size, left)
            )
            # At least 1 stays: 0 would mean that there is no limit.
            events = max(1, events - count) if events else 0
            size = max(1, size - (reached - position)) if size else 0
            yield journal.key, reached

    # -- reading

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions between two offsets: always the same, as long as retention removed nothing."""
        found: list[JournalPartition] = []
        stops = {key: stop for key, stop in end.items() if start.get(key, stop) < stop}
        journals = self._wait_for(stops)
        for key, stop in stops.items():
            found += self.nodes.partitions(journals[key], start[key], stop)
        for key in start.keys() - end.keys():
            node, _, epoch = key.rpartition("@")
            found.append(JournalPartition(node, "", epoch, "", start[key], start[key], True))
        return found

    def _wait_for(self, stops: Mapping[str, int]) -> dict[str, NodeJournal]:
        """The journals of these nodes. A planned micro-batch must be read, so a node that is away is waited for."""
        deadline = time.monotonic() + self._options.node_wait_s
        while True:
            journals = self.nodes.poll() if stops else {}
            missing = [key for key in stops if key not in journals]
            if not missing:
                return journals
            for journal in journals.values():
                self._drop_replaced({key: stops[key] for key in missing}, journal)
            if time.monotonic() + PAUSE_S > deadline:
                urls = ", ".join(self.nodes.away)
                text = f"the micro-batch was planned with {', '.join(missing)} and can't be read without it"
                raise NotConnected(urls, text)
            time.sleep(PAUSE_S)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Everything in one partition."""
        assert isinstance(partition, JournalPartition), "a partition that this reader planned"
        return self._reader.read(partition)

    def stop(self) -> None:
        """Close the connections to the nodes."""
        if self._nodes is not None:
            self._nodes.close()


def _share(limit: int, nodes: int) -> int:
    """A node's share of a limit; 0 stands for no limit."""
    return max(1, limit // nodes) if limit else 0
