"""The node's side of publishing: takes each event once, in seq order, and acknowledges it when it is durable.

A batch is a range, so every decision is a comparison of two numbers:

batch                             effect
follows on                        Append; Send(Ack) when it is durable
follows on, and is scheduled      the same, and StoredForLater
ends before what is expected      dropped, Send(Ack) again
begins after what is expected     Send(Expect), once until the gap closes
is not admitted                   Send(Refuse), and RefusedBatch if it becomes a dead letter
comes from a superseded peer      Send(Refuse)
comes while the node is full      Send(Hold), and Send(Go) when there is room
is over a quota (rate_quotas.py)  Send(Hold), and Send(Go) when its publisher may go on

other input     effect
Declare         Send(Ack) with the source's last seq, once that is durable; or Send(Refuse)
MadeDurable     Send(Ack) for everything that became durable
StopIntake      Send(Hold) to all publishers
ResumeIntake    Send(Go) to all publishers
QueuesFull      Send(Go) if there are fewer full queues than before
LettersFull     Send(Go) if fewer publishers have to wait than before
PeerJoined      none
PeerLeft        none: nothing more is acknowledged to this peer
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from reknit.batch import TYPE_PUBLISH, Batch, Head
from reknit.frame import Buffer
from reknit.outcome import Code
from reknit.protocol.effects import Append, Mark, Send
from reknit.protocol.machine import JOURNAL, Machine, MadeDurable, Peer, PeerJoined, PeerLeft
from reknit.protocol.publish.admission import Admission, Inspect, IsOfNode, Permit, Refusal
from reknit.protocol.publish.asked_peers import AskedPeers
from reknit.protocol.publish.inputs import (
    LettersFull,
    QueuesFull,
    RefusedBatch,
    ResumeIntake,
    StopIntake,
    StoredForLater,
)
from reknit.protocol.publish.publisher_connections import Claim, PublisherConnections
from reknit.protocol.publish.rate_quotas import PublishQuotas
from reknit.protocol.publish.source_positions import SourcePositions
from reknit.protocol.publish.withholding import Withholding
from reknit.topic import TOPIC_BYTES_MAX, is_scheduled
from reknit.wire.codec import Frames
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Message, Refuse

SUPERSEDED: Final = "another connection now publishes as this source: give each program its own name"


Input = (
    Frames
    | Declare
    | MadeDurable
    | StopIntake
    | ResumeIntake
    | QueuesFull
    | LettersFull
    | PeerJoined
    | PeerLeft
)
Effect = Append | Mark | Send | RefusedBatch | StoredForLater


class Intake:
    """Takes events of many sources from many peers.

    >>> from reknit.batch import Batch
    >>> intake = Intake({})
    >>> batch = Batch.build(b"s" * 16, "plant/temp", 1, [b"21.5"], time_us=0)
    >>> intake.receive(Frames(batch.data, [batch.head]), "publisher", 0.0)
    >>> [append] = intake.take_effects()
    >>> intake.receive(MadeDurable(append.number), "journal", 0.1)
    >>> intake.take_effects()
    [Send(peer='publisher', message=Ack(source=b'ssssssssssssssss', seq=1))]
    """

    def __init__(
        self,
        durable: Mapping[bytes, int],
        sources_max: int = 1_000_000,
        events_max: int = 1 << 20,
        permit: Permit | None = None,
        inspect: Inspect | None = None,
        topic_bytes_max: int = TOPIC_BYTES_MAX,
        is_of_node: IsOfNode = lambda peer: False,
        quotas: PublishQuotas | None = None,
    ) -> None:
        self._quotas = quotas
        self._positions = SourcePositions(durable, sources_max)
        self._connections = PublisherConnections(sources_max)
        self._admission = Admission(events_max, permit, inspect, topic_bytes_max, is_of_node)
        self._expecting = AskedPeers()
        self._unacked: deque[tuple[int, Peer, dict[bytes, int]]] = deque()
        """(number, peer, {source: stop}): acknowledged when everything up to the number is durable."""
        self._refused: deque[tuple[int, Send]] = deque()
        """(number, refusal): told when the dead letters up to the number are durable."""
        self._number = self._durable_number = 0
        """The last number that was given to a writer, and the last one that is durable."""
        self.stopped = ""
        """Why no events are taken for now; empty while they are."""
        self._withheld = Withholding()
        self.effects: list[Effect] = []
        """What `take_effects` returns next."""
        self.duplicates = 0
        """Events that arrived again and were dropped."""

    @property
    def is_full(self) -> bool:
        return bool(self.stopped)

    def next_number(self) -> int:
        """The number of the next append, shared with all other writers to the same journal."""
        self._number += 1
        return self._number

    def set_clock(self, zero_us: int, future_s_max: float) -> None:
        """The time of day at `now` 0, and how far in the future an event's time may be; 0: any."""
        self._admission.set_clock(zero_us, future_s_max)

    def copies(self, peer: Peer) -> None:
        """A peer brings events that another node has stored: refusing them for their times would lose them."""
        self._admission.copies(peer)

    def expected(self, source: bytes) -> int:
        """The next seq that is taken of a known source."""
        return self._positions.expected(source)

    def skip(self, source: bytes, seq: int) -> None:
        """The missing events of a source before `seq` will never arrive: continue at `seq`.

        Somebody may still bring them, such as a link that was slower than the peer of which they were refused. They
        are acknowledged then, once the record that they are lost is durable: else it would wait for ever.
        """
        self._expecting.forget_source(source)
        if not self._positions.skip_to(source, seq):
            return
        if self._number <= self._durable_number:
            self._positions.made_durable(source, seq)
        else:
            self._unacked.append((self._number, JOURNAL, {source: seq}))

    def appended_here(self, number: int, stops: dict[bytes, int]) -> None:
        """The node itself appended events, before these seqs by source; durable with the number."""
        for source, stop in stops.items():
            self._positions.started(source)
            self._positions.advance(source, stop)
        self._unacked.append((number, JOURNAL, stops))

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a publisher, from the journal, or about a connection."""
        match message:
            case Frames():
                self._admission.at(now)
                frames = self._withhold(message, peer) if self._withheld.is_on else message
                if self._quotas is None or self.stopped:
                    self._take(frames, peer)
                else:
                    self._take_within(self._quotas, frames, peer, now)
            case MadeDurable(number=number):
                self._acknowledge(number)
            case Declare(source=source, topic=topic):
                self._declare(source, topic, peer)
            case QueuesFull(refuses=refuses, is_less=is_less):
                self._withheld.queues = refuses
                if is_less and not self.stopped:
                    self._go()
            case LettersFull(refuses=letters, is_less=is_less):
                self._withheld.letters = letters
                if is_less and not self.stopped:
                    self._go()
            case StopIntake(text=text):
                self._stop(text)
            case ResumeIntake():
                if self.stopped:
                    self.stopped = ""
                    self._go()
            case PeerJoined():
                self._connections.join(peer)
            case PeerLeft():
                self._forget(peer)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Those who waited for their quota may go on."""
        for peer in self._quotas.tick(now) if self._quotas is not None else ():
            self._expecting.forget_peer(peer)
            self._send(peer, Go())

    def next_deadline(self) -> float | None:
        """When a quota lets somebody go on."""
        return None if self._quotas is None else self._quotas.next_deadline()

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self.effects = self.effects, []
        return effects

    def _send(self, peer: Peer, message: Message) -> None:
        self.effects.append(Send(peer, message))

    # -- sources

    def _declare(self, source: bytes, topic: str, peer: Peer) -> None:
        """Report the last seq of a source, once it is certain: pending appends count."""
        if (refusal := self._admission.denied(source, topic, peer)) is not None:
            self._send(peer, Refuse(source, 1, 1, refusal.code, refusal.text))
            return
        self._connections.publishes(peer)
        match self._connections.claim(source, peer):
            case Claim.TOO_MANY:
                self._send(peer, Refuse(source, 1, 1, Code.RESOURCE_EXHAUSTED, self._too_many_sources()))
            case Claim.SUPERSEDED:
                self._send(peer, Refuse(source, 1, 1, Code.ABORTED, SUPERSEDED))
            case Claim.GRANTED if self._positions.is_settled(source):
                self._expecting.forget_source(source)
                self._send(peer, Ack(source, self._positions.durable(source)))
            case Claim.GRANTED:
                self._expecting.forget_source(source)
                self._unacked.append((self._number, peer, {source: self._positions.expected(source)}))

    def owner_changed(self, source: bytes) -> None:
        """A source belongs to somebody else: whoever publishes as it is asked for the right to."""
        self._admission.ask_again(source)

    def rights_changed(self) -> None:
        """The rules have changed: whoever publishes is asked for the right to."""
        self._admission.ask_all_again()

    def _too_many_sources(self) -> str:
        return f"the node already knows {self._positions.sources_max} sources (limits.sources_max)"

    # -- batches

    def _take(self, frames: Frames, peer: Peer) -> None:
        connection = self._connections.publishes(peer)
        if self.stopped:
            self._turn_away(frames.heads, peer, self.stopped)
            return
        claims, admission = self._connections.claims, self._admission
        permitted = admission.permitted(peer)
        nexts, topics, advance = self._positions.next_seqs, admission.topics, self._positions.advance
        events_max, latest_us = admission.events_max, admission.latest_us(peer)
        asked = self._expecting.by_source
        taken: list[Head] = []
        stops: dict[bytes, int] = {}
        at = taken_at = 0
        for head in frames.heads:
            source = head.source
            is_next = (  # and plain, and its topic is known to be valid
                head.first == nexts.get(source)
                and head.topic in topics
                and head.count <= events_max
                and head.time_us <= latest_us
                and head.type == TYPE_PUBLISH
                and not head.flags
                and (permitted is None or permitted.get(source) == head.topic)
                and (not claims or claims.get(source, connection) == connection)
            )
            if is_next:
                stops[source] = stop = head.first + head.count
                advance(source, stop)
                taken.append(head)
                if asked:
                    self._expecting.advance(source, stop, peer)
            else:
                self._append(peer, frames.data[taken_at:at], taken, stops)
                taken, stops = [], {}
                self._take_other(head, frames.data[at : at + head.length], peer)
                taken_at = at + head.length
            at += head.length
        self._append(peer, frames.data[taken_at:at], taken, stops)

    def _append(self, peer: Peer, data: Buffer, heads: list[Head], stops: dict[bytes, int]) -> None:
        if not heads:
            return
        number = self.next_number()
        self._unacked.append((number, peer, stops))
        self.effects.append(Append(number, data, heads, peer))

    def _take_other(self, head: Head, data: Buffer, peer: Peer) -> None:
        """A batch that is not simply the next of a known source."""
        expected = self._positions.begin_of(head.source, head.first)
        if (refusal := self._admission.denied(head.source, head.topic, peer)) is not None:
            self._refuse(Batch(head, data), peer, refusal)
        elif not self._connections.speaks_for(head.source, peer) and not self._is_known_copy(head, peer):
            self._send(peer, Refuse(head.source, head.first, head.stop, Code.ABORTED, SUPERSEDED))
        elif head.stop <= expected:
            self.duplicates += head.count
            self._acknowledge_again(head, peer)
        elif head.first > expected:
            self._expect(head, expected, peer)
        elif (refusal := self._problem(Batch(head, data), peer)) is not None:
            self._refuse(Batch(head, data), peer, refusal)
        else:
            self.duplicates += expected - head.first
            batch = Batch(head, data).cut(expected, head.stop)
            self._positions.started(head.source)
            self._expecting.advance(head.source, head.stop, peer)
            self._positions.advance(head.source, head.stop)
            self._append(peer, bytes(batch.data), [batch.head], {head.source: head.stop})
            if is_scheduled(head.topic):
                self.effects.append(StoredForLater(self._number, batch))

    def _is_known_copy(self, head: Head, peer: Peer) -> bool:
        """Whether a relay or a bridge brings events that are here: maybe they were published here, and come back."""
        is_known = head.stop <= self._positions.begin_of(head.source, head.first)
        return is_known and not self._connections.was_superseded(head.source, peer)

    def _acknowledge_again(self, head: Head, peer: Peer) -> None:
        """Known events: acknowledge those that are durable, and the rest when it becomes durable."""
        durable = self._positions.durable(head.source)
        if durable:
            self._send(peer, Ack(head.source, durable))
        if durable + 1 < head.stop and self._unacked:
            self._unacked.append((self._number, peer, {head.source: head.stop}))

    def _expect(self, head: Head, expected: int, peer: Peer) -> None:
        """A gap: ask for the missing events, once until it closes."""
        if self._expecting.ask(head.source, peer, head.first):
            self._send(peer, Expect(head.source, expected))

    def _problem(self, batch: Batch, peer: Peer) -> Refusal | None:
        """Why this batch is never taken."""
        if (refusal := self._admission.malformed(batch, peer)) is not None:
            return refusal
        if self._positions.is_over_limit(batch.source):
            return Refusal(Code.RESOURCE_EXHAUSTED, self._too_many_sources())
        return self._admission.inspect(batch, peer)

    def _refuse(self, batch: Batch, peer: Peer, refusal: Refusal) -> None:
        """Make dead letters of events, once, and tell their publisher when the dead letters are durable.

        Those of a publisher that has no right to publish are only counted.
        """
        source, stop = batch.source, batch.stop
        told = Send(peer, Refuse(source, batch.first, stop, refusal.code, refusal.text))
        if refusal.code is not Code.PERMISSION_DENIED:  # such a source does not begin at all
            self._positions.turned_away(source, batch.first)  # later events are not taken without it
        refused_to = stop if refusal.reason is None else self._positions.refuse(source, stop)
        if refused_to < stop:
            self.effects.append(RefusedBatch(peer, batch.cut(refused_to, stop), refusal))
            if not refusal.is_stored:
                self.effects.append(told)
                return
            number = self.next_number()
            self.effects.append(Mark(number))
            self._refused.append((number, told))
        elif refusal.reason is not None and self._refused:  # maybe of the same events, sent again
            self._refused.append((self._refused[-1][0], told))
        else:
            self.effects.append(told)

    def _acknowledge(self, number: int) -> None:
        self._durable_number = max(self._durable_number, number)
        while self._refused and self._refused[0][0] <= number:
            self.effects.append(self._refused.popleft()[1])
        acks: dict[tuple[Peer, bytes], int] = {}
        while self._unacked and self._unacked[0][0] <= number:
            _, peer, stops = self._unacked.popleft()
            for source, stop in stops.items():
                acks[peer, source] = self._positions.made_durable(source, stop)
        self.effects += [
            Send(peer, Ack(source, seq)) for (peer, source), seq in acks.items() if peer in self._connections
        ]

    # -- publishers that wait

    def _withhold(self, frames: Frames, peer: Peer) -> Frames:
        """The batches that need not stay at their publisher; the others are turned away."""
        taken, away, held = self._withheld.split(frames, peer)
        if away:
            self._connections.publishes(peer)
            self._turn_away(away, peer, next(iter(held.values())), list(held))
        return taken

    def _take_within(self, quotas: PublishQuotas, frames: Frames, peer: Peer, now: float) -> None:
        """Take the batches that the quota of their publisher allows. The others stay there until it may go on."""
        taken, away, text = quotas.split(frames, self._positions.next_seqs, peer, now)
        self._take(taken, peer)
        if text:  # after the batches before them: a source begins with the first that is not taken
            self._turn_away(away, peer, text)

    def _turn_away(self, heads: Sequence[Head], peer: Peer, text: str, sources: Sequence[bytes] = ()) -> None:
        """Take none of these for now. A new source does not begin with those of a connection that was superseded."""
        for head in heads:
            if self._connections.speaks_for(head.source, peer):
                self._positions.turned_away(head.source, head.first)
        self._send(peer, Hold(Code.RESOURCE_EXHAUSTED, text, list(sources)))

    def _stop(self, text: str) -> None:
        """The journal is full. Nothing that was appended is lost; new events stay at their publisher."""
        if not self.stopped:
            for peer in self._connections.publishing():
                self._send(peer, Hold(Code.RESOURCE_EXHAUSTED, text))
        self.stopped = text

    def _go(self) -> None:
        self._expecting.clear()
        for peer in self._connections.publishing():
            self._send(peer, Go())

    def _forget(self, peer: Peer) -> None:
        self._connections.leave(peer)
        self._admission.forget(peer)
        if self._quotas is not None:
            self._quotas.forget(peer)
        self._expecting.forget_peer(peer)


_MACHINE: type[Machine[Input, Effect]] = Intake
