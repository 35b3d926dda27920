"""The effects that machines ask for, as values. The driver performs them in order: append, deliver, send."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reknit.attempts import Attempt
from reknit.batch import Head
from reknit.entries import Run
from reknit.frame import Buffer
from reknit.protocol.machine import Peer
from reknit.records import Record
from reknit.wire.messages import Message


class Send(msgspec.Struct, frozen=True):
    """Send a message to a peer."""

    peer: Peer
    message: Message


class SendToNode(msgspec.Struct, frozen=True):
    """Send a message to the node that this client is connected to."""

    message: Message


class Append(msgspec.Struct, frozen=True):
    """Store these batches in the journal, which reports `MadeDurable(number)` when they are durable."""

    number: int
    data: Buffer
    heads: Sequence[Head]
    peer: Peer = None
    """Whose they are."""


class AppendRecord(msgspec.Struct, frozen=True):
    """Store this record in the journal, which reports `MadeDurable(number)` too."""

    number: int
    record: Record


class Mark(msgspec.Struct, frozen=True):
    """Store nothing: the journal reports `MadeDurable(number)` when everything that was asked for before is durable."""

    number: int


class Scan(msgspec.Struct, frozen=True):
    """Read the journal from a position on; the answer is `JournalScanned` with the same key."""

    key: tuple[Peer, int]
    position: int
    bytes_max: int


class RunSlice(msgspec.Struct, frozen=True):
    """Entries `[low, high)` of a run."""

    run: Run
    low: int
    high: int


class DeliverRuns(msgspec.Struct, frozen=True):
    """Deliver slices of the journal to a subscriber, as stored bytes."""

    peer: Peer
    sub: int
    pieces: list[RunSlice]
    size: int
    position: int


class Fail(msgspec.Struct, frozen=True):
    """Something went wrong inside while events were delivered to a peer: end its connection, and no other."""

    peer: Peer
    error: Exception


class Redeliver(msgspec.Struct, frozen=True):
    """Deliver `[start, stop)` of a source: another attempt, or the part of a batch that is still wanted."""

    peer: Peer
    sub: int
    topic: str
    source: bytes
    start: int
    stop: int
    attempt: int
    size: int = 0
    """The estimated bytes of credit used for it; the difference comes back as `CreditCorrection`."""
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
    tries: tuple[Attempt, ...] = ()


class Withhold(msgspec.Struct, frozen=True):
    """Publishers wait while subscribers' queues are full (`is_on`), or publish again."""

    is_on: bool
    is_less: bool = False
    """Whether a queue is no longer full: publishers that wait may try again."""
