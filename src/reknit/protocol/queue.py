"""One subscriber's queue: a cursor over the journal, and the exceptions to it. Never a copy of events.

What was handed out and has not ended is `open`, as ranges. `flight` remembers in which order it was handed out, so
that the `floor` (everything before it has ended) moves with constant work per batch.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

import msgspec

from reknit.batch import Head
from reknit.ledger import Stream
from reknit.protocol.machine import Peer
from reknit.seqset import Range, SeqSet
from reknit.topic import Pattern


class Again(msgspec.Struct, frozen=True, order=True):
    """Events to hand out once more, when they are due."""

    due: float
    order: int
    topic: str
    source: bytes
    start: int
    stop: int
    attempt: int


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
    passed: dict[Stream, int] = field(default_factory=dict)
    """The seq before which the cursor has seen everything of a stream."""
    flight: deque[tuple[int, Stream, int, int]] = field(default_factory=deque)
    again: list[Again] = field(default_factory=list)
    failures: dict[tuple[Stream, int], int] = field(default_factory=dict)
    """How often an event's hand-over failed; only events that did are in here."""
    floor: int = 0
    settled: int = 0
    """The number of the last `Settle` that was carried out."""
    recorded: int = 0
    """The number of the last record of its outcomes."""
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
        return 0 if self.is_blocked else self.credit - self.sent

    @property
    def open_count(self) -> int:
        return sum(seqs.count for seqs in self.open.values())

    def hand_out(self, position: int, head: Head) -> None:
        """A whole batch goes to the subscriber."""
        self.hand_out_range(position, (head.topic, head.source), head.first, head.stop)

    def hand_out_range(self, position: int, stream: Stream, start: int, stop: int) -> None:
        """Events `[start, stop)` of the batch at `position` go to the subscriber, or are with it already."""
        seqs = self.open.get(stream)
        if seqs is None:
            seqs = self.open[stream] = SeqSet()
        seqs.add(start, stop)
        self.passed[stream] = stop
        self.flight.append((position, stream, start, stop))

    def hold(self, stream: Stream, start: int, stop: int) -> None:
        """The subscriber kept `[start, stop)` in hand across a reconnection: it is open, and not sent again."""
        ended = self.ended.get(stream)
        for low, high in ended.missing(start, stop) if ended else [(start, stop)]:
            self.open.setdefault(stream, SeqSet()).add(low, high)
            self.flight.append((self.floor, stream, low, high))

    def wanted(self, position: int, head: Head) -> list[Range]:
        """Which of a batch's events are still to be handed out: those not skipped, ended or in hand."""
        stream = (head.topic, head.source)
        start = max(head.first, self.after.get(head.source, 0) + 1)
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

    def end(self, stream: Stream, start: int, stop: int) -> list[Range]:
        """Events end. Gives those ranges that were open: only what was handed out can be settled, and once."""
        seqs = self.open.get(stream)
        if seqs is None:
            return []
        ranges = seqs.overlap(start, stop)
        for low, high in ranges:
            seqs.discard(low, high)
        if self.failures and ranges:
            gone = [key for key in self.failures if key[0] == stream and start <= key[1] < stop]
            for key in gone:
                del self.failures[key]
        if not seqs:
            del self.open[stream]
        return ranges

    def move_floor(self, end: int) -> int:
        """Everything before the floor has ended. `end` is the journal's durable end."""
        flight = self.flight
        while flight:
            _, stream, start, stop = flight[0]
            seqs = self.open.get(stream)
            if seqs is not None and seqs.overlap(start, stop):
                break
            flight.popleft()
        cursor = end if self.is_live else self.cursor
        self.floor = max(self.floor, flight[0][0] if flight else cursor)
        return self.floor

    def put_again(self, stream: Stream, start: int, stop: int, due: float, attempt: int) -> None:
        """Hand `[start, stop)` out once more at `due`."""
        self._order += 1
        heapq.heappush(self.again, Again(due, self._order, *stream, start, stop, attempt))

    def take_due(self, now: float) -> list[Again]:
        """What is to be handed out once more by now."""
        due: list[Again] = []
        while self.again and self.again[0].due <= now:
            due.append(heapq.heappop(self.again))
        return due

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
