"""Judges dead letters: each must have a reason that agrees with what was observed from outside."""

from __future__ import annotations

from typing import Protocol

from reknit.attempts import TRIES_MAX
from reknit.batch import Batch
from reknit.config import Config
from reknit.dead_letter import DeadLetterContent, read_letter
from reknit.ledger import Series
from reknit.node.core.core import Core
from reknit.outcome import Outcome, Reason
from reknit.seqset import SeqSet
from reknit.store.memory import SimJournal
from reknit.testing.clock import START_US
from reknit.testing.observed import ObservedSubscriber

DEAD_LETTER_TOPIC = "reknit/dead-letters"


class JudgedNode(Protocol):
    """The parts of a simulated node that the witness reads."""

    name: str
    core: Core
    config: Config

    @property
    def journal(self) -> SimJournal: ...


class WrittenDeadLetters:
    """Every dead letter that was ever durable, by subscriber."""

    def __init__(self) -> None:
        self._letters: dict[str, dict[Series, dict[int, list[DeadLetterContent]]]] = {}
        self._written: dict[str, SeqSet] = {}
        self._read_to: dict[str, int] = {}

    def read(self, node: JudgedNode) -> None:
        """Read new dead letters from a node's journal, before retention may remove them."""
        journal = node.journal
        position = max(self._read_to.get(node.name, 0), journal.start)
        while position < journal.end:
            run = journal.read(position)
            for entry in run.entries:
                if entry.head.topic == DEAD_LETTER_TOPIC and entry.position >= position:
                    batch = Batch.parse(journal.fetch(entry))
                    self._written.setdefault(node.name, SeqSet()).add(batch.first, batch.stop)
                    self._add(batch)
            position = run.next_position
        self._read_to[node.name] = position

    def _add(self, batch: Batch) -> None:
        for payload in batch.payloads():
            letter = read_letter(payload)
            by_series = self._letters.setdefault(letter.subscriber, {})
            by_seq = by_series.setdefault((letter.topic, letter.source), {})
            by_seq.setdefault(letter.seq, []).append(letter)

    def written(self, node: str) -> SeqSet:
        """The seqs of all dead letters that were ever durable on a node."""
        return self._written.get(node, SeqSet())

    def forget(self, name: str) -> None:
        """Forget a subscriber: a later one of this name is another one."""
        self._letters.pop(name, None)

    def seqs_of(self, name: str, series: Series) -> SeqSet:
        """The events of a series that have dead letters."""
        return SeqSet.from_ranges((seq, seq + 1) for seq in self._letters.get(name, {}).get(series, {}))

    def of(self, name: str, series: Series, seq: int) -> list[DeadLetterContent]:
        """The dead letters of an event: more than one if a node crashed before the outcome was durable."""
        return self._letters.get(name, {}).get(series, {}).get(seq, [])


class ValidReasons:
    """Which reasons are valid for a dead letter, by the settings of a node."""

    def __init__(
        self, node: JudgedNode, ttl_ms: int, lease_s: float, ends_for_no_reason: bool = False
    ) -> None:
        self._config = node.config
        self._ends_for_no_reason = ends_for_no_reason
        self._ttl_ms = ttl_ms
        self._lease_us = int(lease_s * 1e6)

    def allow(self, letter: DeadLetterContent, seen: ObservedSubscriber, put_s: float) -> bool:
        """Whether a dead letter's reason is true. The event was published at `put_s`, or later."""
        put_us, series = START_US + int(put_s * 1e6), (letter.topic, letter.source)
        match letter.reason:
            case Reason.EXPIRED:
                ttl_ms = self._ttl_ms or self._config.topic(letter.topic).ttl_ms
                return bool(ttl_ms) and letter.died_us >= put_us + ttl_ms * 1000
            case Reason.REJECTED:
                return letter.seq in seen.said[Outcome.REJECTED].get(series, SeqSet())
            case Reason.ATTEMPTS_EXHAUSTED:
                return self._is_exhausted(letter, seen, put_us)
            case Reason.CRASHED:
                return self._is_deadly(letter, seen, put_s)
            case Reason.EGRESS_FULL:
                rule = self._config.topic(letter.topic)
                return bool(self._config.limits.queue_events_max) and rule.overflow != "withhold"
            case _:
                return False

    def _is_exhausted(self, letter: DeadLetterContent, seen: ObservedSubscriber, put_us: int) -> bool:
        """Whether it had all allowed attempts, and each failed or outlasted its lease."""
        limit = self._config.topic(letter.topic).attempts_max or self._config.dispatch.attempts_max
        outcomes = [one.outcome for one in letter.tries]
        failed, silent = outcomes.count(Outcome.FAILED), outcomes.count(Outcome.LEASE_LOST)
        is_enough = failed + silent == limit or len(outcomes) == TRIES_MAX
        had_time = letter.died_us >= put_us + silent * self._lease_us
        said = seen.failed.get((letter.topic, letter.source), {}).get(letter.seq, 0)
        return (
            bool(limit) and is_enough and failed <= said and (bool(self._lease_us) or not silent) and had_time
        )

    def _is_deadly(self, letter: DeadLetterContent, seen: ObservedSubscriber, put_s: float) -> bool:
        """Whether its subscriber's process died of it, as often as the node says and as is allowed.

        If processes also end for no reason, one may do so each time that it has only this event.
        """
        limit = self._config.dispatch.crash_attempts_max
        counted = sum(one.outcome is Outcome.CRASHED for one in letter.tries)
        is_enough = counted == limit or len(letter.tries) == TRIES_MAX
        deaths = seen.deaths.get((letter.topic, letter.source), {}).get(letter.seq, 0)
        if self._ends_for_no_reason:
            died_s = (letter.died_us - START_US) / 1e6
            deaths = sum(put_s <= at <= died_s for at in seen.crashed_at)
        return bool(limit) and is_enough and counted <= deaths


def may_be_unseen(letter: DeadLetterContent) -> bool:
    """Whether its event may never have reached the application.

    It expired, too many events waited, a lease ran out on a dead connection, or the process ended before the event came,
    and it was the only one on its way.
    """
    return letter.reason in (Reason.EXPIRED, Reason.EGRESS_FULL, Reason.CRASHED) or any(
        one.outcome is Outcome.LEASE_LOST for one in letter.tries
    )
