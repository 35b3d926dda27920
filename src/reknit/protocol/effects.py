"""What machines want done, as values. The driver performs them in order: append, deliver, send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from reknit.attempts import Try
from reknit.batch import Head
from reknit.frame import Buffer
from reknit.protocol.machine import Peer
from reknit.records import Record
from reknit.wire.messages import Message

if TYPE_CHECKING:
    from reknit.entries import Run


class Send(msgspec.Struct, frozen=True):
    """Say something to a peer: a message, or batches as they are."""

    peer: Peer
    message: Message


class Append(msgspec.Struct, frozen=True):
    """Keep these batches; the journal answers with `Kept(number)` when they are durable."""

    number: int
    data: Buffer
    heads: Sequence[Head]


class AppendRecord(msgspec.Struct, frozen=True):
    """Keep this record; answered with `Kept(number)` too."""

    number: int
    record: Record


class Scan(msgspec.Struct, frozen=True):
    """Read on from a position; the journal answers with `Scanned` to the same key."""

    key: tuple[Peer, int]
    position: int
    bytes_max: int


class Piece(msgspec.Struct, frozen=True):
    """Entries `[low, high)` of a run."""

    run: Run
    low: int
    high: int


class Deliver(msgspec.Struct, frozen=True):
    """Hand pieces of the journal to a subscriber, as the bytes that they are."""

    peer: Peer
    sub: int
    pieces: list[Piece]
    size: int
    position: int


class Redeliver(msgspec.Struct, frozen=True):
    """Hand out `[start, stop)` of a source: once more, or the part of a batch that is still wanted."""

    peer: Peer
    sub: int
    topic: str
    source: bytes
    start: int
    stop: int
    attempt: int
    size: int = 0
    """About how many bytes of credit were taken for it; what it really is comes back as `Sent`."""
    is_ordered: bool = False


class DeadLetter(msgspec.Struct, frozen=True):
    """Make a dead letter of each of these events, durable before their outcome is."""

    subscriber: str
    topic: str
    source: bytes
    start: int
    stop: int
    code: int
    reason: str
    text: str
    attempts: int
    path: str = ""
    tries: tuple[Try, ...] = ()


class Withhold(msgspec.Struct, frozen=True):
    """Subscribers' queues are full: publishers on their topics are to wait; or none is full any more."""

    is_on: bool
    is_less: bool = False
    """Whether some queue is not full any more: who waits may try again."""
