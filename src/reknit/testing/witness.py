"""The witness: holds what applications saw against what publishers were promised and what the ledger says.

It stands outside the machines. It knows what was put, what was confirmed and what every application received. It shares
no code with what it judges, except for the ledger, whose every row has to agree with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reknit.batch import Batch
from reknit.dead_letter import read_letter
from reknit.ledger import Stream
from reknit.outcome import End, Outcome
from reknit.seqset import SeqSet
from reknit.testing.clock import START_US, Clock
from reknit.testing.dead_letters import (
    DEAD_LETTER_TOPIC,
    Grounds,
    JudgedNode,
    WrittenLetters,
    may_be_unseen,
)
from reknit.testing.observed import ObservedSubscriber, name_of, overlap


class Witness:
    """Sees everything, and collects what is wrong in `problems`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.problems: list[str] = []
        self.subscribers: dict[str, ObservedSubscriber] = {}
        self.confirmed: dict[Stream, dict[int, bytes]] = {}
        self._put: dict[Stream, dict[int, list[bytes]]] = {}
        self._put_at: dict[Stream, list[tuple[float, int, int]]] = {}
        self.node_of: dict[Stream, str] = {}
        self.letters = WrittenLetters()

    def blame(self, problem: str) -> None:
        self.problems.append(f"at {self.clock.now:.4f}: {problem}")

    def subscriber(
        self, name: str, node: str, pattern: str, durable: bool, history: bool
    ) -> ObservedSubscriber:
        seen = self.subscribers.get(name)
        if seen is None:
            seen = self.subscribers[name] = ObservedSubscriber(name, node, pattern, durable, history, self)
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

    def judge(
        self, nodes: Sequence[JudgedNode], loses: bool, ttl_ms: int = 0, lease_s: float = 0.0
    ) -> list[str]:
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

    def _judge_journal(self, node: JudgedNode) -> dict[Stream, SeqSet]:
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
                for bounds in overlap(kept, stream, (batch.first, batch.stop)):
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
        self,
        seen: ObservedSubscriber,
        node: JudgedNode,
        kept: dict[Stream, SeqSet],
        loses: bool,
        grounds: Grounds,
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

    def _owed(self, seen: ObservedSubscriber, stream: Stream, kept: SeqSet) -> SeqSet:
        """What was put after the subscription stood, and was kept; with history all that is still there."""
        assert seen.opened_at is not None
        if seen.history and seen.durable:
            return kept
        confirmed = SeqSet.from_ranges((seq, seq + 1) for seq in self.confirmed.get(stream, {}))
        later = [row[1:] for row in self._put_at[stream] if row[0] > seen.opened_at]
        return SeqSet.from_ranges(later).intersection(kept.union(confirmed))

    def _unseen(self, seen: ObservedSubscriber, stream: Stream, dead: SeqSet) -> SeqSet:
        """The dead letters whose events need not have come to the application."""
        seqs = [seq for bounds in dead.ranges() for seq in range(*bounds)]
        unseen = [seq for seq in seqs if any(map(may_be_unseen, self.letters.of(seen.name, stream, seq)))]
        return SeqSet.from_ranges((seq, seq + 1) for seq in unseen)

    def _judge_ends(
        self, seen: ObservedSubscriber, stream: Stream, ends: dict[End, SeqSet], grounds: Grounds
    ) -> None:
        """An event ended as the application said."""
        said = {outcome: by_stream.get(stream, SeqSet()) for outcome, by_stream in seen.said.items()}
        accepted, dead = ends.get(End.ACCEPTED, SeqSet()), ends.get(End.DEAD_LETTERED, SeqSet())
        self._blame_all(seen, stream, accepted.difference(said[Outcome.ACCEPTED]), "was never accepted")
        for seq in [seq for bounds in dead.ranges() for seq in range(*bounds)]:
            self._judge_letters(seen, stream, seq, grounds)

    def _judge_letters(self, seen: ObservedSubscriber, stream: Stream, seq: int, grounds: Grounds) -> None:
        """A dead letter was written, and what it says is so."""
        letters = self.letters.of(seen.name, stream, seq)
        put_s = min(at for at, start, stop in self._put_at[stream] if start <= seq < stop)
        if not letters:
            self.blame(f"{seen.name}: {name_of(stream)} {seq} ended as a dead letter that was never written")
        elif not any(grounds.bears_out(letter, seen, put_s) for letter in letters):
            why = [(one.reason, one.died_us - START_US, one.tries) for one in letters]
            self.blame(f"{seen.name}: {name_of(stream)} {seq} is a dead letter for no reason: {why}")

    def _blame_all(self, seen: ObservedSubscriber, stream: Stream, seqs: SeqSet, what: str) -> None:
        for start, stop in seqs.ranges():
            self.blame(f"{seen.name}: {name_of(stream)} [{start}, {stop}) {what}")
