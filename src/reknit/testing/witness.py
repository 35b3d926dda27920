"""The witness compares what applications saw with what publishers were promised and what the ledger says.

It is outside the machines. It knows the published events, the confirmed ones, and those that every application received.
It shares no code with the parts that it judges, except for the ledger, whose rows must all agree with it. What must
hold is in `checks/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from reknit.batch import Batch
from reknit.dead_letter import read_letter
from reknit.errors import MalformedFrame
from reknit.ledger import Series
from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.subscribe.subscriber import LossReport
from reknit.seqset import SeqSet
from reknit.testing.checks import deliveries, journals, ledgers
from reknit.testing.checks.dead_letters import (
    open_dead_letters_survive,
    redrive_source,
    redriven_letters_are_published,
    waiting_dead_letters_are_counted,
)
from reknit.testing.checks.deliveries import name_of
from reknit.testing.checks.scheduled import scheduled_events_are_published_once
from reknit.testing.clock import START_US, Clock
from reknit.testing.dead_letters import (
    DEAD_LETTER_TOPIC,
    JudgedNode,
    ValidReasons,
    WrittenDeadLetters,
    may_be_unseen,
)
from reknit.testing.faults import FaultPlan
from reknit.testing.observed import ObservedSubscriber, SubscriberKind
from reknit.testing.published import PublishedEvents
from reknit.testing.scheduled import ScheduledEvents, later_sources
from reknit.topic import Pattern, is_scheduled

EXPIRY_STEP_S = 0.15
"""A node looks for expired events a little less often than this."""


class Witness:
    """Observes everything, and collects problems in `problems`."""

    def __init__(self, clock: Clock, plan: FaultPlan) -> None:
        self.clock = clock
        self.problems: list[str] = []
        self.subscribers: dict[str, ObservedSubscriber] = {}
        self.published = PublishedEvents(clock)
        self.letters = WrittenDeadLetters()
        self.scheduled = ScheduledEvents()
        self._plan = plan
        self._nodes: dict[str, JudgedNode] = {}
        self._paused: dict[str, dict[Pattern, float]] = {}
        """By node: the patterns that are paused, each with the time since then."""
        self._away: dict[str, float] = {}
        """Durable subscribers that are away, each with the time since then."""
        is_bounded = not plan.partition_rate  # a partition holds bytes back for longer
        self._late_s = plan.delay_s_max + 0.01 if is_bounded else float("inf")
        """The longest time for which bytes are on their way."""

    def blame(self, problem: str) -> None:
        """Record a problem."""
        self.problems.append(f"at {self.clock.now:.4f}: {problem}")

    def blame_all(self, who: str, problems: Iterable[str]) -> None:
        """Record the problems that a check found."""
        for problem in problems:
            self.blame(f"{who}: {problem}")

    def subscriber(self, name: str, kind: SubscriberKind) -> ObservedSubscriber:
        """A subscriber's process starts. Returns the observations of the subscriber so far."""
        seen = self.subscribers.get(name)
        if seen is None:
            seen = self.subscribers[name] = ObservedSubscriber(name, kind, self)
        seen.started()
        return seen

    def forget(self, name: str) -> None:
        """A subscriber was forgotten: a later one of its name is another one."""
        seen = self.subscribers.pop(name, None)
        if seen is not None:
            node = self._nodes[seen.kind.node]
            self.letters.read(node)  # those that are about it; a later one of its name has none of them
            survivor = node.journal.survivor()
            self.blame_all(name, ledgers.forgotten_subscribers_are_gone(name, survivor.ledger))
        self.letters.forget(name)

    def confirm(self, series: Series, seq: int, payload: bytes) -> None:
        """A program was told that its event is stored."""
        if not self.published.confirm(series, seq, payload):
            self.blame(f"{name_of(series)} {seq} was confirmed to two runs of its publisher")

    def watch(self, nodes: Sequence[JudgedNode]) -> None:
        """These are the nodes."""
        self._nodes = {node.name: node for node in nodes}

    def ended_at(self, seen: ObservedSubscriber, series: Series) -> SeqSet:
        """The events of a series that its node has ended for a subscriber."""
        node = self._nodes[seen.kind.node]
        account = node.journal.ledger.accounts.get(seen.name)
        ended = SeqSet() if account is None else account.ended(series)
        queue = next((one for one in node.core.dispatch.queues.values() if one.name == seen.name), None)
        if queue is not None:  # its record may still wait for room in the journal
            passed = SeqSet.from_ranges([(0, queue.cursor.passed_to(series))])
            ended = ended.union(passed.difference(queue.unsettled.open_of(series)))
        return ended

    # -- what nodes were told

    def paused(self, node: str, pattern: str) -> None:
        """A node was told to pause topics."""
        self._paused.setdefault(node, {}).setdefault(Pattern(pattern), self.clock.now)

    def resumed(self, node: str, pattern: str = "") -> None:
        """A node was told to resume topics; or it crashed, and may have forgotten all pauses."""
        if pattern:
            self._paused.get(node, {}).pop(Pattern(pattern), None)
        else:
            self._paused.pop(node, None)

    # -- deliveries

    def check_batch(self, seen: ObservedSubscriber, batch: Batch) -> None:
        """Report events that nobody published, or that must not be delivered now."""
        self.check_known(seen.name, batch)
        now, paused = self.clock.now, self._paused.get(seen.kind.node, {})
        if seen.kind.durable or not (
            self._plan.missed_share or self._plan.archive
        ):  # else caches send events later
            self.blame_all(seen.name, deliveries.paused_topics_are_silent(batch, paused, now, self._late_s))
        if seen.kind.durable:
            at_us, late_s = self.clock.now_us(), self._late_s + EXPIRY_STEP_S
            self.blame_all(seen.name, deliveries.expired_events_stay_away(batch, at_us, late_s))

    def check_attempts(self, seen: ObservedSubscriber, series: Series, seq: int, failed: int) -> None:
        """Report an event that was tried too often.

        With leases, a failure that is told late does not count; nor does one that a crash undid before it was durable.
        """
        if not self._plan.lease_s and not self._plan.node_crash_rate:
            attempts_max = self._plan.attempts_max_of(series[0])
            self.blame_all(seen.name, deliveries.attempts_are_limited(series, seq, failed, attempts_max))

    def check_lost(self, seen: ObservedSubscriber, report: LossReport) -> None:
        """Report a loss that is none: the node has the events."""
        journal, series = self._nodes[seen.kind.node].journal, (report.topic, report.source)
        entries = journal.find(*series, report.start, report.stop)
        held = SeqSet.from_ranges((entry.head.first, entry.head.stop) for entry in entries)
        self.blame_all(seen.name, deliveries.nothing_recoverable_is_lost(report, held))

    def check_stored(self, seen: ObservedSubscriber, series: Series, start: int, stop: int) -> None:
        """Report events whose outcome was confirmed, and is not stored. With leases, an outcome may come too late."""
        account = self._nodes[seen.kind.node].journal.ledger.accounts.get(seen.name)
        if account is not None and not self._plan.lease_s:
            ended = account.ended(series)
            self.blame_all(seen.name, ledgers.confirmed_outcomes_are_stored(series, ended, start, stop))

    def check_known(self, name: str, batch: Batch) -> None:
        """Report events that nobody published."""
        if batch.topic == DEAD_LETTER_TOPIC:
            self._check_dead_letters(name, batch)
            return
        series = (batch.topic, batch.source)
        for seq, payload in enumerate(batch.payloads(), batch.first):
            if not self._is_known(series, seq, payload):
                self.blame(f"{name} received {name_of(series)} {seq}, which nobody published")

    def _is_known(self, series: Series, seq: int, payload: bytes | None) -> bool:
        """Whether somebody published an event. None: with any payload."""
        if series[1] in self._node_sources(series[0]):
            return payload is None or payload in self.published.put_at
        return self.published.is_known(series, seq, payload)

    def _node_sources(self, topic: str) -> list[bytes]:
        """The sources of events that nodes publish: dead letters that are redriven, and scheduled events."""
        sources = [redrive_source(name, topic, node.journal.id) for name, node in self._nodes.items()]
        return [*sources, *(one for node in self._nodes.values() for one in later_sources(topic, node))]

    def _check_dead_letters(self, name: str, batch: Batch) -> None:
        for payload in batch.payloads():
            try:
                letter = read_letter(payload)
            except MalformedFrame as error:
                self.blame(f"{name} received an unreadable dead letter: {error.what}")
                continue
            of = letter.payload if letter.has_payload else None
            if not self._is_known((letter.topic, letter.source), letter.seq, of):
                self.blame(f"{name} received a dead letter of an event that nobody published: {letter}")

    def node_started(self, node: str) -> None:
        """A node started: nobody is connected to it."""
        for name, seen in self.subscribers.items():
            if seen.kind.node == node:
                self._away[name] = self.clock.now
                seen.record.node_crashed()

    def subscribed(self, name: str) -> None:
        """A subscriber asked a node for its events."""
        self._away.pop(name, None)

    def check_expiry(self, node: JudgedNode) -> None:
        """Report events that wait past their ttl for a subscriber that is away. The node has been up for a while."""
        ttl_s, queues = self._plan.ttl_ms / 1000, node.core.dispatch.queues.values()
        if not ttl_s or node.core._writer.has_deferred:
            return  # without room, the journal does not have the dead letters yet
        here = {queue.name for queue in queues}
        for name, account in node.journal.ledger.accounts.items():
            seen = self.subscribers.get(name)
            if seen is None or seen.opened_at is None or name in here:
                self.subscribed(name)
                continue
            away_at = self._away.setdefault(name, self.clock.now)
            for series, seqs in node.journal.ledger.published.items():
                if series not in self.published.node_of or not account.pattern.matches(series[0]):
                    continue
                waiting = account.owed(series, seqs).difference(account.ended(series))
                late = partial(self._lives_until, series, ttl_s, seen.opened_at, away_at)
                self.blame_all(name, ledgers.waiting_events_expire(series, waiting, late, self.clock.now))

    def _lives_until(self, series: Series, ttl_s: float, opened_at: float, away_at: float, seq: int) -> float:
        """When an event expires that a subscriber does not have, and need not get as history.

        It may finish an event that it had when the ttl ran out, also after a reconnection.
        """
        put_at = self.published.last_put(series, seq)
        is_sure = put_at > opened_at and put_at + ttl_s > away_at
        return put_at + ttl_s if is_sure else float("inf")

    # -- at the end

    def judge(self) -> list[str]:
        """Check everything that must hold once all programs are idle. Returns the problems."""
        leaving = {name for name, seen in self.subscribers.items() if seen.is_forgotten}
        for node in self._nodes.values():
            self.letters.read(node)
            stored = self._judge_journal(node)
            self._judge_letters(node)
            self._judge_scheduled(node)
            reasons = ValidReasons(
                node, self._plan.ttl_ms, self._plan.lease_s, bool(self._plan.subscriber_crash_rate)
            )
            for seen in self.subscribers.values():
                if seen.kind.node == node.name and seen.opened_at is not None and not seen.is_forgotten:
                    self._judge_subscriber(seen, node, stored, reasons)
            ledger, in_hand = node.journal.ledger, node.core.dispatch.in_hand()
            self.blame_all(node.name, ledgers.ledgers_balance(ledger, in_hand, leaving))
            self.blame_all(node.name, ledgers.events_end_once(ledger))
        return self.problems

    def _judge_journal(self, node: JudgedNode) -> dict[Series, dict[int, bytes]]:
        """Every confirmed event is stored, once, as it was published. Returns the stored events."""
        journal = node.journal
        batches = list(journals.batches_of(journal))
        stored: dict[Series, dict[int, bytes]] = {}
        for batch in batches:
            self.check_known(f"the journal of {node.name}", batch)
            stored.setdefault((batch.topic, batch.source), {}).update(
                enumerate(batch.payloads(), batch.first)
            )
        confirmed = {
            series: by_seq
            for series, by_seq in self.published.confirmed.items()
            if self.published.node_of[series] == node.name
        }
        ever = sum(seqs.count for seqs in journal.ledger.published.values())
        self.blame_all(
            node.name,
            chain(
                journals.events_are_stored_once(batches),
                journals.acknowledged_events_are_stored(journal, stored, confirmed),
                journals.newest_events_are_kept(
                    sum(batch.count for batch in batches), ever, self._plan.retain_events or ever
                ),
            ),
        )
        return stored

    def _judge_letters(self, node: JudgedNode) -> None:
        letters = node.core.dead_letters
        self.blame_all(node.name, open_dead_letters_survive(letters, self.letters.written(node.name)))
        self.blame_all(node.name, waiting_dead_letters_are_counted(letters))
        self.blame_all(node.name, redriven_letters_are_published(letters))

    def _judge_scheduled(self, node: JudgedNode) -> None:
        self.scheduled.read(node)
        confirmed = [
            (series, seq, payload)
            for series, by_seq in self.published.confirmed.items()
            if is_scheduled(series[0]) and self.published.node_of[series] == node.name
            for seq, payload in by_seq.items()
        ]
        self.blame_all(node.name, scheduled_events_are_published_once(node.name, self.scheduled, confirmed))

    def _judge_subscriber(
        self,
        seen: ObservedSubscriber,
        node: JudgedNode,
        stored: dict[Series, dict[int, bytes]],
        reasons: ValidReasons,
    ) -> None:
        """The subscriber received the events it is owed, and every event ended as the application said."""
        account = node.journal.ledger.accounts.get(seen.name)
        if seen.kind.durable and account is None:
            self.blame(f"{node.name} no longer knows {seen.name}")
            return
        if seen.is_alive and not seen.kind.durable:
            came = deliveries.returned_events_came(
                seen.record, lambda series: self.letters.seqs_of("", series)
            )
            self.blame_all(seen.name, came)
        for series, its_node in self.published.node_of.items():
            if its_node != node.name or not seen.kind.pattern.matches(series[0]):
                continue
            ends = None if account is None else account.ends.get(series, {})
            if seen.is_alive:
                owed = self._owed(seen, series, stored.get(series, {}))
                accounted_for = self._accounted_for(seen, series, ends)
                self.blame_all(seen.name, ledgers.owed_events_came(series, owed, accounted_for))
            if ends is not None:
                self._judge_ends(seen, series, ends, reasons)

    def _accounted_for(
        self, seen: ObservedSubscriber, series: Series, ends: dict[FinalOutcome, SeqSet] | None
    ) -> SeqSet:
        """Events that the application received or need not have received. `ends` is the ledger's account, if any."""
        received = seen.record.received.get(series, SeqSet())
        if ends is None:
            known = received.union(seen.record.lost.get(series, SeqSet()))
            return known.union(seen.missing_at_the_end(series))
        received = received.union(seen.told.get(series, SeqSet()))
        return received.union(self._unseen(seen, series, ends.get(FinalOutcome.DEAD_LETTERED, SeqSet())))

    def _owed(self, seen: ObservedSubscriber, series: Series, stored: dict[int, bytes]) -> SeqSet:
        """The stored events that were published after the subscription was confirmed; with history, all stored ones."""
        assert seen.opened_at is not None
        if seen.kind.history and seen.kind.durable:
            return SeqSet.from_ranges((seq, seq + 1) for seq in stored)
        known = {**self.published.confirmed.get(series, {}), **stored}
        put_at = self.published.put_at
        later = [seq for seq, payload in known.items() if put_at.get(payload, 0.0) > seen.opened_at]
        return SeqSet.from_ranges((seq, seq + 1) for seq in later)

    def _unseen(self, seen: ObservedSubscriber, series: Series, dead: SeqSet) -> SeqSet:
        """The dead letters whose events need not have reached the application."""
        seqs = [seq for bounds in dead.ranges() for seq in range(*bounds)]
        unseen = [seq for seq in seqs if any(map(may_be_unseen, self.letters.of(seen.name, series, seq)))]
        return SeqSet.from_ranges((seq, seq + 1) for seq in unseen)

    def _judge_ends(
        self,
        seen: ObservedSubscriber,
        series: Series,
        ends: dict[FinalOutcome, SeqSet],
        reasons: ValidReasons,
    ) -> None:
        """Every event ended as the application said."""

        def problem_with(series: Series, seq: int) -> str:
            letters = self.letters.of(seen.name, series, seq)
            put_s = self.published.first_put(series, seq)
            if not letters:
                return "was dead-lettered, but no dead letter was written"
            if any(reasons.allow(letter, seen, put_s) for letter in letters):
                return ""
            why = [(one.reason, one.died_us - START_US, one.tries) for one in letters]
            return f"is a dead letter with a false reason: {why}"

        accepted = seen.said[Outcome.ACCEPTED].get(series, SeqSet())
        may_lose = bool(self._plan.retain_events) and not self._plan.retain_owed
        found = chain(
            ledgers.accepted_events_were_accepted(series, ends, accepted),
            ledgers.dead_letters_are_true(series, ends, problem_with),
            ledgers.nothing_is_lost_without_cause(series, ends, may_lose),
        )
        self.blame_all(seen.name, found)
        if not self._plan.node_crash_rate:
            lettered = self.letters.seqs_of(seen.name, series)
            self.blame_all(seen.name, ledgers.dead_letters_have_an_outcome(series, ends, lettered))
