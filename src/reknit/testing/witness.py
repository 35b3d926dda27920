"""The witness compares what applications saw with what publishers were promised and what the ledger says.

It is outside the machines. It knows the published events, the confirmed ones, and those that every application received.
It shares no code with the parts that it judges, except for the ledger, whose rows must all agree with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from reknit.batch import Batch
from reknit.dead_letter import read_letter
from reknit.errors import MalformedFrame
from reknit.ledger import Series
from reknit.outcome import FinalOutcome, Outcome
from reknit.seqset import SeqSet
from reknit.testing.clock import START_US, Clock
from reknit.testing.dead_letters import (
    DEAD_LETTER_TOPIC,
    JudgedNode,
    ValidReasons,
    WrittenDeadLetters,
    may_be_unseen,
)
from reknit.testing.observed import ObservedSubscriber, SubscriberKind, name_of, overlap


class Witness:
    """Observes everything, and collects problems in `problems`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.problems: list[str] = []
        self.subscribers: dict[str, ObservedSubscriber] = {}
        self.confirmed: dict[Series, dict[int, bytes]] = {}
        self._put: dict[Series, dict[int, list[bytes]]] = {}
        self._put_at: dict[Series, list[tuple[float, int, int]]] = {}
        self.node_of: dict[Series, str] = {}
        self.letters = WrittenDeadLetters()

    def blame(self, problem: str) -> None:
        """Record a problem."""
        self.problems.append(f"at {self.clock.now:.4f}: {problem}")

    def subscriber(self, name: str, kind: SubscriberKind) -> ObservedSubscriber:
        """A subscriber's process starts. Returns the observations of the subscriber so far."""
        seen = self.subscribers.get(name)
        if seen is None:
            seen = self.subscribers[name] = ObservedSubscriber(name, kind, self)
        seen.started()
        return seen

    def forget(self, name: str) -> None:
        """A subscriber was forgotten: a later one of its name is another one."""
        self.subscribers.pop(name, None)
        self.letters.forget(name)

    def put(self, series: Series, first: int, payloads: list[bytes], node: str) -> None:
        """A program publishes. After a crash it may use a seq again, if the first event was never stored."""
        self.node_of[series] = node
        by_seq = self._put.setdefault(series, {})
        for seq, payload in enumerate(payloads, first):
            by_seq.setdefault(seq, []).append(payload)
        self._put_at.setdefault(series, []).append((self.clock.now, first, first + len(payloads)))

    def confirm(self, series: Series, seq: int, payload: bytes) -> None:
        """A program was told that its event is stored."""
        before = self.confirmed.setdefault(series, {}).setdefault(seq, payload)
        if before != payload:
            self.blame(f"{name_of(series)} {seq} was confirmed to two runs of its publisher")

    def check_known(self, name: str, batch: Batch) -> None:
        """Report events that nobody published."""
        if batch.topic == DEAD_LETTER_TOPIC:
            self._check_dead_letters(name, batch)
            return
        series = (batch.topic, batch.source)
        by_seq = self._put.get(series, {})
        for seq, payload in enumerate(batch.payloads(), batch.first):
            if payload not in by_seq.get(seq, ()):
                self.blame(f"{name} received {name_of(series)} {seq}, which nobody published")

    def _check_dead_letters(self, name: str, batch: Batch) -> None:
        for payload in batch.payloads():
            try:
                letter = read_letter(payload)
            except MalformedFrame as error:
                self.blame(f"{name} received an unreadable dead letter: {error.what}")
                continue
            put = self._put.get((letter.topic, letter.source), {}).get(letter.seq, [])
            if not put or (letter.has_payload and letter.payload not in put):
                self.blame(f"{name} received a dead letter of an event that nobody published: {letter}")

    # -- at the end

    def judge(
        self, nodes: Sequence[JudgedNode], loses: bool, ttl_ms: int = 0, lease_s: float = 0.0
    ) -> list[str]:
        """Check everything that must hold once all programs are idle. Returns the problems.

        `loses` says whether retention may remove events that are owed. Only with a ttl or with leases may an event
        become a dead letter without a disposition of the application.
        """
        for node in nodes:
            self.letters.read(node)
            stored, reasons = self._judge_journal(node), ValidReasons(node, ttl_ms, lease_s)
            for seen in self.subscribers.values():
                if seen.kind.node == node.name:
                    self._judge_subscriber(seen, node, stored, loses, reasons)
            for row in node.journal.ledger.rows(node.core.dispatch.in_hand()):
                owner = self.subscribers.get(row.subscriber)
                is_open = row.in_flight and not (owner and owner.is_forgotten)
                if not row.balanced or is_open:
                    self.blame(f"{node.name}: the ledger has a row that is unbalanced or in flight: {row}")
        return self.problems

    def _judge_journal(self, node: JudgedNode) -> dict[Series, SeqSet]:
        """Every confirmed event is stored, once, as it was published. Returns the stored events."""
        journal = node.journal
        stored: dict[Series, SeqSet] = {}
        position = journal.start
        while position < journal.end:
            run = journal.read(position)
            position = run.next_position
            for entry in run.entries:
                batch = Batch.parse(journal.fetch(entry))
                series = (batch.topic, batch.source)
                self.check_known(f"the journal of {node.name}", batch)
                for bounds in overlap(stored, series, (batch.first, batch.stop)):
                    self.blame(f"{node.name} stored {name_of(series)} {bounds} twice")
                stored.setdefault(series, SeqSet()).add(batch.first, batch.stop)
                confirmed = self.confirmed.get(series, {})
                for seq, payload in enumerate(batch.payloads(), batch.first):
                    if confirmed.get(seq, payload) != payload:
                        self.blame(f"{node.name} stored another {name_of(series)} {seq} than it confirmed")
        for series, by_seq in self.confirmed.items():
            if self.node_of[series] == node.name:
                held = stored.get(series, SeqSet())
                first_held = journal.first_held(*series)
                missing = [seq for seq in by_seq if seq >= first_held and seq not in held]
                if missing:
                    self.blame(f"{node.name} confirmed and has not stored {name_of(series)} {missing}")
        return stored

    def _judge_subscriber(
        self,
        seen: ObservedSubscriber,
        node: JudgedNode,
        stored: dict[Series, SeqSet],
        loses: bool,
        reasons: ValidReasons,
    ) -> None:
        """The subscriber received the events it is owed, and every event ended as the application said."""
        if seen.opened_at is None or seen.is_forgotten:
            return
        account = node.journal.ledger.accounts.get(seen.name)
        if seen.kind.durable and account is None:
            self.blame(f"{node.name} no longer knows {seen.name}")
            return
        for series in self._put:
            if self.node_of[series] != node.name or not seen.kind.pattern.matches(series[0]):
                continue
            ends = None if account is None else account.ends.get(series, {})
            if seen.is_alive:
                owed = self._owed(seen, series, stored.get(series, SeqSet()))
                missing = owed.difference(self._accounted_for(seen, series, ends, loses))
                self._blame_all(seen, series, missing, "never came")
            if ends is not None:
                self._judge_ends(seen, series, ends, reasons)

    def _accounted_for(
        self, seen: ObservedSubscriber, series: Series, ends: dict[FinalOutcome, SeqSet] | None, loses: bool
    ) -> SeqSet:
        """Events that the application received or need not have received. `ends` is the ledger's account, if any."""
        received = seen.received.get(series, SeqSet())
        if ends is None:
            return received.union(seen.lost.get(series, SeqSet()))
        if loses:
            received = received.union(ends.get(FinalOutcome.LOST, SeqSet()))
        return received.union(self._unseen(seen, series, ends.get(FinalOutcome.DEAD_LETTERED, SeqSet())))

    def _owed(self, seen: ObservedSubscriber, series: Series, stored: SeqSet) -> SeqSet:
        """The stored events that were published after the subscription was confirmed; with history, all stored ones."""
        assert seen.opened_at is not None
        if seen.kind.history and seen.kind.durable:
            return stored
        confirmed = SeqSet.from_ranges((seq, seq + 1) for seq in self.confirmed.get(series, {}))
        later = [row[1:] for row in self._put_at[series] if row[0] > seen.opened_at]
        return SeqSet.from_ranges(later).intersection(stored.union(confirmed))

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
        said = {outcome: by_series.get(series, SeqSet()) for outcome, by_series in seen.said.items()}
        accepted, dead = (
            ends.get(FinalOutcome.ACCEPTED, SeqSet()),
            ends.get(FinalOutcome.DEAD_LETTERED, SeqSet()),
        )
        self._blame_all(seen, series, accepted.difference(said[Outcome.ACCEPTED]), "was never accepted")
        for seq in [seq for bounds in dead.ranges() for seq in range(*bounds)]:
            self._judge_dead_letters(seen, series, seq, reasons)

    def _judge_dead_letters(
        self, seen: ObservedSubscriber, series: Series, seq: int, reasons: ValidReasons
    ) -> None:
        """A dead letter was written, and its reason is true."""
        letters = self.letters.of(seen.name, series, seq)
        put_s = min(at for at, start, stop in self._put_at[series] if start <= seq < stop)
        if not letters:
            self.blame(
                f"{seen.name}: {name_of(series)} {seq} was dead-lettered, but no dead letter was written"
            )
        elif not any(reasons.allow(letter, seen, put_s) for letter in letters):
            why = [(one.reason, one.died_us - START_US, one.tries) for one in letters]
            self.blame(f"{seen.name}: {name_of(series)} {seq} is a dead letter with a false reason: {why}")

    def _blame_all(self, seen: ObservedSubscriber, series: Series, seqs: SeqSet, what: str) -> None:
        for start, stop in seqs.ranges():
            self.blame(f"{seen.name}: {name_of(series)} [{start}, {stop}) {what}")
