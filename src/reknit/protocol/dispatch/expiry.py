"""Time to live: a deadline on the node's own clock, `min(t, now) + ttl` when an event comes in.

Deadlines are kept by tenths of a second and as ranges, so that many events of a source cost as little as one. What is
due and still waits becomes a dead letter; what is with the subscriber may be finished, but is not tried again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reknit.attempts import Tally
from reknit.batch import Batch, Head
from reknit.entries import Run
from reknit.ledger import ANYCAST, Stream
from reknit.outcome import Reason
from reknit.protocol.dispatch.inputs import Outlived
from reknit.protocol.dispatch.outcome_recorder import Endings
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.state import Desk
from reknit.records import OutcomeRow
from reknit.seqset import Range, SeqSet

STEP_US: Final = 100_000
TEXT: Final = "its ttl ran out before it was delivered"
TRIED: Final = "its ttl ran out while it was being tried"


class Expiry:
    """The deadlines of everything that may still wait for a durable subscriber."""

    def __init__(self, desk: Desk, endings: Endings) -> None:
        self._desk = desk
        self._endings = endings
        self._due: list[int] = []
        self._steps: dict[int, dict[Stream, SeqSet]] = {}

    def has_ttl(self, head: Head) -> bool:
        """Whether a batch's events may expire. Where they differ, its header has one ttl, or says that there is more."""
        rules = self._desk.rules
        return bool(head.ttl_ms or head.flags) or (rules.has_ttl and bool(rules.of(head.topic).ttl_ms))

    def note(self, run: Run, index: int) -> None:
        """An event with a ttl is in the journal."""
        for start, stop, deadline_us in self.deadlines(run, index):
            head = run.entries[index].head
            step = -(-deadline_us // STEP_US)
            streams = self._steps.get(step)
            if streams is None:
                streams = self._steps[step] = {}
                heapq.heappush(self._due, step)
            streams.setdefault((head.topic, head.source), SeqSet()).add(start, stop)

    def deadlines(self, run: Run, index: int) -> Iterator[tuple[int, int, int]]:
        """(start, stop, deadline in microseconds since 1970) of a batch's events that expire."""
        head = run.entries[index].head
        columns = Batch(head, run.cut(index, index + 1)).columns() if head.ttl_ms or head.flags else {}
        yield from deadlines_of(head, columns, self._desk.rules.of(head.topic).ttl_ms, self._desk.time_us)

    def next_due(self) -> float | None:
        """When something expires, on the node's clock."""
        desk = self._desk
        return desk.now + (self._due[0] * STEP_US - desk.time_us) / 1e6 if self._due else None

    def tick(self) -> None:
        """Make dead letters of what has expired and waits."""
        while self._due and self._due[0] * STEP_US <= self._desk.time_us:
            for stream, seqs in self._steps.pop(heapq.heappop(self._due)).items():
                for name, account in sorted(self._desk.ledger.accounts.items()):
                    if account.pattern.matches(stream[0]) and not name.startswith(ANYCAST):
                        self.end_waiting(name, stream, seqs.ranges(), 0, Reason.EXPIRED, TEXT)

    def end_waiting(
        self, name: str, stream: Stream, ranges: list[Range], code: int, reason: Reason, text: str
    ) -> int:
        """Make dead letters of what of these still waits for a subscriber, here or away; gives how many."""
        account = self._desk.ledger.accounts[name]
        queue = self._desk.by_name.get(name)
        since = account.since.get(stream, 1)
        ended = account.ended(stream)
        left = [part for low, high in ranges if since < high for part in ended.missing(max(low, since), high)]
        if queue is None:
            tallies = account.tallies.get(stream, {})
            rows = [
                self._endings.letter(name, stream, piece, code, reason, text, tally)
                for low, high in left
                for piece, tally in _by_tally(low, high, tallies)
            ]
            floor = account.floor
        else:
            rows = [row for one in left for row in self._end_queued(queue, stream, one, code, reason, text)]
            floor = queue.move_floor(self._desk.end)
        if rows:
            self._endings.record(name, rows, floor)
        return sum(row.stop - row.start for row in rows)

    def _end_queued(
        self, queue: Queue, stream: Stream, bounds: Range, code: int, reason: Reason, text: str
    ) -> list[OutcomeRow]:
        """The same for a queue: what it has passed and not, but not what is with the subscriber."""
        seqs, waiting = queue.open.get(stream, SeqSet()), queue.waiting.get(stream, SeqSet()).copy()
        rows: list[OutcomeRow] = []
        for low, high in seqs.overlap(*bounds):
            if reason is Reason.EXPIRED:
                for held in waiting.missing(low, high):
                    queue.overdue.setdefault(stream, SeqSet()).add(*held)
            for one in waiting.overlap(low, high):
                rows += self._endings.dead_letter(queue, stream, one, code, reason, text)
        gone = queue.ended.setdefault(stream, SeqSet())
        ahead = [part for one in seqs.missing(*bounds) for part in gone.missing(*one)]
        passed = queue.passed.get(stream, 0)
        for low, high in [(max(low, passed), high) for low, high in ahead if passed < high]:
            rows.append(self._endings.letter(queue.name, stream, (low, high), code, reason, text, Tally()))
            gone.add(low, high)
            queue.resumed_to = max(queue.resumed_to, self._desk.end)
        return rows

    def outlived(self, message: Outlived) -> None:
        """What a subscriber without a name gave back is past its ttl: it is owed nothing, and there is no next try."""
        queue = self._desk.queues.get(message.key)
        if queue is not None:
            stream, bounds = (message.topic, message.source), (message.start, message.stop)
            self._endings.book(
                queue, self._endings.dead_letter(queue, stream, bounds, 0, Reason.EXPIRED, TRIED)
            )


def deadlines_of(
    head: Head, columns: Mapping[str, list[Any]], usual_ms: int, now_us: int
) -> Iterator[tuple[int, int, int]]:
    """(start, stop, deadline in microseconds since 1970) of a batch's events that expire; `usual_ms` is the topic's."""
    born_us = min(head.time_us, now_us)
    usual_ms = head.ttl_ms or usual_ms
    if "ttl" not in columns:
        if usual_ms:
            yield head.first, head.stop, born_us + usual_ms * 1000
        return
    for seq, ttl_ms in enumerate(columns["ttl"], head.first):
        if ttl_ms:
            yield seq, seq + 1, born_us + ttl_ms * 1000


def overdue_of(batch: Batch, usual_ms: int, now_us: int) -> list[Range]:
    """Which events of a batch are past their ttl."""
    head = batch.head
    if not (usual_ms or head.ttl_ms or head.flags):
        return []
    columns = batch.columns() if head.ttl_ms or head.flags else {}
    deadlines = deadlines_of(head, columns, usual_ms, now_us)
    return SeqSet.from_ranges((start, stop) for start, stop, due_us in deadlines if due_us < now_us).ranges()


def _by_tally(start: int, stop: int, tallies: dict[int, Tally]) -> Iterator[tuple[Range, Tally]]:
    """`[start, stop)`: events that were tried one by one, the rest as ranges."""
    at = start
    for seq in sorted(seq for seq in tallies if start <= seq < stop):
        if at < seq:
            yield (at, seq), Tally()
        yield (seq, seq + 1), tallies[seq]
        at = seq + 1
    if at < stop:
        yield (at, stop), Tally()
