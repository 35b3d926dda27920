"""Streams: an event whose payload follows in pieces, between whoever sends, carries and reads it."""

from __future__ import annotations

from reknit.wire.messages import Message


class Begin(Message, frozen=True, tag=70):
    """A publisher begins a stream: an event whose payload follows in pieces. The end of it is a `Told`."""

    source: bytes
    """Of this stream alone."""
    topic: str
    resend: bool
    data: bytes
    """The event without its payload, as a whole batch."""


class Piece(Message, frozen=True, tag=71):
    """Bytes of a stream from `offset` on, to a subscription, or from a publisher or node (`sub` is 0)."""

    sub: int
    source: bytes
    offset: int
    data: bytes
    is_last: bool


class Room(Message, frozen=True, tag=72):
    """So many bytes of a stream may be sent in all."""

    sub: int
    source: bytes
    total: int


class Abort(Message, frozen=True, tag=73):
    """No more of a stream comes: it never was an event."""

    sub: int
    source: bytes
    text: str


StreamMessage = Begin | Piece | Room | Abort
