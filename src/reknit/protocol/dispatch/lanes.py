"""What waits beside a queue's cursor: paused topics, ordered keys whose head is not done, and other priorities.

A lane is a line of events in which nobody overtakes. In an ordered lane one unit is with the subscriber at a time, and
nothing follows while it is tried again; an end of any kind, a dead letter too, frees the lane.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator

from reknit.ledger import Stream

LaneKey = Hashable


class Part:
    """Events `[start, stop)` of a stream, of about so many bytes each."""

    __slots__ = ("event_bytes", "start", "stop", "stream")

    def __init__(self, stream: Stream, start: int, stop: int, event_bytes: float) -> None:
        self.stream, self.start, self.stop, self.event_bytes = stream, start, stop, event_bytes


class Lane:
    """One line of waiting events."""

    __slots__ = ("back", "due", "is_ordered", "key", "out", "parts", "priority", "topic")

    def __init__(self, key: LaneKey, topic: str, priority: int, is_ordered: bool) -> None:
        self.key = key
        self.topic = topic
        self.priority = priority
        self.is_ordered = is_ordered
        self.parts: deque[Part] = deque()
        self.out = 0
        """Of an ordered lane: events that are with the subscriber."""
        self.back: list[tuple[Stream, int]] = []
        """Events that came back and go first, once the whole unit is in."""
        self.due = 0.0


class Lanes:
    """All lanes of one queue.

    >>> lanes = Lanes()
    >>> lane = lanes.lane("k", "plant/a", 1, is_ordered=True)
    >>> lanes.add(lane, ("plant/a", b"s"), 1, 4, 10.0)
    >>> lanes.take(lane, 2).stop, lanes.is_ready
    (3, False)
    >>> lanes.ended(("plant/a", b"s"), 1), lanes.ended(("plant/a", b"s"), 2), lanes.is_ready
    (None, None, True)
    """

    def __init__(
        self,
        is_paused: Callable[[str], bool] = lambda topic: False,
        on_back_off: Callable[[], object] = lambda: None,
    ) -> None:
        self._is_paused = is_paused
        self._on_back_off = on_back_off
        self._by_key: dict[LaneKey, Lane] = {}
        self._at: dict[tuple[Stream, int], Lane] = {}
        """The ordered lanes of events that are with the subscriber."""
        self._ready: dict[int, dict[LaneKey, Lane]] = {}
        self._backing_off: list[tuple[float, int, Lane]] = []
        self._count = 0
        self.parts = 0

    def __bool__(self) -> bool:
        return bool(self._by_key)

    @property
    def is_ready(self) -> bool:
        """Whether something could be handed out now."""
        return bool(self._ready)

    @property
    def priorities(self) -> list[int]:
        """Of what could be handed out now."""
        return list(self._ready)

    def get(self, key: LaneKey) -> Lane | None:
        return self._by_key.get(key)

    def lane(self, key: LaneKey, topic: str, priority: int, is_ordered: bool) -> Lane:
        """The lane with this key, made if need be."""
        lane = self._by_key.get(key)
        if lane is None:
            lane = self._by_key[key] = Lane(key, topic, priority, is_ordered)
        return lane

    def add(self, lane: Lane, stream: Stream, start: int, stop: int, event_bytes: float) -> None:
        """Events join the end of a lane."""
        last = lane.parts[-1] if lane.parts else None
        if last is not None and last.stream == stream and last.stop == start:
            last.stop = stop
            return
        lane.parts.append(Part(stream, start, stop, event_bytes))
        self.parts += 1
        self._look(lane)

    def occupy(self, lane: Lane, stream: Stream, start: int, stop: int) -> None:
        """Events of an ordered lane are with the subscriber."""
        for seq in range(start, stop):
            if (stream, seq) not in self._at:
                self._at[stream, seq] = lane
                lane.out += 1
        self._unready(lane)

    def first(self, priority: int) -> Lane:
        """The lane that is next in turn among those of a priority."""
        ready = self._ready[priority]
        key = next(iter(ready))
        lane = ready.pop(key)
        ready[key] = lane
        return lane

    def take(self, lane: Lane, events_max: int) -> Part:
        """Take events from the front of a lane, for the subscriber."""
        first = lane.parts[0]
        part = Part(first.stream, first.start, min(first.stop, first.start + events_max), first.event_bytes)
        first.start = part.stop
        if first.start == first.stop:
            lane.parts.popleft()
            self.parts -= 1
        if lane.is_ordered:
            self.occupy(lane, part.stream, part.start, part.stop)
        elif not lane.parts:
            self._drop(lane)
        return part

    def given_back(self, stream: Stream, seq: int, due: float) -> bool:
        """An event came back from the subscriber; whether it is an ordered lane's, and goes first there."""
        lane = self._at.pop((stream, seq), None)
        if lane is None:
            return False
        lane.out -= 1
        lane.back.append((stream, seq))
        lane.due = max(lane.due, due)
        self._look(lane)
        return True

    def ended(self, stream: Stream, seq: int) -> None:
        """An event that was with the subscriber ended."""
        lane = self._at.pop((stream, seq), None)
        if lane is not None:
            lane.out -= 1
            self._look(lane)

    def discard(self, stream: Stream, start: int, stop: int) -> None:
        """Events that wait in a lane ended there. Looks at all lanes of their topic: this is rare."""
        for lane in [one for one in self._by_key.values() if one.topic == stream[0]]:
            first = lane.parts[0] if lane.parts else None
            if first is not None and first.stream == stream and start <= first.start < stop:
                lane.due = 0.0  # it was the head that others waited for
            lane.back = [at for at in lane.back if not (at[0] == stream and start <= at[1] < stop)]
            kept = [piece for part in lane.parts for piece in _without(part, stream, start, stop)]
            self.parts += len(kept) - len(lane.parts)
            lane.parts = deque(kept)
            self._look(lane)

    def look_at_all(self) -> None:
        """Topics were paused or resumed."""
        for lane in list(self._by_key.values()):
            self._look(lane)

    def due(self, now: float) -> None:
        """Lanes whose back-off is over go on."""
        while self._backing_off and self._backing_off[0][0] <= now:
            lane = heapq.heappop(self._backing_off)[2]
            if lane.due <= now:
                lane.due = 0.0
                self._look(lane)

    def next_due(self) -> float | None:
        return self._backing_off[0][0] if self._backing_off else None

    def _look(self, lane: Lane) -> None:
        """See whether a lane can go on, has to wait, or is of no use any more."""
        if lane.back and lane.out == 0:
            self._put_back(lane)
        if not lane.parts and not lane.back and lane.out == 0:
            self._drop(lane)
        elif not lane.parts or lane.out or lane.due or self._is_paused(lane.topic):
            self._unready(lane)
        else:
            self._ready.setdefault(lane.priority, {})[lane.key] = lane

    def _put_back(self, lane: Lane) -> None:
        for stream, seq in sorted(lane.back, key=lambda at: at[1], reverse=True):
            first = lane.parts[0] if lane.parts else None
            if first is not None and first.stream == stream and first.start == seq + 1:
                first.start = seq
            else:
                lane.parts.appendleft(Part(stream, seq, seq + 1, 0.0))
                self.parts += 1
        lane.back = []
        if lane.due:
            self._count += 1
            heapq.heappush(self._backing_off, (lane.due, self._count, lane))
            self._on_back_off()

    def _unready(self, lane: Lane) -> None:
        ready = self._ready.get(lane.priority)
        if ready is not None and ready.pop(lane.key, None) is not None and not ready:
            del self._ready[lane.priority]

    def _drop(self, lane: Lane) -> None:
        self._unready(lane)
        if self._by_key.get(lane.key) is lane:
            del self._by_key[lane.key]


def _without(part: Part, stream: Stream, start: int, stop: int) -> Iterator[Part]:
    """What is left of a part."""
    if part.stream != stream or stop <= part.start or part.stop <= start:
        yield part
        return
    if part.start < start:
        yield Part(stream, part.start, start, part.event_bytes)
    if stop < part.stop:
        yield Part(stream, stop, part.stop, part.event_bytes)
