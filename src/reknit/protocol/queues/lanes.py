"""Events that wait beside a queue's cursor: paused topics, ordered keys whose head is not settled, other priorities.

A lane is a first-in, first-out line of events. In an ordered lane one unit is with the subscriber at a time, and
nothing follows while it is retried. The lane moves on when the unit ends in any way, also as a dead letter.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator

from reknit.ledger import Series

LaneKey = Hashable


class LanePart:
    """Events `[start, stop)` of a series, of about `event_bytes` each."""

    __slots__ = ("event_bytes", "series", "start", "stop")

    def __init__(self, series: Series, start: int, stop: int, event_bytes: float) -> None:
        self.series, self.start, self.stop, self.event_bytes = series, start, stop, event_bytes


class Lane:
    """One line of waiting events. Only `Lanes` changes it."""

    __slots__ = ("back", "due", "holder", "is_ordered", "key", "out", "parts", "priority", "topic")

    def __init__(self, key: LaneKey, topic: str, priority: int, is_ordered: bool) -> None:
        self.key = key
        self.topic = topic
        self.priority = priority
        self.is_ordered = is_ordered
        self.parts: deque[LanePart] = deque()
        self.out = 0
        """How many events of an ordered lane are with the subscriber."""
        self.back: list[tuple[Series, int]] = []
        """Events that came back and go first, once the whole unit is back."""
        self.due = 0.0
        self.holder: Hashable = None
        """The member of a queue that had the last unit. As long as it has room, it gets the next one, too."""


class Lanes:
    """All lanes of one queue.

    >>> lanes = Lanes()
    >>> lane = lanes.lane("k", "plant/a", 1, is_ordered=True)
    >>> lanes.add(lane, ("plant/a", b"s"), 1, 4, 10.0)
    >>> lanes.take(lane, 2).stop, lanes.is_ready
    (3, False)
    >>> lanes.end(("plant/a", b"s"), 1, 3)
    >>> lanes.is_ready
    True
    """

    def __init__(
        self,
        is_paused: Callable[[str], bool] = lambda topic: False,
        on_back_off: Callable[[], object] = lambda: None,
    ) -> None:
        self._is_paused = is_paused
        self._on_back_off = on_back_off
        self._by_key: dict[LaneKey, Lane] = {}
        self._at: dict[tuple[Series, int], Lane] = {}
        """The ordered lanes of the events that are with the subscriber."""
        self._ready: dict[int, dict[LaneKey, Lane]] = {}
        self._backing_off: list[tuple[float, int, Lane]] = []
        self._count = 0
        self.parts = 0
        """How many ranges of events wait in all lanes."""

    def __bool__(self) -> bool:
        return bool(self._by_key)

    @property
    def is_ready(self) -> bool:
        """Whether something could be delivered now."""
        return bool(self._ready)

    @property
    def priorities(self) -> list[int]:
        """The priorities of events that could be delivered now."""
        return list(self._ready)

    def get(self, key: LaneKey) -> Lane | None:
        return self._by_key.get(key)

    def lane(self, key: LaneKey, topic: str, priority: int, is_ordered: bool) -> Lane:
        """The lane with this key, created if necessary."""
        lane = self._by_key.get(key)
        if lane is None:
            lane = self._by_key[key] = Lane(key, topic, priority, is_ordered)
        return lane

    def add(self, lane: Lane, series: Series, start: int, stop: int, event_bytes: float) -> None:
        """Events join the end of a lane."""
        last = lane.parts[-1] if lane.parts else None
        if last is not None and last.series == series and last.stop == start:
            last.stop = stop
            return
        lane.parts.append(LanePart(series, start, stop, event_bytes))
        self.parts += 1
        self._look(lane)

    def occupy(self, lane: Lane, series: Series, start: int, stop: int) -> None:
        """Events of an ordered lane are with the subscriber."""
        for seq in range(start, stop):
            if (series, seq) not in self._at:
                self._at[series, seq] = lane
                lane.out += 1
        self._unready(lane)

    def first(self, priority: int) -> Lane:
        """The next lane in turn among those of a priority."""
        ready = self._ready[priority]
        key = next(iter(ready))
        lane = ready.pop(key)
        ready[key] = lane
        return lane

    def take(self, lane: Lane, events_max: int) -> LanePart:
        """Take events from the front of a lane, for the subscriber."""
        first = lane.parts[0]
        part = LanePart(
            first.series, first.start, min(first.stop, first.start + events_max), first.event_bytes
        )
        first.start = part.stop
        if first.start == first.stop:
            lane.parts.popleft()
            self.parts -= 1
        if lane.is_ordered:
            self.occupy(lane, part.series, part.start, part.stop)
        elif not lane.parts:
            self._drop(lane)
        return part

    def given_back(self, series: Series, seq: int, due: float) -> bool:
        """An event came back from the subscriber; returns whether an ordered lane has it, as its first."""
        lane = self._at.pop((series, seq), None)
        if lane is None:
            return False
        lane.out -= 1
        lane.back.append((series, seq))
        if due > lane.due:  # noted at once: the event may end before the whole unit is back
            lane.due = due
            self._count += 1
            heapq.heappush(self._backing_off, (due, self._count, lane))
            self._on_back_off()
        self._look(lane)
        return True

    def end(self, series: Series, start: int, stop: int) -> None:
        """Events that were with the subscriber ended."""
        for seq in range(start, stop) if self._at else ():
            lane = self._at.pop((series, seq), None)
            if lane is not None:
                lane.out -= 1
                self._look(lane)

    def discard(self, series: Series, start: int, stop: int) -> None:
        """Events that wait in a lane ended. Looks at all lanes of their topic: this is rare."""
        for lane in [one for one in self._by_key.values() if one.topic == series[0]]:
            first = lane.parts[0] if lane.parts else None
            if first is not None and first.series == series and start <= first.start < stop:
                lane.due = 0.0  # the other events waited for this one
            lane.back = [at for at in lane.back if not (at[0] == series and start <= at[1] < stop)]
            kept = [piece for part in lane.parts for piece in _without(part, series, start, stop)]
            self.parts += len(kept) - len(lane.parts)
            lane.parts = deque(kept)
            self._look(lane)

    def look_at_all(self) -> None:
        """Topics were paused or resumed."""
        for lane in list(self._by_key.values()):
            self._look(lane)

    def due(self, now: float) -> None:
        """Lanes whose back-off is over continue."""
        while self._backing_off and self._backing_off[0][0] <= now:
            lane = heapq.heappop(self._backing_off)[2]
            if lane.due <= now:
                lane.due = 0.0
                self._look(lane)

    def next_due(self) -> float | None:
        return self._backing_off[0][0] if self._backing_off else None

    def _look(self, lane: Lane) -> None:
        """Decide whether a lane can continue, has to wait, or is empty."""
        if lane.back and lane.out == 0:
            self._put_back(lane)
        if not lane.parts and not lane.back and lane.out == 0:
            self._drop(lane)
        elif not lane.parts or lane.out or lane.due or self._is_paused(lane.topic):
            self._unready(lane)
        else:
            self._ready.setdefault(lane.priority, {})[lane.key] = lane

    def _put_back(self, lane: Lane) -> None:
        for series, seq in sorted(lane.back, key=lambda at: at[1], reverse=True):
            first = lane.parts[0] if lane.parts else None
            if first is not None and first.series == series and first.start == seq + 1:
                first.start = seq
            else:
                lane.parts.appendleft(LanePart(series, seq, seq + 1, 0.0))
                self.parts += 1
        lane.back = []

    def _unready(self, lane: Lane) -> None:
        ready = self._ready.get(lane.priority)
        if ready is not None and ready.pop(lane.key, None) is not None and not ready:
            del self._ready[lane.priority]

    def _drop(self, lane: Lane) -> None:
        self._unready(lane)
        if self._by_key.get(lane.key) is lane:
            del self._by_key[lane.key]


def _without(part: LanePart, series: Series, start: int, stop: int) -> Iterator[LanePart]:
    """A part without `[start, stop)`: none, one or two pieces."""
    if part.series != series or stop <= part.start or part.stop <= start:
        yield part
        return
    if part.start < start:
        yield LanePart(series, part.start, start, part.event_bytes)
    if stop < part.stop:
        yield LanePart(series, stop, part.stop, part.event_bytes)
