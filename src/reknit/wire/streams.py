"""The messages of streams: an event whose payload follows in chunks, from its publisher over nodes to a subscriber."""

from __future__ import annotations

from reknit.fields import Number, Source, Topic
from reknit.wire.messages import Message


class Begin(Message, frozen=True, tag=70):
    """A publisher begins a stream. The node answers `Room`, and `Told` with the outcome at the end."""

    source: Source
    """A source of this stream alone."""
    topic: Topic
    resend: bool
    data: bytes
    """The event without its payload, as a whole batch."""


class Piece(Message, frozen=True, tag=71):
    """A chunk of a stream from `offset` on, to a subscription, or from a publisher or node (`sub` is 0).

    The receiver answers `Room` as it reads.
    """

    sub: Number
    source: Source
    offset: Number
    data: bytes
    is_last: bool


class Room(Message, frozen=True, tag=72):
    """The receiver of a stream allows its sender to send up to this many bytes in total. No answer."""

    sub: Number
    source: Source
    total: Number


class Abort(Message, frozen=True, tag=73):
    """Either side of a stream aborts it: it does not become an event. No answer."""

    sub: Number
    source: Source
    text: str


StreamMessage = Begin | Piece | Room | Abort
