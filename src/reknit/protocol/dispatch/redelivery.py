"""Beside the cursor: events that wait in lanes for their turn, and those that come once more.

They are handed out by their seqs, out of the journal's index, each piece with its number of attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reknit.batch import Batch
from reknit.entries import Run
from reknit.ledger import Stream
from reknit.protocol.dispatch.lanes import Lane, LaneKey
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.state import Desk
from reknit.protocol.effects import Redeliver
from reknit.seqset import Range, SeqSet

TURN_BYTES: Final = 64 << 10
"""What one priority gets in its turn, when several wait."""
UNIT_EVENTS_MAX: Final = 256
"""The most events of an ordered lane that are with the subscriber at a time."""


class Asides:
    """Sets events aside, and hands them out."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def set_aside(self, queue: Queue, run: Run, index: int, wanted: list[Range], is_ordered: bool) -> None:
        entry = run.entries[index]
        head, stream = entry.head, (entry.head.topic, entry.head.source)
        event_bytes = head.length / head.count
        held = SeqSet.from_ranges(
            queue.open[stream].overlap(head.first, head.stop) if is_ordered and stream in queue.open else []
        )
        for key, low, high in self._lane_keys(run, index, is_ordered):
            for start, stop in held.overlap(low, high):
                lane = queue.lanes.lane(key, head.topic, head.priority, is_ordered)
                queue.lanes.occupy(lane, stream, start, stop)
            for start, stop in [part for one in wanted for part in _overlap(one, (low, high))]:
                lane = queue.lanes.lane(key, head.topic, head.priority, is_ordered)
                queue.set_aside(entry.position, stream, start, stop)
                queue.lanes.add(lane, stream, start, stop, event_bytes)

    def _lane_keys(self, run: Run, index: int, is_ordered: bool) -> Iterator[tuple[LaneKey, int, int]]:
        """The lanes of a batch's events, as ranges: one for its stream, or one for each run of equal keys."""
        head = run.entries[index].head
        if not is_ordered:
            yield (head.topic, head.source), head.first, head.stop
            return
        keys = None
        if self._desk.rules.of(head.topic).order == "key":
            keys = Batch(head, run.cut(index, index + 1)).columns().get("key")
        if keys is None:
            yield (head.topic, head.source, head.priority), head.first, head.stop
            return
        start = head.first
        for seq in range(head.first + 1, head.stop + 1):
            if seq == head.stop or keys[seq - head.first] != keys[start - head.first]:
                yield (head.topic, str(keys[start - head.first])), start, seq
                start = seq

    def hand_out_lane(self, queue: Queue, lane: Lane) -> None:
        """A lane's turn: a unit of an ordered one, or as much as a turn is."""
        first = lane.parts[0]
        alike = queue.alike(first.stream, first.start, min(first.stop, first.start + UNIT_EVENTS_MAX))[0]
        events = min(alike[1] - alike[0], queue.events_room)
        if not lane.is_ordered and first.event_bytes:
            events = max(min(events, int(min(TURN_BYTES, queue.room) / first.event_bytes)), 1)
        part = queue.lanes.take(lane, events)
        queue.wait_no_more(part.stream, part.start, part.stop)
        queue.in_flight += part.stop - part.start
        self.redeliver(queue, part.stream, part.start, part.stop, part.event_bytes, lane.is_ordered)

    def again(self, queue: Queue) -> None:
        """Hand out once more what is due, as far as there is room."""
        queue.lanes.due(self._desk.now)
        while queue.again and queue.again[0].due <= self._desk.now and queue.room > 0:
            again = queue.pop_again()
            stream = (again.topic, again.source)
            waiting = queue.waiting.get(stream)
            for start, stop in waiting.overlap(again.start, again.stop) if waiting else ():
                self._hand_out_again(queue, stream, start, stop)
        if not queue.again and queue.lanes.next_due() is None and queue.leases is None:
            self._desk.backing_off.pop(queue, None)

    def _hand_out_again(self, queue: Queue, stream: Stream, start: int, stop: int) -> None:
        if self._desk.pauses.is_paused(stream[0]):
            lane = queue.lanes.lane((*stream, "again"), stream[0], queue.cursor_priority, is_ordered=False)
            queue.lanes.add(lane, stream, start, stop, 0.0)
            return
        for low, high, _ in queue.alike(stream, start, stop):
            queue.wait_no_more(stream, low, high)
            queue.in_flight += high - low
            self.redeliver(queue, stream, low, high, 0.0)

    def redeliver(
        self, queue: Queue, stream: Stream, start: int, stop: int, event_bytes: float, ordered: bool = False
    ) -> None:
        """Events go to the subscriber by their seqs. The first time that takes credit, later times it does not."""
        tally = queue.tally(stream, start)
        attempt = 1 if tally is None else tally.acquired + 1
        size = int(event_bytes * (stop - start)) if attempt == 1 else 0
        queue.sent += size
        if queue.leases is not None:
            queue.leases.note(self._desk.now, stream, start, stop, attempt)
            self._desk.backing_off[queue] = None
        self._desk.effects.append(
            Redeliver(queue.peer, queue.sub, *stream, start, stop, attempt, size, ordered)
        )


def _overlap(one: Range, other: Range) -> list[Range]:
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return [(low, high)] if low < high else []
