"""The dispatcher's inputs besides subscribers' messages: from the journal, from connections, from operators."""

from __future__ import annotations

import msgspec

from reknit.entries import Removed, Run
from reknit.ledger import Series
from reknit.outcome import Code, Reason
from reknit.protocol.queues.queue import QueueKey
from reknit.topic import Pattern
from reknit.wire.messages import Subscribe


class OpenSubscription(msgspec.Struct, frozen=True):
    """A subscription whose start was resolved against the journal."""

    request: Subscribe
    pattern: Pattern
    position: int
    """Where to begin; -1: with what becomes durable from now on."""
    since: dict[Series, int] = {}
    """For a new durable subscriber: the first owed seq of every series that exists."""
    after: dict[bytes, int] = {}
    """By source: the seqs up to which nothing is wanted, now or later."""
    seen: dict[bytes, int] = {}
    """By source: the seqs up to which a subscriber without a name got everything that the journal holds now."""
    owner: str = ""
    """The identity to which a durable subscriber belongs from now on, if it belongs to nobody; empty: to nobody."""


class JournalGrown(msgspec.Struct, frozen=True):
    """The journal's durable end moved: the new runs, and the end."""

    runs: list[Run]
    end: int


class JournalScanned(msgspec.Struct, frozen=True):
    """The result of a `Scan`."""

    key: QueueKey
    run: Run


class JournalTrimmed(msgspec.Struct, frozen=True):
    """Retention removed these ranges, or they were missing when the journal was opened; it starts at `start` now."""

    start: int
    removed: list[Removed]
    reason: Reason = Reason.RETENTION


class JournalDamaged(msgspec.Struct, frozen=True):
    """The bytes of these ranges in the journal turned out to be damaged."""

    lost: list[Removed]


class EventsGone(msgspec.Struct, frozen=True):
    """Events that were to be redelivered are no longer in the journal."""

    key: QueueKey
    topic: str
    source: bytes
    start: int
    stop: int
    reason: Reason = Reason.RETENTION


class EventsExpired(msgspec.Struct, frozen=True):
    """Events that were to be redelivered to a subscriber are past their ttl."""

    key: QueueKey
    topic: str
    source: bytes
    start: int
    stop: int


class CreditCorrection(msgspec.Struct, frozen=True):
    """A `Redeliver` that uses credit took this many bytes more (or fewer) than estimated."""

    key: QueueKey
    difference: int


class EndSubscription(msgspec.Struct, frozen=True):
    """The node ends a subscription of this peer, and says why."""

    sub: int
    code: Code
    text: str


class PeerBlocked(msgspec.Struct, frozen=True):
    """The connection to this peer is full, or takes bytes again: nothing is delivered to it meanwhile."""

    is_blocked: bool


class SetPaused(msgspec.Struct, frozen=True):
    """Pause the topics that a pattern matches, or resume them; request `id` is answered when that is durable."""

    id: int
    pattern: str
    is_paused: bool
