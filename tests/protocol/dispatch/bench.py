"""A dispatcher over a journal in memory, for tests: everything in, effects out, time given."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from reknit.batch import Batch
from reknit.config import TopicSettings
from reknit.ledger import Series
from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.dispatch.dispatcher import Dispatcher, Input
from reknit.protocol.dispatch.inputs import JournalGrown, JournalScanned, OpenSubscription
from reknit.protocol.dispatch.retry import Retry
from reknit.protocol.dispatch.rules import DispatchRules
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import AppendRecord, DeadLetter, DeliverRuns, Redeliver, Scan, Send
from reknit.protocol.machine import JOURNAL, MadeDurable
from reknit.queue_order import QueueOrder
from reknit.records import Record
from reknit.seqset import SeqSet
from reknit.store.memory import MemoryJournal
from reknit.topic import Pattern
from reknit.wire.messages import DispositionRow, Settle, Start, Subscribe

SOURCE = b"s" * 16
STREAM: Series = ("plant/a", SOURCE)


class Bench:
    """A dispatcher over a journal in memory. Records are durable at once, unless it `is_slow` or `is_full`."""

    def __init__(
        self,
        attempts_max: int = 0,
        journal: MemoryJournal | None = None,
        topics: Sequence[TopicSettings] = (),
        retry: Retry | None = None,
        **rules: Any,
    ) -> None:
        self.journal = journal or MemoryJournal()
        self.numbers = 0
        self.settled = 0
        self.is_slow = False
        self.is_full = False
        self.deferred: list[Record] = []
        self.first_held: dict[tuple[str, bytes], int] = {}
        self.dispatch = Dispatcher(
            self.journal.ledger,
            self.journal.end,
            self._next_number,
            Random(0),
            DispatchRules(retry or Retry(1.0, 1.0, attempts_max), topics, **rules),
            first_held=lambda topic, source: self.first_held.get((topic, source), 1),
            paused=self.journal.paused,
            deferred=lambda: self.deferred,
        )

    def _next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def give(self, message: Input, peer: object = "p", now: float = 0.0) -> list[Effect]:
        """Give the dispatcher an input; returns its effects except the journal's."""
        self.dispatch.receive(message, peer, now)
        return self.perform(now)

    def tick(self, now: float) -> list[Effect]:
        self.dispatch.tick(now)
        return self.perform(now)

    def perform(self, now: float = 0.0) -> list[Effect]:
        out: list[Effect] = []
        while effects := self.dispatch.take_effects():
            for effect in effects:
                if isinstance(effect, AppendRecord) and self.is_full:
                    self.deferred.append(effect.record)
                elif isinstance(effect, AppendRecord):
                    self.journal.stage_record(effect.record)
                elif isinstance(effect, Scan):
                    run = self.journal.read(effect.position, None, effect.bytes_max)
                    self.dispatch.receive(JournalScanned(effect.key, run), JOURNAL, now)
                else:
                    out.append(effect)
            if not self.is_slow:
                self.keep(now)
        return out

    def keep(self, now: float = 0.0) -> None:
        """Make durable what is staged."""
        seen, end = self.journal.end, self.journal.commit()
        runs = []
        while seen < end:
            runs.append(self.journal.read(seen, end))
            seen = runs[-1].next_position
        self.dispatch.receive(JournalGrown(runs, end), JOURNAL, now)
        self.dispatch.receive(MadeDurable(self.numbers), JOURNAL, now)

    def publish(
        self,
        first: int,
        count: int = 1,
        topic: str = "plant/a",
        now: float = 0.0,
        source: bytes = SOURCE,
        **fields: Any,
    ) -> list[Effect]:
        batch = Batch.build(source, topic, first, [b"x"] * count, int(now * 1e6), **fields)
        self.journal.stage(bytes(batch.data), [batch.head])
        self.keep(now)
        return self.perform(now)

    def subscribe(self, name: str = "", peer: object = "p", **fields: object) -> list[Effect]:
        """Subscribe to `plant/**`, from what becomes durable from now on or from `position`."""
        position = fields.pop("position", -1)
        credit = fields.pop("credit", 1 << 20)
        held = fields.pop("held", [])
        pattern = Pattern(str(fields.pop("pattern", "plant/**")))
        is_cache = bool(fields.pop("is_cache", False))
        queue = str(fields.pop("queue", ""))
        order: QueueOrder = fields.pop("order", "")  # type: ignore[assignment]
        process = bytes(str(fields.pop("process", "")), "ascii")
        now = float(str(fields.pop("now", 0.0)))
        held = list(held)  # type: ignore[call-overload]
        request = Subscribe(
            1, pattern.text, name, Start(), int(str(credit)), held, is_cache, False, queue, process, order
        )
        published = self.journal.ledger.published
        since = {stream: seqs.last + 1 for stream, seqs in published.items()} if position != 0 else {}
        seen: dict[bytes, int] = fields.pop("seen", {})  # type: ignore[assignment]
        return self.give(OpenSubscription(request, pattern, int(str(position)), since, seen=seen), peer, now)

    def settle(self, number: int, start: int, stop: int, outcome: Outcome, **fields: object) -> list[Effect]:
        row = DispositionRow("plant/a", SOURCE, start, stop, int(outcome), **fields)  # type: ignore[arg-type]
        return self.give(Settle(1, number, [row]))

    def say(
        self, outcome: Outcome, start: int, stop: int = 0, now: float = 0.0, peer: object = "p", **fields: Any
    ) -> list[Effect]:
        """Settle with the next number; `topic` and `source` are the usual ones unless given."""
        self.settled += 1
        place = (fields.pop("topic", "plant/a"), fields.pop("source", SOURCE))
        row = DispositionRow(*place, start, stop or start + 1, int(outcome), **fields)
        return self.give(Settle(1, self.settled, [row]), peer, now)

    def restart(self, **fields: Any) -> Bench:
        """A restarted node over the same journal."""
        return Bench(journal=self.journal, **fields)

    def ends(self, name: str) -> dict[FinalOutcome, SeqSet]:
        return self.journal.ledger.accounts[name].ends.get(STREAM, {})


def letters(effects: list[Effect]) -> list[tuple[int, int, str]]:
    """Dead letters, with their reasons."""
    return [(one.start, one.stop, one.reason) for one in effects if isinstance(one, DeadLetter)]


def seqs(effects: list[Effect]) -> list[int]:
    """Every event that is delivered, in order, whichever attempt it is."""
    found: list[int] = []
    for effect in effects:
        if isinstance(effect, Redeliver):
            found += range(effect.start, effect.stop)
        elif isinstance(effect, DeliverRuns):
            found += [seq for bounds in delivered([effect]) for seq in range(*bounds)]
    return found


def delivered(effects: list[Effect]) -> list[tuple[int, int]]:
    """The ranges that are delivered for the first time, or in part."""
    ranges: list[tuple[int, int]] = []
    for effect in effects:
        if isinstance(effect, DeliverRuns):
            for piece in effect.pieces:
                heads = [entry.head for entry in piece.run.entries[piece.low : piece.high]]
                ranges += [(head.first, head.stop) for head in heads]
        elif isinstance(effect, Redeliver) and effect.attempt == 1:
            ranges.append((effect.start, effect.stop))
    return ranges


def redelivered(effects: list[Effect]) -> list[tuple[int, int, int]]:
    return [
        (effect.start, effect.stop, effect.attempt) for effect in effects if isinstance(effect, Redeliver)
    ]


def said(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def ranges(*bounds: tuple[int, int]) -> SeqSet:
    return SeqSet.from_ranges(bounds)
