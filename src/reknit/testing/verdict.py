"""The verdict: what applications saw, held against what publishers were promised and what the ledger says.

The witness stands outside the machines. It knows what was put, what was confirmed, and what every application was
handed; it shares no code with what it judges, but for the ledger, whose every row has to agree with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from reknit.batch import Batch
from reknit.ledger import Stream
from reknit.node.core.dead_letters import read_letter
from reknit.outcome import End, Outcome
from reknit.protocol.subscribe.subscriber import LossReport
from reknit.seqset import SeqSet
from reknit.testing.clock import START_US, Clock
from reknit.testing.dead_letters import DEAD_LETTER_TOPIC, Grounds, WrittenLetters, may_be_unseen
from reknit.topic import Pattern

if TYPE_CHECKING:
    from reknit.testing.nodes import SimNode


class Seen:
    """What one subscriber's application saw: a durable one over all its lives, an ephemeral one in its only life."""

    def __init__(
        self, name: str, node: str, pattern: str, durable: bool, history: bool, witness: Witness
    ) -> None:
        self.name = name
        self.node = node
        self.pattern = Pattern(pattern)
        self.durable = durable
        self.history = history
        self.opened_at: float | None = None
        """When its subscription was first confirmed: from then on it is owed everything."""
        self.is_alive = True
        self.is_forgotten = False
        """It asked to be forgotten; nobody knows whether it was heard."""
        self.ever: dict[Stream, SeqSet] = {}
        self.said: dict[Outcome, dict[Stream, SeqSet]] = {outcome: {} for outcome in Outcome}
        self.failed: dict[Stream, dict[int, int]] = {}
        """How often it said of an event that it failed."""
        self.lost: dict[Stream, SeqSet] = {}
        self._ended: dict[Stream, SeqSet] = {}
        self._in_hand: dict[Stream, SeqSet] = {}
        self._next: dict[Stream, int] = {}
        self._witness = witness

    def opened(self) -> None:
        if self.opened_at is None:
            self.opened_at = self._witness.clock.now

    def crashed(self) -> None:
        """The process is gone with all that it knew."""
        self.is_alive = False
        self._in_hand.clear()
        self._next.clear()

    def handed(self, batch: Batch) -> None:
        """The application got a batch."""
        stream, bounds = (batch.topic, batch.source), (batch.first, batch.stop)
        self._witness.check_known(self.name, batch)
        self._blame(stream, _overlap(self._ended, stream, bounds), "came again after its end was booked")
        self._blame(stream, _overlap(self._in_hand, stream, bounds), "came twice to one process")
        expected = self._next.get(stream, batch.first)
        if batch.attempt == 1 and batch.first < expected and not (batch.ordered_to and self.durable):
            self._blame(stream, [(batch.first, min(batch.stop, expected))], f"came after {expected - 1}")
        if not self.durable and batch.first > expected:
            gap = self.lost.get(stream, SeqSet()).missing(expected, batch.first)
            self._blame(stream, gap, "is missing, and was not reported as lost")
        self._next[stream] = max(expected, batch.stop)
        self._in_hand.setdefault(stream, SeqSet()).add(*bounds)
        self.ever.setdefault(stream, SeqSet()).add(*bounds)

    def settled(self, stream: Stream, start: int, stop: int, outcome: Outcome) -> None:
        """The application said what became of events."""
        self.said[outcome].setdefault(stream, SeqSet()).add(start, stop)
        if outcome is Outcome.FAILED:
            counts = self.failed.setdefault(stream, {})
            counts.update({seq: counts.get(seq, 0) + 1 for seq in range(start, stop)})
        if not outcome.is_final:
            self._in_hand.setdefault(stream, SeqSet()).discard(start, stop)

    def revoked(self, stream: Stream, start: int, stop: int) -> None:
        """Its lease ran out: it may come again, and that counts as a failure."""
        self.said[Outcome.LEASE_LOST].setdefault(stream, SeqSet()).add(start, stop)
        self._in_hand.setdefault(stream, SeqSet()).discard(start, stop)

    def booked(self, stream: Stream, start: int, stop: int) -> None:
        """The node promised to remember that these have ended."""
        self._ended.setdefault(stream, SeqSet()).add(start, stop)

    def reported_lost(self, report: LossReport) -> None:
        self.lost.setdefault((report.topic, report.source), SeqSet()).add(report.start, report.stop)

    def _blame(self, stream: Stream, ranges: Iterable[tuple[int, int]], what: str) -> None:
        for start, stop in ranges:
            self._witness.blame(f"{self.name}: {name_of(stream)} [{start}, {stop}) {what}")


class Witness:
    """Sees everything, and collects what is wrong in `problems`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.problems: list[str] = []
        self.subscribers: dict[str, Seen] = {}
        self.confirmed: dict[Stream, dict[int, bytes]] = {}
        self._put: dict[Stream, dict[int, list[bytes]]] = {}
        self._put_at: dict[Stream, list[tuple[float, int, int]]] = {}
        self.node_of: dict[Stream, str] = {}
        self.letters = WrittenLetters()

    def blame(self, problem: str) -> None:
        self.problems.append(f"at {self.clock.now:.4f}: {problem}")

    def subscriber(self, name: str, node: str, pattern: str, durable: bool, history: bool) -> Seen:
        seen = self.subscribers.get(name)
        if seen is None:
            seen = self.subscribers[name] = Seen(name, node, pattern, durable, history, self)
        seen.is_alive = True
        return seen

    def forget(self, name: str) -> None:
        """A subscriber is no more: who comes under its name is another."""
        self.subscribers.pop(name, None)
        self.letters.forget(name)

    def put(self, stream: Stream, first: int, payloads: list[bytes], node: str) -> None:
        """A program publishes. One that crashed may give a seq once more, if the first was never kept."""
        self.node_of[stream] = node
        by_seq = self._put.setdefault(stream, {})
        for seq, payload in enumerate(payloads, first):
            by_seq.setdefault(seq, []).append(payload)
        self._put_at.setdefault(stream, []).append((self.clock.now, first, first + len(payloads)))

    def confirm(self, stream: Stream, seq: int, payload: bytes) -> None:
        """A program was told that its event is kept."""
        before = self.confirmed.setdefault(stream, {}).setdefault(seq, payload)
        if before != payload:
            self.blame(f"{name_of(stream)} {seq} was confirmed to two lives of its publisher")

    def check_known(self, name: str, batch: Batch) -> None:
        """Nobody gets what nobody published."""
        if batch.topic == DEAD_LETTER_TOPIC:
            self._check_letters(name, batch)
            return
        stream = (batch.topic, batch.source)
        by_seq = self._put.get(stream, {})
        for seq, payload in enumerate(batch.payloads(), batch.first):
            if payload not in by_seq.get(seq, ()):
                self.blame(f"{name} got {name_of(stream)} {seq}, which nobody published")

    def _check_letters(self, name: str, batch: Batch) -> None:
        for payload in batch.payloads():
            try:
                letter = read_letter(payload)
            except msgspec.DecodeError as error:
                self.blame(f"{name} got a dead letter that can't be read: {error}")
                continue
            put = self._put.get((letter.topic, letter.source), {}).get(letter.seq, [])
            if not put or (letter.has_payload and letter.payload not in put):
                self.blame(f"{name} got a dead letter for what nobody published: {letter}")

    # -- at the end

    def judge(self, nodes: list[SimNode], loses: bool, ttl_ms: int = 0, lease_s: float = 0.0) -> list[str]:
        """Everything that must hold once all is quiet.

        `loses` says whether retention may take what is owed. Only with a ttl, or leases that ran out unheard, events
        may become dead letters without a word from the application.
        """
        for node in nodes:
            self.letters.read(node)
            kept, grounds = self._judge_journal(node), Grounds(node, ttl_ms, lease_s)
            for seen in self.subscribers.values():
                if seen.node == node.name:
                    self._judge_subscriber(seen, node, kept, loses, grounds)
            for row in node.journal.ledger.rows(node.core.dispatch.in_hand()):
                owner = self.subscribers.get(row.subscriber)
                is_open = row.in_flight and not (owner and owner.is_forgotten)
                if not row.balanced or is_open:
                    self.blame(f"{node.name}: the ledger does not come to rest: {row}")
        return self.problems

    def _judge_journal(self, node: SimNode) -> dict[Stream, SeqSet]:
        """Every confirmed event is kept, once, as it was put."""
        journal = node.journal
        kept: dict[Stream, SeqSet] = {}
        position = journal.start
        while position < journal.end:
            run = journal.read(position)
            position = run.next_position
            for entry in run.entries:
                batch = Batch.parse(journal.fetch(entry))
                stream = (batch.topic, batch.source)
                self.check_known(f"the journal of {node.name}", batch)
                for bounds in _overlap(kept, stream, (batch.first, batch.stop)):
                    self.blame(f"{node.name} keeps {name_of(stream)} {bounds} twice")
                kept.setdefault(stream, SeqSet()).add(batch.first, batch.stop)
                confirmed = self.confirmed.get(stream, {})
                for seq, payload in enumerate(batch.payloads(), batch.first):
                    if confirmed.get(seq, payload) != payload:
                        self.blame(f"{node.name} keeps another {name_of(stream)} {seq} than it confirmed")
        for stream, by_seq in self.confirmed.items():
            if self.node_of[stream] == node.name:
                held_from = journal.first_held(*stream)
                missing = [
                    seq for seq in by_seq if seq >= held_from and seq not in kept.get(stream, SeqSet())
                ]
                if missing:
                    self.blame(f"{node.name} confirmed and does not keep {name_of(stream)} {missing}")
        return kept

    def _judge_subscriber(
        self, seen: Seen, node: SimNode, kept: dict[Stream, SeqSet], loses: bool, grounds: Grounds
    ) -> None:
        if seen.opened_at is None or seen.is_forgotten:
            return
        account = node.journal.ledger.accounts.get(seen.name)
        if seen.durable and account is None:
            self.blame(f"{node.name} does not know {seen.name} any more")
            return
        for stream in self._put:
            if self.node_of[stream] != node.name or not seen.pattern.matches(stream[0]):
                continue
            owed = self._owed(seen, stream, kept.get(stream, SeqSet()))
            got = seen.ever.get(stream, SeqSet())
            if account is None:
                got = got.union(seen.lost.get(stream, SeqSet()))
            elif loses:
                got = got.union(account.ends.get(stream, {}).get(End.LOST, SeqSet()))
            if account is not None:
                dead = account.ends.get(stream, {}).get(End.DEAD_LETTERED, SeqSet())
                got = got.union(self._unseen(seen, stream, dead))
            if seen.is_alive:
                self._blame_all(seen, stream, owed.difference(got), "never came")
            if account is not None:
                self._judge_ends(seen, stream, account.ends.get(stream, {}), grounds)

    def _owed(self, seen: Seen, stream: Stream, kept: SeqSet) -> SeqSet:
        """What was put after the subscription stood, and was kept; with history all that is still there."""
        assert seen.opened_at is not None
        if seen.history and seen.durable:
            return kept
        confirmed = SeqSet.from_ranges((seq, seq + 1) for seq in self.confirmed.get(stream, {}))
        later = [row[1:] for row in self._put_at[stream] if row[0] > seen.opened_at]
        return SeqSet.from_ranges(later).intersection(kept.union(confirmed))

    def _unseen(self, seen: Seen, stream: Stream, dead: SeqSet) -> SeqSet:
        """The dead letters whose events need not have come to the application."""
        seqs = [seq for bounds in dead.ranges() for seq in range(*bounds)]
        unseen = [seq for seq in seqs if any(map(may_be_unseen, self.letters.of(seen.name, stream, seq)))]
        return SeqSet.from_ranges((seq, seq + 1) for seq in unseen)

    def _judge_ends(self, seen: Seen, stream: Stream, ends: dict[End, SeqSet], grounds: Grounds) -> None:
        """An event ended as the application said."""
        said = {outcome: by_stream.get(stream, SeqSet()) for outcome, by_stream in seen.said.items()}
        accepted, dead = ends.get(End.ACCEPTED, SeqSet()), ends.get(End.DEAD_LETTERED, SeqSet())
        self._blame_all(seen, stream, accepted.difference(said[Outcome.ACCEPTED]), "was never accepted")
        for seq in [seq for bounds in dead.ranges() for seq in range(*bounds)]:
            self._judge_letters(seen, stream, seq, grounds)

    def _judge_letters(self, seen: Seen, stream: Stream, seq: int, grounds: Grounds) -> None:
        """A dead letter was written, and what it says is so."""
        letters = self.letters.of(seen.name, stream, seq)
        put_s = min(at for at, start, stop in self._put_at[stream] if start <= seq < stop)
        if not letters:
            self.blame(f"{seen.name}: {name_of(stream)} {seq} ended as a dead letter that was never written")
        elif not any(grounds.bears_out(letter, seen, put_s) for letter in letters):
            why = [(one.reason, one.died_us - START_US, one.tries) for one in letters]
            self.blame(f"{seen.name}: {name_of(stream)} {seq} is a dead letter for no reason: {why}")

    def _blame_all(self, seen: Seen, stream: Stream, seqs: SeqSet, what: str) -> None:
        for start, stop in seqs.ranges():
            self.blame(f"{seen.name}: {name_of(stream)} [{start}, {stop}) {what}")


def name_of(stream: Stream) -> str:
    """A stream for people."""
    return f"{stream[0]} of {stream[1].rstrip(b'_').decode(errors='replace')}"


def _overlap(sets: dict[Stream, SeqSet], stream: Stream, bounds: tuple[int, int]) -> list[tuple[int, int]]:
    seqs = sets.get(stream)
    return [] if seqs is None else seqs.overlap(*bounds)
