"""What the dispatcher is told, beside subscribers' messages: by the journal, by connections, by people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reknit.entries import Removed
from reknit.ledger import Stream
from reknit.protocol.machine import Peer
from reknit.topic import Pattern
from reknit.wire.messages import Subscribe

if TYPE_CHECKING:
    from reknit.entries import Run

Key = tuple[Peer, int]
"""A subscription: who, and its number there."""


class Open(msgspec.Struct, frozen=True):
    """A subscription, its start resolved against the journal by whoever can read it."""

    request: Subscribe
    pattern: Pattern
    position: int
    """Where to begin; -1: with what is kept from now on."""
    since: dict[Stream, int] = {}
    """For a new durable subscriber: the first owed seq of every stream that exists."""
    after: dict[bytes, int] = {}
    """By source: the seqs up to which nothing is wanted, now or later."""
    seen: dict[bytes, int] = {}
    """By source: the seqs up to which a subscriber without a name got everything that the journal holds by now."""


class Grown(msgspec.Struct, frozen=True):
    """The journal's durable end moved: the runs that are new, and the end."""

    runs: list[Run]
    end: int


class Scanned(msgspec.Struct, frozen=True):
    """What a `Scan` found."""

    key: Key
    run: Run


class Trimmed(msgspec.Struct, frozen=True):
    """Retention removed these ranges; the journal starts at `start` now."""

    start: int
    removed: list[Removed]


class Vanished(msgspec.Struct, frozen=True):
    """Events that were to be handed out again are not in the journal any more."""

    key: Key
    topic: str
    source: bytes
    start: int
    stop: int


class Outlived(msgspec.Struct, frozen=True):
    """Events that were to be handed out again, to a subscriber without a name, are past their ttl."""

    key: Key
    topic: str
    source: bytes
    start: int
    stop: int


class Sent(msgspec.Struct, frozen=True):
    """A `Redeliver` that uses up credit took so many bytes more (or fewer) than was thought."""

    key: Key
    difference: int


class Blocked(msgspec.Struct, frozen=True):
    """The way to this peer is full (or free again): hand out nothing to it meanwhile."""

    is_blocked: bool


class Switch(msgspec.Struct, frozen=True):
    """Stop handing out what a pattern matches, or go on; the answer to question `id` comes when that is durable."""

    id: int
    pattern: str
    is_paused: bool
