"""One subscriber's queue: a cursor over the journal and the exceptions to it. Never a copy of events.

A queue owns all its transitions. Other parts of the dispatcher call the methods under "transitions", each of which
names what happened; they read the parts, and never write a field of one.

part        file               owns
cursor      cursor.py          the place in the journal, and which events it leaves out
unsettled   unsettled.py       events that were passed and have not ended; `in_flight`; the floor
attempts    attempt_counts.py  how often events that came back were tried
retries     retry_schedule.py  when they are delivered again
credit      credit.py          how many bytes the subscriber takes
lanes       lanes.py           events that wait beside the cursor: paused, ordered, or of another priority
leases      leases.py          how long the subscriber may hold events, and how many
isolation   isolation.py       after a crash: how many events the subscriber may hold, until the suspects have ended
shares      priorities.py      what each priority has had
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import ClassVar, Protocol

from reknit.attempts import Attempt, AttemptCount
from reknit.batch import Head
from reknit.entries import Run
from reknit.ledger import Series
from reknit.protocol.machine import Peer
from reknit.protocol.queues.attempt_counts import AttemptCounts, AttemptPiece
from reknit.protocol.queues.credit import SubscriberCredit
from reknit.protocol.queues.cursor import Cursor, EndedBefore
from reknit.protocol.queues.isolation import Isolation
from reknit.protocol.queues.lanes import Lane, LanePart, Lanes
from reknit.protocol.queues.leases import Leases
from reknit.protocol.queues.priorities import PriorityShares
from reknit.protocol.queues.retry_schedule import RetrySchedule
from reknit.protocol.queues.unsettled import Unsettled
from reknit.queue_order import QueueOrder
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern

NO_LIMIT = 1 << 62
QueueKey = tuple[Peer, int]
"""A subscription: its peer, and its number there."""
PassedBatch = tuple[int, Series, int, int, float]
"""A batch that goes to the subscriber: its position, its series, its first seq, the one after its last, and the bytes
of each of its events."""


class Recipient(Protocol):
    """Whose outcomes are confirmed: a queue with one subscriber, or a member of a queue."""

    @property
    def key(self) -> tuple[Peer, int]: ...

    @property
    def peer(self) -> Peer: ...

    @property
    def sub(self) -> int: ...

    @property
    def settled_number(self) -> int: ...


class Queue:
    """A subscriber's queue. `name` is empty unless the subscriber is durable."""

    __slots__ = (
        "attempts", "credit", "cursor", "is_cache", "isolation", "lanes", "leases", "name", "pattern", "peer",
        "retries", "settled_number", "shares", "sub", "unsettled",
    )  # fmt: skip

    is_shared: ClassVar[bool] = False
    """Whether it has members, which share its events: see shared_queue.py."""

    def __init__(
        self,
        peer: Peer,
        sub: int,
        name: str,
        pattern: Pattern,
        position: int,
        credit: int,
        floor: int = 0,
        after: Mapping[bytes, int] | None = None,
        lanes: Lanes | None = None,
        leases: Leases | None = None,
        in_flight_bytes_max: float = inf,
        is_cache: bool = False,
        isolation: Isolation | None = None,
    ) -> None:
        self.peer = peer
        self.sub = sub
        self.name = name
        self.pattern = pattern
        self.is_cache = is_cache
        """Whether another node stores the events: it takes each source in seq order."""
        self.cursor = Cursor(position, after)
        self.unsettled = Unsettled(floor, in_flight_bytes_max)
        self.attempts = AttemptCounts()
        self.retries = RetrySchedule()
        self.credit = SubscriberCredit(credit)
        self.lanes = Lanes() if lanes is None else lanes
        self.leases = leases
        self.isolation = isolation
        self.shares = PriorityShares()
        self.settled_number = 0
        """The number of the last `Settle` that was applied."""

    # -- questions

    @property
    def key(self) -> tuple[Peer, int]:
        return self.peer, self.sub

    @property
    def recipient(self) -> Recipient:
        """The answers go there: to the subscription itself, or to the member that is served."""
        return self

    @property
    def order(self) -> QueueOrder:
        """What it keeps in order, whatever the rules of its topics say; empty if those hold."""
        return ""

    @property
    def is_durable(self) -> bool:
        return bool(self.name)

    @property
    def is_live(self) -> bool:
        return self.cursor.position < 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits here: the cursor is live, and nothing waits beside it or for a retry."""
        return self.is_live and not self.retries and not self.lanes

    @property
    def room(self) -> int:
        """How many bytes the subscriber still takes: within its credit, and before it settles what it has."""
        if (self.leases is not None or self.isolation is not None) and self.events_room == 0:
            return 0
        return int(min(self.credit.room, self.unsettled.room))

    @property
    def events_room(self) -> int:
        """How many events the subscriber still takes: as many as its lease covers, and fewer after a crash."""
        window = NO_LIMIT if self.leases is None else self.leases.window
        if self.isolation is not None:
            window = min(window, self.isolation.window)
        return max(window - self.unsettled.in_flight, 0)

    @property
    def used(self) -> int:
        """The bytes that were delivered within credit."""
        return self.credit.used

    @property
    def has_room(self) -> bool:
        """Whether anybody takes more."""
        return self.room > 0

    def is_plain(self, position: int) -> bool:
        """Whether every batch from `position` on goes to the subscriber unchanged, as long as there is room.

        None of its events has ended or been passed already, it takes any number of them, and none waits beside the
        cursor.
        """
        return (
            self.leases is None
            and self.isolation is None
            and not self.is_shared
            and self.cursor.is_fresh(position)
            and not self.lanes
        )

    def next_turn(self) -> bool:
        """Whether the subscriber takes more. Of several members, the next one is served."""
        return self.room > 0

    def turns(self, count: int) -> Iterator[int]:
        """Deliver `count` events: yields how many go to whom is served, here as many as there is room for."""
        if room := min(count, self.events_room):
            yield room

    def next_holder(self, lane: Lane) -> None:
        """An ordered lane goes on: serve the member that had it last, if it has room."""

    def backlog_at(self, position: int) -> Run | None:
        """Scanned events from this position on that are not delivered yet; a single subscriber leaves none."""
        return None

    def keep_backlog(self, run: Run) -> None:
        """The journal was scanned."""

    def held_within(self, series: Series, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that are with the subscriber that is served."""
        return self.unsettled.in_flight_within(series, start, stop)

    def by_holder(self, series: Series, start: int, stop: int) -> Iterator[Range]:
        """`[start, stop)` in parts, each with one subscriber, which is served."""
        yield start, stop

    def wanted(self, position: int, head: Head) -> list[Range]:
        """Which events of a batch are to be delivered: those that are not skipped, ended or open."""
        wanted = self.cursor.wanted(position, head)
        if wanted and self.cursor.may_repeat(position):
            series = (head.topic, head.source)
            wanted = [part for one in wanted for part in self.unsettled.not_open_within(series, *one)]
        return wanted

    def wants_all(self, position: int, head: Head) -> bool:
        """Whether a batch is to be delivered as a whole."""
        return self.wanted(position, head) == [(head.first, head.stop)]

    def can_settle(self, series: Series, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that the subscriber can end: those it has, and those it lost with its lease."""
        unsettled = self.unsettled
        found = self.held_within(series, start, stop)
        if series not in self.attempts or not unsettled.is_waiting(series):
            return found
        for low, high in unsettled.waiting_within(series, start, stop):
            found += self.attempts.tried_within(series, low, high)
        return sorted(found)

    def in_hand(self, published: Mapping[Series, SeqSet]) -> dict[Series, SeqSet]:
        """Every event that this queue knows of and that has not ended: open, or still before the cursor."""
        return {
            series: self.in_hand_of(series, seqs)
            for series, seqs in published.items()
            if self.pattern.matches(series[0])
        }

    def in_hand_of(self, series: Series, published: SeqSet) -> SeqSet:
        """The same for one series."""
        backlog = published.copy()
        backlog.discard(0, self.cursor.passed_to(series))
        return backlog.union(self.unsettled.open_of(series))

    # -- transitions: what the cursor passes

    def deliver(self, position: int, series: Series, start: int, stop: int, event_bytes: float = 0.0) -> None:
        """Events `[start, stop)` of the batch at `position` go to the subscriber."""
        self.unsettled.deliver(position, series, start, stop, event_bytes)
        self.cursor.pass_to(series, stop)

    def deliver_all(self, batches: Iterable[PassedBatch], size: int) -> None:
        """These batches go to the subscriber, as `size` bytes."""
        deliver, pass_to = self.unsettled.deliver, self.cursor.pass_to
        for batch in batches:
            deliver(*batch)
            pass_to(batch[1], batch[3])
        self.credit.use(size)

    def set_aside(
        self, position: int, series: Series, start: int, stop: int, event_bytes: float = 0.0
    ) -> None:
        """Events `[start, stop)` of the batch at `position` wait for their turn."""
        self.unsettled.set_aside(position, series, start, stop, event_bytes)
        self.cursor.pass_to(series, stop)

    def set_aside_early(
        self, position: int, series: Series, start: int, stop: int, event_bytes: float = 0.0
    ) -> None:
        """The same for a batch that the cursor has not reached yet."""
        self.unsettled.set_aside(position, series, start, stop, event_bytes, is_early=True)
        self.cursor.pass_early(series, start, stop)

    def pass_batch(self, series: Series, stop: int) -> None:
        """The cursor has passed a batch that ends before `stop`."""
        self.cursor.reach(series, stop)
        if self.unsettled.has_early:
            stop = max(stop, self.cursor.passed_to(series))
        self.cursor.pass_to(series, stop)

    # -- transitions: what waits

    def take_from_lane(self, lane: Lane, events_max: int) -> LanePart:
        """The events at the head of a lane go to the subscriber."""
        part = self.lanes.take(lane, events_max)
        self.unsettled.redeliver(part.series, part.start, part.stop)
        return part

    def retry_at(self, series: Series, start: int, stop: int, due: float) -> None:
        """Waiting events are delivered again at `due`."""
        self.retries.add(series, start, stop, due)

    def redeliver(self, series: Series, start: int, stop: int) -> None:
        """Waiting events go to the subscriber again."""
        self.unsettled.redeliver(series, start, stop)

    # -- transitions: what the subscriber says

    def count_attempt(self, series: Series, start: int, stop: int, attempt: Attempt) -> None:
        """An attempt at `[start, stop)` did not end these events."""
        self.attempts.count(series, start, stop, attempt)

    def give_back(self, series: Series, start: int, stop: int, due: float) -> None:
        """Events that were with the subscriber are tried again at `due`, in their lane if they are ordered."""
        self.unsettled.give_back(series, start, stop)
        if not self.lanes:
            self.retries.add(series, start, stop, due)
            return
        for seq in range(start, stop):
            if not self.lanes.given_back(series, seq, due):
                self.retries.add(series, seq, seq + 1, due)

    def give_back_ahead(self, series: Series, start: int, stop: int) -> None:
        """The same for ordered events of an earlier connection that the cursor has not reached: it brings them."""
        self.unsettled.give_back(series, start, stop)

    def end(self, series: Series, start: int, stop: int) -> list[Range]:
        """Events end. Returns the ranges that were open: only passed events can end, and only once."""
        self._clear(series, start, stop)
        has_lanes = bool(self.lanes)
        waiting = self.unsettled.waiting_within(series, start, stop) if has_lanes else []
        ranges = self.unsettled.end(series, start, stop)
        for low, high in waiting:
            self.lanes.discard(series, low, high)
        for low, high in ranges:
            if self.cursor.is_resuming:
                self.cursor.skip(series, low, high)
            if has_lanes:
                self.lanes.end(series, low, high)
            self.attempts.forget(series, low, high)
        return ranges

    def end_ahead(self, series: Series, start: int, stop: int, end: int) -> list[AttemptPiece]:
        """Events that the cursor has not reached end. Returns those that had not ended, with the attempts at them.

        `end` is the journal's end.
        """
        passed = self.cursor.passed_to(series)
        ahead = [
            (max(low, passed), high)
            for bounds in self.unsettled.not_open_within(series, start, stop)
            for low, high in self.cursor.not_skipped(series, *bounds)
            if passed < high
        ]
        self._clear(series, start, stop)
        pieces: list[AttemptPiece] = []
        for low, high in ahead:
            self.cursor.skip(series, low, high)
            pieces += self.attempts.pieces(series, low, high, operator.eq)
            self.attempts.forget(series, low, high)
        if ahead:
            self.cursor.resume(end)
        return pieces

    def _clear(self, series: Series, start: int, stop: int) -> None:
        """Suspects ended: once all have, there is no isolation any more."""
        if self.isolation is not None and self.isolation.end(series, start, stop):
            self.isolation = None

    def expire(self, series: Series, start: int, stop: int) -> None:
        """The ttl of these ran out: those that are with the subscriber are not tried again."""
        self.unsettled.expire(series, start, stop)

    def settle_numbered(self, number: int) -> bool:
        """A `Settle` with this number came; returns whether it is new."""
        if number <= self.settled_number:
            return False
        self.settled_number = number
        return True

    def lease_lost(self, now: float) -> None:
        """Events were held for too long, and the subscriber may still process them."""
        assert self.leases is not None
        self.leases.lost(now)
        self.unsettled.stray()

    # -- transitions: connections and the journal

    def resume(
        self,
        end: int,
        ended: EndedBefore | None = None,
        counts: Mapping[Series, Mapping[int, AttemptCount]] | None = None,
    ) -> None:
        """The subscriber was here before: it gets what had not ended up to the journal's end, with its attempts."""
        self.cursor.resume(end, ended)
        if counts is not None:
            self.attempts.resume(counts)

    def hold(self, series: Series, start: int, stop: int) -> None:
        """The subscriber still has `[start, stop)` from an earlier connection: it is open, and not sent again."""
        open_parts = self.cursor.not_skipped(series, start, stop)
        for low, high in open_parts:
            self.unsettled.resume(series, low, high)
        if open_parts != [(start, stop)]:
            self.unsettled.stray()

    def lose(self, series: Series, start: int, stop: int) -> list[Range]:
        """Events are lost, also those that are with the subscriber; returns those that were open."""
        if self.unsettled.in_flight_within(series, start, stop):
            self.unsettled.stray()
        return self.end(series, start, stop)

    def move_floor(self, end: int) -> int:
        """Everything before the floor has ended. `end` is the journal's durable end."""
        return self.unsettled.move_floor(end if self.is_live else self.cursor.position)
