"""One subscriber's queue: a cursor over the journal, and the exceptions to it. Never a copy of events.

What the cursor has passed and has not ended is `open`, as ranges: with the subscriber, or `waiting` here for its next
attempt or its turn. `flight` remembers in which order it was passed, so that the `floor` (everything before it has
ended) moves with constant work per batch.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from reknit.attempts import Tally
from reknit.batch import Head
from reknit.ledger import Stream, seqs_within
from reknit.protocol.dispatch.lanes import Lanes
from reknit.protocol.dispatch.leases import Leases
from reknit.protocol.dispatch.priorities import Shares
from reknit.protocol.machine import Peer
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern

Flight = deque[tuple[int, Stream, int, int]]


def as_often(one: Tally, other: Tally) -> bool:
    """Whether two events were tried equally often."""
    return (one.acquired, one.failed) == (other.acquired, other.failed)


class Again(msgspec.Struct, frozen=True, order=True):
    """Events to hand out once more, when they are due."""

    due: float
    order: int
    topic: str
    source: bytes
    start: int
    stop: int


@dataclass(slots=True, eq=False)
class Queue:
    """A subscriber's place in the journal. `cursor` is the next position to look at; -1 means live: at the end."""

    peer: Peer
    sub: int
    name: str
    pattern: Pattern
    cursor: int
    credit: int
    sent: int = 0
    scanning: bool = False
    is_blocked: bool = False
    after: dict[bytes, int] = field(default_factory=dict)
    """Seqs up to which a source is skipped: where the subscriber's checkpoint was."""
    resumed_to: int = 0
    """Before this position some events may have ended or be in the subscriber's hands already."""
    ended: dict[Stream, SeqSet] = field(default_factory=dict)
    open: dict[Stream, SeqSet] = field(default_factory=dict)
    waiting: dict[Stream, SeqSet] = field(default_factory=dict)
    """Of the open ones those that are not with the subscriber."""
    in_flight: int = 0
    """How many events are with the subscriber."""
    passed: dict[Stream, int] = field(default_factory=dict)
    """The seq before which the cursor has seen everything of a stream."""
    flight: Flight = field(default_factory=deque)
    early: Flight = field(default_factory=deque)
    """The same for events that went before the cursor came to them."""
    early_seqs: dict[Stream, SeqSet] = field(default_factory=dict)
    part: tuple[int, int] = (-1, 0)
    """The position of a batch that was handed out in part, and the seq up to which."""
    again: list[Again] = field(default_factory=list)
    tallies: dict[Stream, dict[int, Tally]] = field(default_factory=dict)
    """The attempts at events that came back; only events that did are in here."""
    overdue: dict[Stream, SeqSet] = field(default_factory=dict)
    """Events whose ttl ran out while they were with the subscriber."""
    lanes: Lanes = field(default_factory=Lanes)
    leases: Leases | None = None
    shares: Shares = field(default_factory=Shares)
    cursor_priority: int = 1
    """Of the batch that the cursor is at."""
    is_cursors_turn: bool = False
    floor: int = 0
    settled: int = 0
    """The number of the last `Settle` that was carried out."""
    _order: int = 0

    @property
    def is_live(self) -> bool:
        return self.cursor < 0

    @property
    def is_durable(self) -> bool:
        return bool(self.name)

    @property
    def room(self) -> int:
        """How many bytes the subscriber still takes."""
        if self.is_blocked or (self.leases is not None and self.in_flight >= self.leases.window):
            return 0
        return self.credit - self.sent

    @property
    def events_room(self) -> int:
        """How many events the subscriber still takes: as many as its lease covers."""
        return 1 << 62 if self.leases is None else max(self.leases.window - self.in_flight, 0)

    @property
    def open_count(self) -> int:
        return sum(seqs.count for seqs in self.open.values())

    def hand_out(self, position: int, head: Head) -> None:
        """A whole batch goes to the subscriber."""
        self.hand_out_range(position, (head.topic, head.source), head.first, head.stop)

    def hand_out_range(self, position: int, stream: Stream, start: int, stop: int) -> None:
        """Events `[start, stop)` of the batch at `position` go to the subscriber, or are with it already."""
        self._pass(position, stream, start, stop, self.flight)
        self.in_flight += stop - start

    def set_aside(self, position: int, stream: Stream, start: int, stop: int, early: bool = False) -> None:
        """Events `[start, stop)` of the batch at `position` wait for their turn, here."""
        self._pass(position, stream, start, stop, self.early if early else self.flight)
        if early:
            self.early_seqs.setdefault(stream, SeqSet()).add(start, stop)
        self.wait(stream, start, stop)

    def _pass(self, position: int, stream: Stream, start: int, stop: int, flight: Flight) -> None:
        seqs = self.open.get(stream)
        if seqs is None:
            seqs = self.open[stream] = SeqSet()
        seqs.add(start, stop)
        self.passed[stream] = stop
        flight.append((position, stream, start, stop))

    def wait(self, stream: Stream, start: int, stop: int) -> None:
        """Open events are not with the subscriber."""
        self.waiting.setdefault(stream, SeqSet()).add(start, stop)

    def wait_no_more(self, stream: Stream, start: int, stop: int) -> None:
        seqs = self.waiting.get(stream)
        if seqs is not None:
            seqs.discard(start, stop)
            if not seqs:
                del self.waiting[stream]

    def hold(self, stream: Stream, start: int, stop: int) -> None:
        """The subscriber kept `[start, stop)` in hand across a reconnection: it is open, and not sent again."""
        ended = self.ended.get(stream)
        for low, high in ended.missing(start, stop) if ended else [(start, stop)]:
            seqs = self.open.setdefault(stream, SeqSet())
            self.in_flight += sum(b - a for a, b in seqs.missing(low, high))
            seqs.add(low, high)
            self.flight.append((self.floor, stream, low, high))

    def wanted(self, position: int, head: Head) -> list[Range]:
        """Which of a batch's events are still to be handed out: those not skipped, ended or in hand."""
        stream = (head.topic, head.source)
        start = max(head.first, self.after.get(head.source, 0) + 1)
        if position == self.part[0]:
            start = max(start, self.part[1])
        if start >= head.stop:
            return []
        if position >= self.resumed_to:
            return [(start, head.stop)]
        wanted = [(start, head.stop)]
        for seqs in (self.ended.get(stream), self.open.get(stream)):
            if seqs is not None:
                wanted = [part for low, high in wanted for part in seqs.missing(low, high)]
        return wanted

    def wants_all(self, position: int, head: Head) -> bool:
        """Whether a batch is to be handed out as a whole."""
        return self.wanted(position, head) == [(head.first, head.stop)]

    def at_hand(self, stream: Stream, start: int, stop: int, is_final: bool = False) -> list[Range]:
        """What of `[start, stop)` the subscriber can speak about: what it has, or had and lost with its lease."""
        seqs, waiting = self.open.get(stream), self.waiting.get(stream)
        ranges = seqs.overlap(start, stop) if seqs is not None else []
        if not waiting or not ranges:
            return ranges
        had = self.tallies.get(stream, {}) if is_final else {}
        found: list[Range] = []
        for low, high in ranges:
            found += waiting.missing(low, high)
            for begin, end in waiting.overlap(low, high) if had else ():
                found += [(seq, seq + 1) for seq in seqs_within(had, begin, end)]
        return sorted(found)

    def end(self, stream: Stream, start: int, stop: int) -> list[Range]:
        """Events end. Gives those ranges that were open: only what was passed can end, and once."""
        seqs = self.open.get(stream)
        if seqs is None:
            return []
        ranges = seqs.overlap(start, stop)
        is_before = 0 <= self.cursor < self.resumed_to
        for low, high in ranges:
            seqs.discard(low, high)
            self.in_flight -= high - low
            if is_before:  # it may have been in hand from before, and the cursor still comes to it
                self.ended.setdefault(stream, SeqSet()).add(low, high)
        if ranges and stream in self.waiting:
            self._end_waiting(stream, ranges)
        if ranges and self.lanes:
            for low, high in ranges:
                self._end_in_lanes(stream, low, high)
        if stream in self.overdue:
            self.overdue[stream].discard(start, stop)
        if stream in self.tallies:
            self._drop_tallies(stream, start, stop)
        if not seqs:
            del self.open[stream]
        return ranges

    def _end_waiting(self, stream: Stream, ranges: list[Range]) -> None:
        waiting = self.waiting[stream]
        for low, high in [part for bounds in ranges for part in waiting.overlap(*bounds)]:
            self.in_flight += high - low
            if self.lanes:
                self.lanes.discard(stream, low, high)
        for low, high in ranges:
            waiting.discard(low, high)
        if not waiting:
            del self.waiting[stream]

    def _end_in_lanes(self, stream: Stream, start: int, stop: int) -> None:
        for seq in range(start, stop):
            self.lanes.ended(stream, seq)

    def _drop_tallies(self, stream: Stream, start: int, stop: int) -> None:
        tallies = self.tallies[stream]
        for seq in seqs_within(tallies, start, stop):
            del tallies[seq]
        if not tallies:
            del self.tallies[stream]

    def tally(self, stream: Stream, seq: int) -> Tally | None:
        """The attempts at an event; None where there was none or only the present one."""
        tallies = self.tallies.get(stream)
        return None if tallies is None else tallies.get(seq)

    def was_tried(self, stream: Stream, start: int, stop: int) -> bool:
        """Whether any of `[start, stop)` came back from an attempt."""
        return bool(seqs_within(self.tallies.get(stream, {}), start, stop))

    def alike(
        self, stream: Stream, start: int, stop: int, is_like: Callable[[Tally, Tally], bool] = as_often
    ) -> list[tuple[int, int, Tally | None]]:
        """`[start, stop)` in pieces that were tried equally often, or are alike in another way."""
        tallies = self.tallies.get(stream)
        known = sorted(seqs_within(tallies, start, stop)) if tallies else []
        pieces: list[tuple[int, int, Tally | None]] = []
        at = start
        for seq in known:
            assert tallies is not None
            if at < seq:
                pieces.append((at, seq, None))
            tally = tallies[seq]
            last = pieces[-1] if pieces else None
            if last is not None and last[1] == seq and last[2] is not None and is_like(last[2], tally):
                pieces[-1] = (last[0], seq + 1, last[2])
            else:
                pieces.append((seq, seq + 1, tally))
            at = seq + 1
        return pieces if at == stop else [*pieces, (at, stop, None)]

    def move_floor(self, end: int) -> int:
        """Everything before the floor has ended. `end` is the journal's durable end."""
        lowest = end if self.is_live else self.cursor
        for flight in (self.flight, self.early):
            while flight:
                position, stream, start, stop = flight[0]
                seqs = self.open.get(stream)
                if seqs is not None and seqs.overlap(start, stop):
                    lowest = min(lowest, position)
                    break
                flight.popleft()
        self.floor = max(self.floor, lowest)
        return self.floor

    def put_again(self, stream: Stream, start: int, stop: int, due: float) -> None:
        """Hand `[start, stop)` out once more at `due`."""
        self._order += 1
        heapq.heappush(self.again, Again(due, self._order, *stream, start, stop))

    def pop_again(self) -> Again:
        """What is to be handed out once more next."""
        return heapq.heappop(self.again)

    def in_hand(self, published: dict[Stream, SeqSet]) -> dict[Stream, SeqSet]:
        """Every event that this queue knows of and that has not ended: open, or still before the cursor."""
        known: dict[Stream, SeqSet] = {}
        for stream, seqs in published.items():
            if not self.pattern.matches(stream[0]):
                continue
            backlog = seqs.copy()
            backlog.discard(0, self.passed.get(stream, 0))
            known[stream] = backlog.union(self.open.get(stream, SeqSet()))
        return known
