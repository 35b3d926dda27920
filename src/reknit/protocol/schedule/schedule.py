"""Which scheduled events wait, when each is due, and which may be cancelled.

The machine knows identities and times, no payloads. Its driver records in the journal what was published or cancelled.

input             effect
ScheduleEvents    none; RefuseEvents beyond the limit
CancelEvents      EventsCancelled
EventsMoved       none: they wait under another identity
PutBack           none: the events could not be written, and wait until a later time
tick              PublishDue, a part at a time
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple, assert_never

import msgspec

from reknit.protocol.machine import Machine, Peer
from reknit.topic import Pattern, target_of

EVENTS_MAX: Final = 1_000
"""How many events one effect publishes: others have their turn between two of them."""
LOOK_S: Final = 10.0
"""The clock of the day may be set: it is looked at this often while events wait."""

EventId = tuple[bytes, int]


class Scheduled(NamedTuple):
    """A scheduled event: where it is stored, and when it is due."""

    due_us: int
    order: int
    """Events that are due at the same time keep the order in which they were stored."""
    topic: str
    """The topic that it is stored on."""
    source: bytes
    seq: int
    position: int
    """Its place in the journal."""
    first_id: str = ""
    """The id under which it was scheduled, if it was stored again since."""

    @property
    def id(self) -> str:
        """The id under which it was scheduled.

        >>> Scheduled(5, 1, "reknit/scheduled/a", b"s", 7, 1).id
        '73:7'
        """
        return self.first_id or f"{self.source.hex()}:{self.seq}"


class ScheduleEvents(msgspec.Struct, frozen=True):
    """Events from `first` on are stored, each with its time; `ids` are their first ids, if they had others."""

    topic: str
    source: bytes
    first: int
    position: int
    due_us: Sequence[int]
    ids: Sequence[str] = ()


class EventsMoved(msgspec.Struct, frozen=True):
    """Events of one series were stored again, as events from `first` on of another source."""

    events: Sequence[Scheduled]
    source: bytes
    first: int
    position: int


class CancelEvents(msgspec.Struct, frozen=True):
    """Cancel the events for topics that match: all, or those with these ids."""

    pattern: Pattern
    ids: frozenset[str] | None = None


class PutBack(msgspec.Struct, frozen=True):
    """These could not be published now."""

    events: Sequence[Scheduled]


class PublishDue(msgspec.Struct, frozen=True):
    """These are due, in the order of their times."""

    events: Sequence[Scheduled]


class EventsCancelled(msgspec.Struct, frozen=True):
    """These are not published any more."""

    events: Sequence[Scheduled]


class RefuseEvents(msgspec.Struct, frozen=True):
    """There is no room for these."""

    events: Sequence[Scheduled]


Input = ScheduleEvents | CancelEvents | EventsMoved | PutBack
Effect = PublishDue | EventsCancelled | RefuseEvents


class Schedule(Machine[Input, Effect]):
    """The events that wait for their time.

    >>> schedule = Schedule(zero_us=0)
    >>> schedule.receive(ScheduleEvents("reknit/scheduled/alarm", b"s", 1, 0, [2_000_000]), "journal", 0.0)
    >>> schedule.next_deadline()
    2.0
    >>> schedule.tick(2.0)
    >>> [[one.id for one in effect.events] for effect in schedule.take_effects()]
    [['73:1']]
    """

    def __init__(self, zero_us: int, events_max: int = 0) -> None:
        self._zero_us = zero_us
        self._events_max = events_max
        self._heap: list[Scheduled] = []
        self._by_position: list[tuple[int, Scheduled]] = []
        """Heaps: they may have events that do not wait any more."""
        self._waiting: dict[EventId, Scheduled] = {}
        self._count = 0
        self._looked_at = 0.0
        self.effects: list[Effect] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def set_clock(self, zero_us: int) -> None:
        """The time of day at `now` 0."""
        self._zero_us = zero_us

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """Events were stored, an operator or their publisher cancels some, or the journal was full."""
        match message:
            case ScheduleEvents():
                self._add(message)
            case CancelEvents(pattern=pattern, ids=ids):
                found = [one for one in self.matching(pattern) if ids is None or one.id in ids]
                for one in found:
                    del self._waiting[one.source, one.seq]
                self.effects.append(EventsCancelled(found))
            case EventsMoved(events=events, source=source, first=first, position=position):
                for seq, one in enumerate(events, first):
                    del self._waiting[one.source, one.seq]
                    self._wait(one._replace(source=source, seq=seq, position=position, first_id=one.id))
            case PutBack(events=events):
                for one in events:
                    self._wait(one._replace())  # another object: the heap of positions still has the old one
            case _:
                assert_never(message)
        self._forget_stale()

    def _add(self, message: ScheduleEvents) -> None:
        refused: list[Scheduled] = []
        for seq, due_us in enumerate(message.due_us, message.first):
            self._count += 1
            first_id = message.ids[seq - message.first] if message.ids else ""
            one = Scheduled(
                due_us, self._count, message.topic, message.source, seq, message.position, first_id
            )
            if self._events_max and len(self._waiting) >= self._events_max:
                refused.append(one)
            else:
                self._wait(one)
        if refused:
            self.effects.append(RefuseEvents(refused))

    def _wait(self, one: Scheduled) -> None:
        self._waiting[one.source, one.seq] = one
        heappush(self._heap, one)
        heappush(self._by_position, (one.position, one))

    def _is_waiting(self, one: Scheduled) -> bool:
        return self._waiting.get((one.source, one.seq)) is one

    def _forget_stale(self) -> None:
        """Events that were cancelled or moved would stay in the heaps until they are due."""
        limit = 2 * len(self._waiting) + EVENTS_MAX
        if len(self._heap) > limit or len(self._by_position) > limit:
            self._heap = list(self._waiting.values())
            self._by_position = [(one.position, one) for one in self._heap]
            heapify(self._heap)
            heapify(self._by_position)

    def tick(self, now: float) -> None:
        """Events whose time has come are published."""
        self._looked_at = now
        now_us = self._zero_us + round(now * 1e6)
        due: list[Scheduled] = []
        while self._heap and self._heap[0].due_us <= now_us and len(due) < EVENTS_MAX:
            one = heappop(self._heap)
            if self._is_waiting(one):
                del self._waiting[one.source, one.seq]
                due.append(one)
        if due:
            self.effects.append(PublishDue(due))
            self._forget_stale()

    def next_deadline(self) -> float | None:
        """When the next event is due, or the clock should be looked at again."""
        while self._heap and not self._is_waiting(self._heap[0]):
            heappop(self._heap)
        if not self._heap:
            return None
        return min((self._heap[0].due_us - self._zero_us) / 1e6, self._looked_at + LOOK_S)

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self.effects = self.effects, []
        return effects

    # -- looked at

    def first_position(self) -> int | None:
        """Every event that waits is at this position of the journal or behind it."""
        while self._by_position and not self._is_waiting(self._by_position[0][1]):
            heappop(self._by_position)
        return self._by_position[0][0] if self._by_position else None

    def before(self, position: int, limit: int) -> list[Scheduled]:
        """The first events in the journal before a position."""
        found: list[Scheduled] = []
        while len(found) < limit and (first := self.first_position()) is not None and first < position:
            found.append(heappop(self._by_position)[1])
        for one in found:
            heappush(self._by_position, (one.position, one))
        return found

    def matching(self, pattern: Pattern) -> Iterator[Scheduled]:
        """The events for topics that match, in no order."""
        return (one for one in self._waiting.values() if pattern.matches(target_of(one.topic)))

    def page(self, pattern: Pattern, after: tuple[int, int], limit: int) -> list[Scheduled]:
        """The next events for topics that match behind a time and an order, in the order of their times."""
        later = sorted(one for one in self.matching(pattern) if one[:2] > after)
        return list(islice(later, limit))
