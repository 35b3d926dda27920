"""Events that are published later: stored below `reknit/scheduled/`, they become events of their topic when it is time.

Each is published exactly once, whenever the node crashes. A record says which ones are published now, as the events that
follow it in the log. If a crash comes between the two, the next start notices that these events are missing, and the
scheduled ones wait again. Redriven dead letters are handled in the same way, and recorded by the same records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, assert_never

from reknit.batch import Batch
from reknit.config import Config
from reknit.errors import Gone, JournalFull
from reknit.ledger import HandledLetters, Series
from reknit.lineage import lasting_source
from reknit.node.core.journal_writer import JournalWriter
from reknit.outcome import Code, Reason
from reknit.protocol.effects import AppendRecord, DeadLetter, Mark
from reknit.protocol.machine import JOURNAL
from reknit.protocol.publish.inputs import StoredForLater
from reknit.protocol.publish.intake import Intake
from reknit.protocol.schedule.schedule import (
    CancelEvents,
    EventId,
    EventsCancelled,
    EventsMoved,
    PublishDue,
    PutBack,
    RefuseEvents,
    Schedule,
    Scheduled,
    ScheduleEvents,
)
from reknit.records import DeadLettersBack, DeadLettersDropped, DeadLettersRedriven, encode
from reknit.seqset import Range, SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern, is_scheduled, target_of

PAGE_MAX: Final = 1_000
RETRY_S: Final = 0.5
"""How long events wait that did not fit into the journal."""
MOVE_MAX: Final = 1_000
"""How many events are moved to the end of the log at a time."""
HEADER: Final = "scheduled"
"""The header of a published event that has the id under which it was scheduled."""


class Scheduling:
    """The scheduled events of one node."""

    def __init__(
        self,
        *,
        config: Config,
        journal: Journal,
        zero_us: int,
        now_us: Callable[[], int],
        intake: Intake,
        writer: JournalWriter,
    ) -> None:
        self._journal, self._now_us = journal, now_us
        self._intake, self._writer = intake, writer
        self._retry_at = 0.0
        self._staged: deque[tuple[int, Batch]] = deque()
        """Events that are durable with these numbers."""
        self._next_seqs: dict[bytes, int] = {}
        """By source of this node: the seq that its next event gets."""
        self.schedule = Schedule(zero_us, config.limits.scheduled_max)
        self._resume()

    def _resume(self) -> None:
        """Find the events that wait in the journal."""
        batches: list[tuple[int, int, ScheduleEvents]] = []
        for topic in filter(is_scheduled, self._journal.topics()):
            for source in self._journal.sources(topic):
                self._put_back_torn(source)
                published = self._journal.ledger.published.get((topic, source), SeqSet())
                waiting = self._handled(source).waiting(published)
                found = SeqSet()
                for batch in self._batches((topic, source), waiting.ranges()):
                    found.add(batch.first, batch.stop)
                    scheduled = self._scheduled(batch, batch.position)
                    batches.append((batch.position, batch.first, scheduled))
                self._lost((topic, source), waiting.difference(found))
        for _, _, scheduled in sorted(batches, key=lambda one: one[:2]):
            self.schedule.receive(scheduled, JOURNAL, 0.0)

    def _handled(self, source: bytes) -> HandledLetters:
        return self._journal.ledger.letters.get(source) or HandledLetters()

    def _put_back_torn(self, source: bytes) -> None:
        """What never reached the disk was not published."""
        last = self._handled(source).last
        if last is None:
            return
        published = self._journal.ledger.published.get((last.topic, last.source), SeqSet())
        if not published.covers(last.first, last.stop):
            self._journal.stage_record(DeadLettersBack(source, last.ranges, self._now_us()))

    def _lost(self, series: Series, lost: SeqSet) -> None:
        """Scheduled events that the journal can't read any more: their dead letters have no payload."""
        for start, stop in lost.ranges():
            self._refuse(
                series, start, stop, Code.DATA_LOSS, Reason.DAMAGED, "the scheduled event can't be read"
            )

    def _batches(self, series: Series, ranges: Iterable[tuple[int, int]]) -> Iterator[Batch]:
        """The events of a series in these ranges that can be read."""
        for start, stop in ranges:
            for entry in self._journal.find(*series, start, stop):
                try:
                    batch = Batch.parse(self._journal.fetch(entry), position=entry.position)
                except Gone:
                    continue
                yield batch.cut(start, stop)

    # -- what comes in

    def stored(self, effect: StoredForLater) -> None:
        """Scheduled events were stored. They can be read when they are durable."""
        self._staged.append((effect.number, effect.batch))

    def durable(self, number: int, now: float) -> None:
        """Everything up to this number is durable."""
        while self._staged and self._staged[0][0] <= number:
            batch = self._staged.popleft()[1]
            [entry] = self._journal.find(batch.topic, batch.source, batch.first, batch.first + 1)
            self.schedule.receive(self._scheduled(batch, entry.position), JOURNAL, now)
            self._perform(now)

    def _scheduled(self, batch: Batch, position: int) -> ScheduleEvents:
        ids = self._first_ids(batch) if self._is_moved(batch) else ()
        return ScheduleEvents(batch.topic, batch.source, batch.first, position, _due_times(batch), ids)

    def tick(self, now: float) -> None:
        """Publish the events whose time has come."""
        self.schedule.set_clock(self._now_us() - round(now * 1e6))
        if now < self._retry_at:  # other parts may tick more often: that does not put it off
            return
        if self._writer.has_deferred or self._intake.is_full:
            if len(self.schedule):
                self._retry_at = now + RETRY_S
            return
        self.schedule.tick(now)
        self._perform(now)

    def next_deadline(self) -> float | None:
        """When the next event is due."""
        due = self.schedule.next_deadline()
        return None if due is None else max(due, self._retry_at)

    def cancel(self, args: dict[str, Any], now: float) -> dict[str, Any]:
        """Cancel events that wait; says which. An event that is not among them is published, or was cancelled."""
        ids = args.get("ids")
        wanted = None if ids is None else frozenset(map(str, ids))
        self.schedule.receive(CancelEvents(Pattern(str(args["pattern"])), wanted), JOURNAL, now)
        return {"ids": self._perform(now)}

    def page(self, args: dict[str, Any]) -> dict[str, Any]:
        """A page of the events that wait, in the order of their times; `after` says where to continue."""
        limit = min(max(int(args.get("limit", PAGE_MAX)), 1), PAGE_MAX)
        due_us, order = args.get("after", (0, 0))
        found = self.schedule.page(Pattern(str(args.get("pattern", "**"))), (int(due_us), int(order)), limit)
        rows = [{"id": one.id, "topic": target_of(one.topic), "at_us": one.due_us} for one in found]
        after = None if len(found) < limit else found[-1][:2]
        return {"events": rows, "after": after, "waiting": len(self.schedule)}

    # -- retention

    def floor(self) -> int | None:
        """The position of the first event that waits: retention spares it."""
        return self.schedule.first_position()

    def keep_short(self, now: float) -> None:
        """Store events again that retention would remove: an event of next year must not keep a year of the log."""
        if self._writer.has_deferred or self._intake.is_full:
            return
        old = self.schedule.before(self._journal.expired_to(), MOVE_MAX)
        with suppress(JournalFull):
            for run in _runs(old):
                for batch in self._batches(*_place(run)):
                    some = run[batch.first - run[0].seq : batch.stop - run[0].seq]
                    moved = EventsMoved(some, *self._publish_again(batch, batch.topic, now))
                    self.schedule.receive(moved, JOURNAL, now)

    # -- effects

    def _perform(self, now: float) -> list[str]:
        """Write down what the schedule decided. Returns the ids of events that were cancelled."""
        cancelled: list[str] = []
        for effect in self.schedule.take_effects():
            match effect:
                case PublishDue(events=events):
                    self._publish(events, now)
                case EventsCancelled(events=events):
                    cancelled += [one.id for one in events]
                    for run in _runs(events):
                        (_, source), ranges = _place(run)
                        self._write(DeadLettersDropped(source, ranges, self._now_us()), now)
                case RefuseEvents(events=events):
                    text = f"{len(self.schedule)} events are scheduled (limits.scheduled_max)"
                    for one in events:
                        series, code = (one.topic, one.source), Code.RESOURCE_EXHAUSTED
                        self._refuse(series, one.seq, one.seq + 1, code, Reason.EGRESS_FULL, text, now)
                case _:
                    assert_never(effect)
        return cancelled

    def _write(self, record: DeadLettersDropped, now: float) -> None:
        self._writer.write(AppendRecord(self._intake.next_number(), record), now)

    def _refuse(
        self, series: Series, start: int, stop: int, code: Code, reason: Reason, text: str, now: float = 0.0
    ) -> None:
        self._writer.write(
            DeadLetter(
                subscriber="",
                topic=series[0],
                source=series[1],
                start=start,
                stop=stop,
                code=code,
                reason=str(reason),
                text=text,
                attempts=0,
            ),
            now,
        )
        self._write(DeadLettersDropped(series[1], [(start, stop)], self._now_us()), now)

    def _publish(self, events: Sequence[Scheduled], now: float) -> None:
        """Publish events on their topics, in their order. Those that do not fit into the journal wait a little."""
        done: set[EventId] = set()
        try:
            for run in _runs(events):
                found = SeqSet()
                for batch in self._batches(*_place(run)):
                    found.add(batch.first, batch.stop)
                    for part in self._publish_in_parts(batch, now):
                        done.update((part.source, seq) for seq in range(part.first, part.stop))
                lost = self._unreadable(run, found)
                self._lost(_place(run)[0], lost)
                done.update(
                    (run[0].source, seq) for start, stop in lost.ranges() for seq in range(start, stop)
                )
        except JournalFull:
            pass
        if left := [one for one in events if (one.source, one.seq) not in done]:
            self._retry_at = now + RETRY_S
            self.schedule.receive(PutBack(left), JOURNAL, now)

    def _publish_in_parts(self, batch: Batch, now: float) -> Iterator[Batch]:
        """Publish events on their topic: all at once, or, if there is too little room, in parts, which it yields."""
        try:
            self._publish_again(batch, target_of(batch.topic), now)
        except JournalFull:
            if batch.count == 1:
                raise
            middle = batch.first + batch.count // 2
            yield from self._publish_in_parts(batch.cut(batch.first, middle), now)
            yield from self._publish_in_parts(batch.cut(middle, batch.stop), now)
        else:
            yield batch

    def _unreadable(self, run: Sequence[Scheduled], found: SeqSet) -> SeqSet:
        """The events of a run that the journal does not have. One that was just moved can be read a little later."""
        (topic, source), ranges = _place(run)
        journal = self._journal
        staged = journal.held(topic, source).difference(journal.lost(topic, source))
        return SeqSet.from_ranges(ranges).difference(found).difference(staged)

    def _publish_again(self, batch: Batch, topic: str, now: float) -> tuple[bytes, int, int]:
        """Publish events on a topic; returns their source, first seq and position.

        Raises `JournalFull`, and has done nothing then.
        """
        journal, now_us, head = self._journal, self._now_us(), batch.head
        source = self._source(topic, head.priority)
        if source not in self._next_seqs:
            self._next_seqs[source] = journal.sources(topic).get(source, 0) + 1
        first = self._next_seqs[source]
        columns = {name: values for name, values in batch.columns().items() if name != "time"}
        columns["headers"] = self._headers(batch)
        if is_scheduled(topic):
            columns["time"] = _due_times(batch)
        fields: dict[str, Any] = {
            "ttl_ms": head.ttl_ms,
            "priority": head.priority,
            "type": head.type,
            "flags": head.flags,
        }
        made = Batch.build(source, topic, first, batch.payloads(), now_us, columns=columns, **fields)
        ranges = [(batch.first, batch.stop)]
        record = DeadLettersRedriven(batch.source, ranges, topic, source, first, made.count, now_us)
        journal.check_room(len(encode(record)) + made.head.length)  # both fit, or nothing happens
        journal.stage_record(record)
        try:
            position = journal.stage(bytes(made.data), [made.head])
        except JournalFull:  # it is longer than everything that may wait for a commit
            journal.stage_record(DeadLettersBack(batch.source, ranges, now_us))
            raise
        self._next_seqs[source] = made.stop
        number = self._intake.next_number()
        self._writer.write(Mark(number), now)
        self._intake.appended_here(number, {source: made.stop})
        return source, first, position

    def _source(self, topic: str, priority: int) -> bytes:
        """The source under which this node publishes scheduled events on a topic."""
        return lasting_source(f"scheduled\0{topic}\0{priority}", self._journal.id)

    def _is_moved(self, batch: Batch) -> bool:
        return batch.source == self._source(batch.topic, batch.head.priority)

    def _first_ids(self, batch: Batch) -> list[str]:
        """The ids under which events were scheduled: their own, or those in the header if this node moved them."""
        ids = [f"{batch.source.hex()}:{seq}" for seq in range(batch.first, batch.stop)]
        if not self._is_moved(batch):
            return ids
        return [str(one.get(HEADER, own)) for one, own in zip(_headers(batch), ids, strict=True)]

    def _headers(self, batch: Batch) -> list[dict[str, Any]]:
        first_ids = zip(_headers(batch), self._first_ids(batch), strict=True)
        return [{**one, HEADER: first_id} for one, first_id in first_ids]


def _headers(batch: Batch) -> list[dict[str, Any]]:
    """The headers of each event."""
    headers = batch.columns().get("headers") or [None] * batch.count
    return [one if isinstance(one, dict) else {} for one in headers]


def _due_times(batch: Batch) -> list[int]:
    """When each event of a batch is due."""
    times: list[int] | None = batch.columns().get("time")
    return [batch.time_us] * batch.count if times is None else times


def _runs(events: Iterable[Scheduled]) -> Iterator[list[Scheduled]]:
    """Parts of a list of events that follow one another in one series."""
    run: list[Scheduled] = []
    for one in events:
        if run and (one.topic, one.source, one.seq) != (run[0].topic, run[0].source, run[-1].seq + 1):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _place(run: Sequence[Scheduled]) -> tuple[Series, list[Range]]:
    """The series and the range of a run."""
    return (run[0].topic, run[0].source), [(run[0].seq, run[-1].seq + 1)]
