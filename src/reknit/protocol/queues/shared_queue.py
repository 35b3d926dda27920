"""A queue whose members share its events: one cursor, one set of outcomes, retries and lanes, many subscriptions.

Before events are delivered, a member's turn begins: it is the queue's peer, with its credit, until the next turn. So
everything that delivers to a subscriber delivers to a member. A turn of many events is shared as if each event had
chosen the member that holds the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from reknit.entries import Run
from reknit.ledger import Series
from reknit.protocol.anycast.sharing import shares
from reknit.protocol.machine import Peer
from reknit.protocol.queues.isolation import Isolation
from reknit.protocol.queues.lanes import Lane, LanePart, Lanes
from reknit.protocol.queues.leases import Leases
from reknit.protocol.queues.members import Member
from reknit.protocol.queues.queue import NO_LIMIT, Queue
from reknit.queue_order import QueueOrder
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern

TURN_EVENTS = 16
"""How many events that wait beside the cursor a member gets before the next member's turn."""


def key_of(name: str) -> tuple[Peer, int]:
    """The key of a queue with members, by the name of its account."""
    return ("queue", name), 0


class SharedQueue(Queue):
    """A queue with members. `now` is the dispatcher's time."""

    __slots__ = ("_now", "_order", "_quota", "_scanned", "_turn", "member", "members")

    is_shared = True

    def __init__(
        self,
        name: str,
        pattern: Pattern,
        position: int,
        floor: int,
        first: Member,
        now: Callable[[], float],
        lanes: Lanes | None = None,
        leases: Leases | None = None,
        isolation: Isolation | None = None,
        order: QueueOrder = "",
    ) -> None:
        super().__init__(
            first.peer,
            first.sub,
            name,
            pattern,
            position,
            0,
            floor,
            lanes=lanes,
            leases=leases,
            isolation=isolation,
        )
        self.members: dict[tuple[Peer, int], Member] = {first.key: first}
        self._scanned: Run | None = None
        """The last scan of the journal: members take a few events at a time from it."""
        self._now = now
        self._order = order
        self._quota = NO_LIMIT
        """How many events the member may still get in its turn."""
        self._turn = 0
        self._serve(first)

    # -- members

    @property
    def key(self) -> tuple[Peer, int]:
        """Of the queue itself, which outlasts its members."""
        return key_of(self.name)

    @property
    def order(self) -> QueueOrder:
        return self._order

    @property
    def recipient(self) -> Member:
        return self.member

    def join(self, member: Member) -> None:
        """A subscription becomes a member, and is served."""
        self.members[member.key] = member
        self._serve(member)

    def leave(self, key: tuple[Peer, int]) -> None:
        """A member that holds nothing any more leaves; another one is served, if there is one."""
        gone = self.members.pop(key)
        assert not gone.events, "what a member held was given back"
        if self.members:
            self._serve(next(iter(self.members.values())))

    def serve(self, key: tuple[Peer, int]) -> None:
        """Serve this member next."""
        self._serve(self.members[key])

    def _serve(self, member: Member, quota: int = NO_LIMIT) -> None:
        self.member = member
        self.peer, self.sub, self.credit = member.peer, member.sub, member.credit
        self.settled_number = member.settled_number
        self._quota = quota

    def isolate(self, suspects: Mapping[Series, SeqSet], window: int) -> None:
        """A member may have died of one of these events: every member gets few at a time until they have ended."""
        if self.isolation is None:
            self.isolation = Isolation(suspects, window)
        else:
            self.isolation.add(suspects, window)

    # -- turns

    def _room(self, member: Member) -> int:
        """How many events a member still takes; fewer while there are suspects."""
        room = member.events_room
        return room if self.isolation is None else max(min(room, self.isolation.window - member.events), 0)

    @property
    def used(self) -> int:
        return sum(member.credit.used for member in self.members.values())

    @property
    def has_room(self) -> bool:
        return any(map(self._room, self.members.values()))

    @property
    def room(self) -> int:
        return self.member.bytes_room if self.events_room else 0

    @property
    def events_room(self) -> int:
        return min(self._room(self.member), self._quota)

    def next_turn(self) -> bool:
        """Serve the member that holds the fewest events, of those with room; False if none has room."""
        able = [member for member in self.members.values() if self._room(member)]
        if not able:
            return False
        self._serve(min(able, key=lambda member: (member.events, member.turn)), TURN_EVENTS)
        return True

    def turns(self, count: int) -> Iterator[int]:
        """Share `count` events: serve one member after another; yields how many events each of them gets."""
        able = [member for member in self.members.values() if self._room(member)]
        if not able:
            return
        able.sort(key=lambda member: member.turn)
        rooms = [self._room(member) for member in able]
        for member, portion in zip(able, shares([one.events for one in able], rooms, count), strict=True):
            if portion:
                self._serve(member, portion)
                yield portion

    def next_holder(self, lane: Lane) -> None:
        member = self.members.get(lane.holder)  # type: ignore[call-overload]
        if member is not None and self._room(member):
            self._serve(member, TURN_EVENTS)

    def backlog_at(self, position: int) -> Run | None:
        run = self._scanned
        return run if run is not None and run.position <= position < run.next_position else None

    def keep_backlog(self, run: Run) -> None:
        self._scanned = run

    # -- who holds what

    def held_within(self, series: Series, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that the served member holds."""
        return self.member.held.within(series, start, stop)

    def by_holder(self, series: Series, start: int, stop: int) -> Iterator[Range]:
        """Serve each member that holds a part of `[start, stop)`; yields the parts."""
        for member in list(self.members.values()):
            for bounds in member.held.within(series, start, stop):
                self._serve(member)
                yield bounds

    def _take(self, series: Series, start: int, stop: int, size: float) -> None:
        self._quota -= stop - start
        self._turn += 1
        self.member.turn = self._turn
        self.member.take(series, start, stop, size, self._now())

    def _drop(self, series: Series, start: int, stop: int) -> None:
        """Events are with nobody any more. Most often the served member held all of them."""
        rest = stop - start
        for member in (self.member, *self.members.values()):
            rest -= member.drop(
                series, start, stop, lambda bounds: self.unsettled.size(series, *bounds), self._now()
            )
            if rest <= 0:
                return

    # -- transitions

    def deliver(self, position: int, series: Series, start: int, stop: int, event_bytes: float = 0.0) -> None:
        super().deliver(position, series, start, stop, event_bytes)
        self._take(series, start, stop, event_bytes * (stop - start))

    def redeliver(self, series: Series, start: int, stop: int) -> None:
        super().redeliver(series, start, stop)
        self._take(series, start, stop, self.unsettled.size(series, start, stop))

    def take_from_lane(self, lane: Lane, events_max: int) -> LanePart:
        part = super().take_from_lane(lane, events_max)
        lane.holder = self.member.key
        self._take(
            part.series, part.start, part.stop, self.unsettled.size(part.series, part.start, part.stop)
        )
        return part

    def give_back(self, series: Series, start: int, stop: int, due: float) -> None:
        self._drop(series, start, stop)
        super().give_back(series, start, stop, due)

    def give_back_ahead(self, series: Series, start: int, stop: int) -> None:
        self._drop(series, start, stop)
        super().give_back_ahead(series, start, stop)

    def end(self, series: Series, start: int, stop: int) -> list[Range]:
        self._drop(series, start, stop)
        return super().end(series, start, stop)

    def settle_numbered(self, number: int) -> bool:
        if not super().settle_numbered(number):
            return False
        self.member.settled_number = number
        self.member.is_suspect = False
        return True

    def lease_lost(self, now: float) -> None:
        super().lease_lost(now)
        self.member.is_suspect = self.member.has_strays = True

    def lose(self, series: Series, start: int, stop: int) -> list[Range]:
        for member in self.members.values():
            member.has_strays = member.has_strays or bool(member.held.within(series, start, stop))
        return super().lose(series, start, stop)

    # -- windows

    @property
    def is_starved(self) -> bool:
        """Whether events wait, and every member has as many as its window allows."""
        return not self.is_idle and not self.has_room

    def next_growth(self) -> float | None:
        """When a member that settles nothing gets more events; None while none wait."""
        if not self.is_starved:
            return None
        return min((one.window.patient_until for one in self._full()), default=None)

    def grow(self) -> None:
        """Events have waited for long: full members that settle nothing get more."""
        for member in self._full() if self.is_starved else []:
            member.window.grow(self._now())

    def _full(self) -> list[Member]:
        """The members whose window is what holds them up. One that lost a lease gets no more."""
        return [
            one for one in self.members.values() if one.is_full and one.bytes_room > 0 and not one.is_suspect
        ]
