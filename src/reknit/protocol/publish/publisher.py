"""The publisher's side of one source: numbers events, holds them until they are durable, resends them if necessary.

The bytes of a batch are made once. A resend is the identical bytes under the same seqs, so that the node can drop
what it has by a range check. `TRANSITIONS` is the whole state machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, assert_never

import msgspec

from reknit.batch import Batch
from reknit.errors import TooFewCopies
from reknit.frame import Buffer
from reknit.lineage import FORGOTTEN, lasting_source
from reknit.protocol.effects import SendToNode
from reknit.protocol.machine import Connected, Disconnected, Machine, Peer
from reknit.protocol.publish.storage_acks import StorageAcks
from reknit.wire.links import Skip
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse
from reknit.wire.recovery import Require, Stored

__all__ = [
    "RESEND_S",
    "Confirm",
    "Connected",
    "Disconnected",
    "Effect",
    "Input",
    "Numbered",
    "PublishRefused",
    "PublisherState",
    "SendBytes",
    "SendToNode",
    "SourcePublisher",
]  # fmt: skip

RESEND_S: Final = 2.0
"""How long a publisher that wants its events stored by several caches waits before it resends them."""


class PublisherState(Enum):
    """The state of a publisher at its node."""

    DISCONNECTED = "disconnected"
    """Events are numbered and held."""
    DECLARING = "declaring"
    """Connected, and waiting for the node to report this source's last seq: nothing is numbered yet."""
    FLOWING = "flowing"
    """Events are sent as they are made."""
    HELD = "held"
    """The node asked to wait."""
    REFUSED = "refused"
    """The node will never take this source's events."""


class SendBytes(msgspec.Struct, frozen=True):
    """Send a batch's bytes."""

    data: Buffer


class Confirm(msgspec.Struct, frozen=True):
    """Everything before `stop` is durable."""

    stop: int


class PublishRefused(msgspec.Struct, frozen=True):
    """Events from `start` on are not taken, and why."""

    start: int
    code: int
    text: str


class Numbered(msgspec.Struct, frozen=True):
    """The source's next seq is known now."""

    next_seq: int


FromNode = Ack | Expect | Refuse | Hold | Go | Stored
Input = Connected | Disconnected | FromNode
Effect = SendBytes | SendToNode | Confirm | PublishRefused | Numbered

_State = PublisherState
TRANSITIONS: Final[dict[tuple[PublisherState, type[Any]], PublisherState]] = {
    # A lasting source whose past is not known yet goes to DECLARING.
    (_State.DISCONNECTED, Connected): _State.FLOWING,
    (_State.FLOWING, Disconnected): _State.DISCONNECTED,
    (_State.HELD, Disconnected): _State.DISCONNECTED,
    (_State.DECLARING, Disconnected): _State.DISCONNECTED,
    (_State.DECLARING, Ack): _State.FLOWING,
    (_State.DECLARING, Hold): _State.DECLARING,
    (_State.DECLARING, Go): _State.DECLARING,
    (_State.FLOWING, Ack): _State.FLOWING,
    (_State.FLOWING, Stored): _State.FLOWING,
    (_State.HELD, Stored): _State.HELD,
    (_State.FLOWING, Expect): _State.FLOWING,
    (_State.FLOWING, Go): _State.FLOWING,
    (_State.FLOWING, Hold): _State.HELD,
    (_State.HELD, Hold): _State.HELD,
    (_State.HELD, Ack): _State.HELD,
    (_State.HELD, Expect): _State.HELD,
    (_State.HELD, Go): _State.FLOWING,
    (_State.FLOWING, Refuse): _State.REFUSED,
    (_State.HELD, Refuse): _State.REFUSED,
    (_State.DECLARING, Refuse): _State.REFUSED,
}
WITHOUT_EFFECT: Final[frozenset[tuple[PublisherState, type[Any]]]] = frozenset(
    [
        # The node's messages about events that are over, or that crossed a change of state on the way.
        *[(_State.DISCONNECTED, kind) for kind in (Ack, Expect, Refuse, Hold, Go, Stored, Disconnected)],
        *[(_State.DECLARING, kind) for kind in (Expect, Stored)],
        # Refused is final, even after a reconnection.
        *[
            (_State.REFUSED, kind)
            for kind in (Ack, Expect, Refuse, Hold, Go, Stored, Connected, Disconnected)
        ],
    ]
)
"""Inputs that are legal and change nothing. Any other input that is not in `TRANSITIONS` raises."""


class SourcePublisher:
    """One source on one topic.

    >>> publisher = SourcePublisher(b"s" * 16, "plant/temp")
    >>> publisher.receive(Connected(), "node", 0.0)
    >>> publisher.put([b"21.5", b"21.6"], time_us=0).stop
    3
    >>> [type(effect).__name__ for effect in publisher.take_effects()]
    ['SendBytes']
    >>> publisher.receive(Ack(b"s" * 16, 2), "node", 0.1)
    >>> publisher.take_effects()
    [Confirm(stop=3)]
    """

    def __init__(
        self, source: bytes, topic: str, lasting: bool = False, stored_by: int = 1, lineage: str = ""
    ) -> None:
        self.source = source
        self.topic = topic
        self._lineage = lineage
        """If it is given, the source is the one of this lineage in the node's journal, which its epoch decides."""
        self.state = PublisherState.DISCONNECTED
        self.next_seq = 1
        self.lasting = lasting
        """A lasting source has a past at the node. It is declared on every connection: the latest one speaks for it."""
        self.numbered = not lasting
        """Whether the next seq is known: a lasting source continues where the node says."""
        self.unacked: deque[Batch] = deque()
        self.unacked_bytes = 0
        self._storage_acks = StorageAcks(stored_by) if stored_by > 1 else None
        self._resend_at: float | None = None
        self._resends = 0
        """How often the first event that too few caches have was sent again."""
        self._is_origin = False
        """Whether events get their seqs here: then nobody else can have those that are missing."""
        self._effects: list[Effect] = []

    def put(self, payloads: Sequence[Buffer], time_us: int, **fields: Any) -> Batch:
        """Number these events, hold them until they are durable, and send them if that is possible now."""
        assert self.numbered, "a lasting source gets seqs only after the node has reported its last one"
        batch = Batch.build(self.source, self.topic, self.next_seq, payloads, time_us, **fields)
        self._is_origin = True
        self.forward(batch)
        return batch

    def forward(self, batch: Batch) -> None:
        """Hold and send a ready-made batch, under its own seqs."""
        self.next_seq = batch.stop
        self.unacked.append(batch)
        self.unacked_bytes += batch.head.length
        if self.state is PublisherState.FLOWING:
            self._effects.append(SendBytes(batch.data))

    def pass_over(self, stop: int) -> int:
        """The node will never take the events before `stop`: nobody waits for them. Returns how many these are."""
        count = 0
        while self.unacked and self.unacked[0].stop <= stop:
            batch = self.unacked.popleft()
            self.unacked_bytes -= batch.head.length
            count += batch.count
        self._effects.append(Confirm(stop))
        return count

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the node, or about the connection to it. Raises for an input that no driver may give in this state."""
        state = TRANSITIONS.get((self.state, type(message)))
        if state is None:
            if (self.state, type(message)) in WITHOUT_EFFECT:
                return
            raise ValueError(
                f"a publisher that is {self.state.value} can't receive {message!r}: disconnect it first"
            )
        match message:
            case Connected(epoch=epoch):
                self.incarnate(epoch)
                self._connected(peer)
                return
            case Disconnected():
                pass
            case Ack(seq=seq):
                self._ack(seq, peer)
            case Stored(seq=seq, cache=cache):
                self._ack(seq, cache)
            case Expect(seq=seq):
                self.state = state
                self._give_up_forgotten(seq)
                self._resend(seq)
            case Refuse(start=start, code=code, text=text):
                self._refuse(start, code, text)
            case Hold():
                pass
            case Go():
                self.state = state
                self._resend(self._first_unacked())
            case _:
                assert_never(message)
        self.state = state

    def incarnate(self, epoch: str) -> None:
        """Take the source that belongs to the journal with this epoch. Once it has seqs, a source never changes."""
        if self._lineage and not self.numbered and epoch:
            self.source = lasting_source(self._lineage, epoch)

    def _connected(self, peer: Peer) -> None:
        if self.lasting:
            self._effects.append(SendToNode(Declare(self.source, self.topic)))
        if self._storage_acks is not None:
            self._storage_acks.forget(peer)
            self._effects.append(SendToNode(Require(self.source, self.topic)))
        if not self.numbered:
            self.state = PublisherState.DECLARING
            return
        self.state = PublisherState.FLOWING
        self._resend(self._first_unacked())

    def _give_up_forgotten(self, seq: int) -> None:
        """The node may ask for events that it acknowledged: its journal is an older copy. Nobody holds them here, so
        they are lost there, which the node records. Without that it would wait for them for ever."""
        first = self._first_unacked()
        if self._is_origin and seq < first:
            self._effects.append(SendToNode(Skip(self.topic, self.source, seq, first, FORGOTTEN)))

    def _first_unacked(self) -> int:
        return self.unacked[0].first if self.unacked else self.next_seq

    def _resend(self, seq: int) -> None:
        """Send everything from `seq` on that is held."""
        if self.state is not PublisherState.FLOWING:
            return
        self._effects += [SendBytes(batch.data) for batch in self.unacked if batch.stop > seq]

    def _ack(self, seq: int, cache: Peer) -> None:
        if not self.numbered:
            self.numbered = True
            self.next_seq = seq + 1
            self._effects.append(Numbered(self.next_seq))
            return
        if self._storage_acks is not None:
            seq = self._storage_acks.note(cache, seq)
        confirmed = 0
        while self.unacked and self.unacked[0].stop <= seq + 1:
            batch = self.unacked.popleft()
            self.unacked_bytes -= batch.head.length
            confirmed = batch.stop
        if confirmed:
            self._resends = 0
            self._effects.append(Confirm(confirmed))

    def _refuse(self, start: int, code: int, text: str) -> None:
        self.unacked.clear()
        self.unacked_bytes = 0
        self._effects.append(PublishRefused(start, code, text))

    def tick(self, now: float) -> None:
        """Resend events that too few caches have stored. Finding a dead connection is the driver's task."""
        if self._storage_acks is None or not self.unacked:
            self._resend_at, self._resends = None, 0
        elif self._resend_at is None:
            self._resend_at = now + RESEND_S
        elif now >= self._resend_at and self.state is PublisherState.FLOWING:
            self._resend_at = now + RESEND_S
            self._resends += 1
            self._effects.append(SendToNode(Require(self.source, self.topic)))
            self._resend(self._first_unacked())

    def shortage(self, resends: int = 0) -> TooFewCopies | None:
        """What is missing if too few caches have stored the first event, and it was sent again so often."""
        if self._storage_acks is None or not self.unacked or self._resends < resends:
            return None
        first = self._first_unacked()
        copies = self._storage_acks.count(first)
        return TooFewCopies(self.topic, first, copies, self._storage_acks.wanted)

    def next_deadline(self) -> float | None:
        """When events that too few caches have stored are sent again."""
        return self._resend_at

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self._effects = self._effects, []
        return effects


_MACHINE: type[Machine[Input, Effect]] = SourcePublisher
