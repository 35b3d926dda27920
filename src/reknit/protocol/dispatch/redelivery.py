"""Delivery beside the cursor: events that wait in lanes for their turn, and events that are retried.

They are delivered by their seqs, from the journal's index, each piece with its number of attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reknit.batch import Batch
from reknit.entries import Run
from reknit.ledger import Series
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.effects import Redeliver
from reknit.protocol.queues.lanes import Lane, LaneKey
from reknit.protocol.queues.queue import Queue
from reknit.seqset import Range, SeqSet

TURN_BYTES: Final = 64 << 10
"""The share of one priority per turn, when several wait."""
UNIT_EVENTS_MAX: Final = 256
"""The most events of an ordered lane that are with the subscriber at a time."""


class Redelivery:
    """Sets events aside, and delivers them."""

    def __init__(self, state: DispatchState) -> None:
        self._state = state

    # -- lanes

    def set_aside(self, queue: Queue, run: Run, index: int, wanted: list[Range], is_ordered: bool) -> None:
        """Put the wanted events of a batch into lanes, and those that the subscriber has, or gave back early."""
        entry = run.entries[index]
        head, series = entry.head, (entry.head.topic, entry.head.source)
        event_bytes = head.length / head.count
        bounds = (head.first, head.stop)
        held = SeqSet.from_ranges(queue.unsettled.in_flight_within(series, *bounds) if is_ordered else [])
        returned = queue.unsettled.waiting_within(series, *bounds) if is_ordered else []
        by_key = is_ordered and not queue.is_cache and self._state.order(queue, head.topic) == "key"
        for key, low, high in self._lane_keys(run, index, is_ordered, by_key):
            for start, stop in held.overlap(low, high):
                lane = queue.lanes.lane(key, head.topic, head.priority, is_ordered)
                queue.lanes.occupy(lane, series, start, stop)
            for start, stop in [part for one in wanted for part in _overlap(one, (low, high))]:
                queue.set_aside(entry.position, series, start, stop, event_bytes)
            for start, stop in [
                part for one in sorted(wanted + returned) for part in _overlap(one, (low, high))
            ]:
                lane = queue.lanes.lane(key, head.topic, head.priority, is_ordered)
                queue.lanes.add(lane, series, start, stop, event_bytes)

    def _lane_keys(
        self, run: Run, index: int, is_ordered: bool, by_key: bool
    ) -> Iterator[tuple[LaneKey, int, int]]:
        """The lanes of a batch's events, as ranges: one for its series, or one for each run of equal keys."""
        head = run.entries[index].head
        if not is_ordered:
            yield (head.topic, head.source), head.first, head.stop
            return
        keys = None
        if by_key:
            keys = Batch(head, run.cut(index, index + 1)).columns().get("key")
        if keys is None:
            yield (head.topic, head.source, head.priority), head.first, head.stop
            return
        start = head.first
        for seq in range(head.first + 1, head.stop + 1):
            if seq == head.stop or keys[seq - head.first] != keys[start - head.first]:
                yield (head.topic, str(keys[start - head.first])), start, seq
                start = seq

    def deliver_from_lane(self, queue: Queue, lane: Lane) -> None:
        """A lane's turn: a unit of an ordered lane, or as much as a turn allows."""
        if lane.is_ordered:
            queue.next_holder(lane)
        first = lane.parts[0]
        stop_max = min(first.stop, first.start + UNIT_EVENTS_MAX)
        start, stop, _ = queue.attempts.pieces(first.series, first.start, stop_max)[0]
        events = min(stop - start, queue.events_room)
        if not lane.is_ordered and first.event_bytes:
            events = max(min(events, int(min(TURN_BYTES, queue.room) / first.event_bytes)), 1)
        part = queue.take_from_lane(lane, events)
        self.send(queue, part.series, part.start, part.stop, part.event_bytes, lane.is_ordered)

    # -- retries

    def retry_due(self, queue: Queue) -> None:
        """Redeliver the events that are due, as far as there is room."""
        queue.lanes.due(self._state.now)
        while queue.has_room and (retry := queue.retries.pop_due(self._state.now)) is not None:
            series = (retry.topic, retry.source)
            for start, stop in queue.unsettled.waiting_within(series, retry.start, retry.stop):
                self._retry(queue, series, start, stop)
        is_due = queue.retries or queue.lanes.next_due() is not None or queue.leases is not None
        if not is_due and not queue.is_shared and queue.isolation is None:
            self._state.queues.unschedule(queue)

    def _retry(self, queue: Queue, series: Series, start: int, stop: int) -> None:
        if self._state.pauses.is_paused(series[0]):
            key = (*series, "again")
            lane = queue.lanes.lane(key, series[0], queue.cursor.priority, is_ordered=False)
            queue.lanes.add(lane, series, start, stop, 0.0)
            return
        for low, high, _ in queue.attempts.pieces(series, start, stop):
            at = low
            for count in queue.turns(high - low):
                queue.redeliver(series, at, at + count)
                self.send(queue, series, at, at + count, 0.0)
                at += count
            if at < high:  # no member has room for the rest
                queue.retry_at(series, at, high, self._state.now)

    def send(
        self,
        queue: Queue,
        series: Series,
        start: int,
        stop: int,
        event_bytes: float,
        is_ordered: bool = False,
    ) -> None:
        """Send events to the subscriber by their seqs. Only the first attempt uses credit."""
        attempt = queue.attempts.next_attempt(series, start)
        size = int(event_bytes * (stop - start)) if attempt == 1 else 0
        if attempt > 1:
            self._state.redelivered += stop - start
        queue.credit.use(size)
        if queue.leases is not None:
            queue.leases.begin(self._state.now, series, start, stop, attempt)
            self._state.queues.schedule(queue)
        self._state.emit(Redeliver(queue.peer, queue.sub, *series, start, stop, attempt, size, is_ordered))


def _overlap(one: Range, other: Range) -> list[Range]:
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return [(low, high)] if low < high else []
