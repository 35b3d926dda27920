"""The publishing side of one source: numbers events, holds them until they are kept, sends them again if need be.

The bytes of a batch are made once. A resend is the identical bytes under the same seqs, so that the node can drop
what it has by a range check.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, assert_never

import msgspec

from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.protocol.machine import Peer
from reknit.protocol.publish.storage_acks import Replies
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Message, Refuse
from reknit.wire.recovery import Require, Stored

RESEND_S: Final = 2.0
"""How long a publisher that wants its events stored by several caches waits before it sends them again."""


class State(Enum):
    """Where a publisher stands with its node."""

    APART = "apart"
    """No connection: events are numbered and held."""
    DECLARING = "declaring"
    """Connected, and waiting to hear how far this source has got: nothing is numbered yet."""
    FLOWING = "flowing"
    """Events go out as they are made."""
    HELD = "held"
    """The node asked to wait."""
    REFUSED = "refused"
    """The node will never take this source's events."""


class Connected(msgspec.Struct, frozen=True):
    """A connection to the node stands (again)."""


class Disconnected(msgspec.Struct, frozen=True):
    """The connection is gone."""


class SendBytes(msgspec.Struct, frozen=True):
    """Send a batch's bytes."""

    data: Buffer


class SendMessage(msgspec.Struct, frozen=True):
    """Send a message."""

    message: Message


class Confirm(msgspec.Struct, frozen=True):
    """Everything before `stop` is kept."""

    stop: int


class Refused(msgspec.Struct, frozen=True):
    """Events from `start` on are not taken, and why."""

    start: int
    code: int
    text: str


class Numbered(msgspec.Struct, frozen=True):
    """The source's next seq is known now."""

    next_seq: int


Input = Connected | Disconnected | Ack | Expect | Refuse | Hold | Go | Stored
Effect = SendBytes | SendMessage | Confirm | Refused | Numbered

TRANSITIONS: Final[dict[tuple[State, type[Any]], State]] = {
    (State.APART, Connected): State.FLOWING,  # or DECLARING, for a source with a past that is not known yet
    (State.FLOWING, Disconnected): State.APART,
    (State.HELD, Disconnected): State.APART,
    (State.DECLARING, Disconnected): State.APART,
    (State.DECLARING, Ack): State.FLOWING,
    (State.DECLARING, Hold): State.DECLARING,
    (State.DECLARING, Go): State.DECLARING,
    (State.FLOWING, Ack): State.FLOWING,
    (State.FLOWING, Stored): State.FLOWING,
    (State.HELD, Stored): State.HELD,
    (State.FLOWING, Expect): State.FLOWING,
    (State.FLOWING, Go): State.FLOWING,
    (State.FLOWING, Hold): State.HELD,
    (State.HELD, Hold): State.HELD,
    (State.HELD, Ack): State.HELD,
    (State.HELD, Expect): State.HELD,
    (State.HELD, Go): State.FLOWING,
    (State.FLOWING, Refuse): State.REFUSED,
    (State.HELD, Refuse): State.REFUSED,
    (State.DECLARING, Refuse): State.REFUSED,
}


class Publisher:
    """One source on one topic.

    >>> publisher = Publisher(b"s" * 16, "plant/temp")
    >>> publisher.receive(Connected(), "node", 0.0)
    >>> publisher.put([b"21.5", b"21.6"], time_us=0).stop
    3
    >>> [type(effect).__name__ for effect in publisher.take_effects()]
    ['SendBytes']
    >>> publisher.receive(Ack(b"s" * 16, 2), "node", 0.1)
    >>> publisher.take_effects()
    [Confirm(stop=3)]
    """

    def __init__(self, source: bytes, topic: str, lasting: bool = False, stored_by: int = 1) -> None:
        self.source = source
        self.topic = topic
        self.state = State.APART
        self.next_seq = 1
        self.lasting = lasting
        """A lasting source has a past at the node, and is declared on every connection: the last one speaks for it."""
        self.numbered = not lasting
        """Whether the next seq is known: a lasting source goes on where the node says."""
        self.unacked: deque[Batch] = deque()
        self.unacked_bytes = 0
        self._replies = Replies(stored_by) if stored_by > 1 else None
        self._resend_at: float | None = None
        self._effects: list[Effect] = []

    def put(self, payloads: Sequence[Buffer], time_us: int, **fields: Any) -> Batch:
        """Number these events, hold them until they are kept, and send them if that is possible now."""
        assert self.numbered, "a lasting source is numbered only after the node has told its past"
        batch = Batch.build(self.source, self.topic, self.next_seq, payloads, time_us, **fields)
        self.next_seq = batch.stop
        self.unacked.append(batch)
        self.unacked_bytes += batch.head.length
        if self.state is State.FLOWING:
            self._effects.append(SendBytes(batch.data))
        return batch

    def forward(self, batch: Batch) -> None:
        """Hold and send a batch that another made, under its own seqs."""
        self.next_seq = batch.stop
        self.unacked.append(batch)
        self.unacked_bytes += batch.head.length
        if self.state is State.FLOWING:
            self._effects.append(SendBytes(batch.data))

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An input from the node or about the connection to it. What does not fit the state changes nothing."""
        state = TRANSITIONS.get((self.state, type(message)))
        if state is None:
            return
        match message:
            case Connected():
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

    def _connected(self, peer: Peer) -> None:
        if self.lasting:
            self._effects.append(SendMessage(Declare(self.source, self.topic)))
        if self._replies is not None:
            self._replies.forget(peer)
            self._effects.append(SendMessage(Require(self.source, self.topic)))
        if not self.numbered:
            self.state = State.DECLARING
            return
        self.state = State.FLOWING
        self._resend(self._first_unacked())

    def _first_unacked(self) -> int:
        return self.unacked[0].first if self.unacked else self.next_seq

    def _resend(self, seq: int) -> None:
        """Send everything that is held from `seq` on."""
        if self.state is not State.FLOWING:
            return
        self._effects += [SendBytes(batch.data) for batch in self.unacked if batch.stop > seq]

    def _ack(self, seq: int, cache: Peer) -> None:
        if not self.numbered:
            self.numbered = True
            self.next_seq = seq + 1
            self._effects.append(Numbered(self.next_seq))
            return
        if self._replies is not None:
            seq = self._replies.note(cache, seq)
        confirmed = 0
        while self.unacked and self.unacked[0].stop <= seq + 1:
            batch = self.unacked.popleft()
            self.unacked_bytes -= batch.head.length
            confirmed = batch.stop
        if confirmed:
            self._effects.append(Confirm(confirmed))

    def _refuse(self, start: int, code: int, text: str) -> None:
        self.unacked.clear()
        self.unacked_bytes = 0
        self._effects.append(Refused(start, code, text))

    def tick(self, now: float) -> None:
        """A connection that hangs is the driver's to find. Caches that have not stored get it once more."""
        if self._replies is None or not self.unacked:
            self._resend_at = None
        elif self._resend_at is None:
            self._resend_at = now + RESEND_S
        elif now >= self._resend_at and self.state is State.FLOWING:
            self._resend_at = now + RESEND_S
            self._effects.append(SendMessage(Require(self.source, self.topic)))
            self._resend(self._first_unacked())

    def next_deadline(self) -> float | None:
        """When events that too few caches have stored are sent again."""
        return self._resend_at

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects
