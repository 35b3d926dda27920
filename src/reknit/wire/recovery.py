"""The messages that recover missed events, and those about the caches that hold them."""

from __future__ import annotations

import msgspec

from reknit.wire.messages import Message


class Recover(Message, frozen=True, tag=23):
    """A subscriber or node asks a cache for ranges of a series. The cache answers one or more `Recovered`."""

    id: int
    topic: str
    source: bytes
    ranges: list[tuple[int, int]]
    bytes_max: int
    """About how many bytes one answer may have."""
    deep: bool = True
    """Whether the cache asks further caches for events that it does not hold."""


class Recovered(Message, frozen=True, tag=24):
    """A cache's answer to the `Recover` with this id: the next `size` bytes are batches.

    Events in `covered` that are not among them are not held there.
    """

    id: int
    size: int
    covered: list[tuple[int, int]]
    is_last: bool = True


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The ranges of a series that a cache holds, and the last seq that it knows to exist."""

    topic: str
    source: bytes
    ranges: list[tuple[int, int]]
    last: int


class Survey(Message, frozen=True, tag=25):
    """A subscriber or node asks a cache what it holds of matching topics. The cache answers one or more `Surveyed`."""

    id: int
    pattern: str
    age_s: float = 0.0
    """Only events that are at most this old; 0: all."""
    deep: bool = True


class Surveyed(Message, frozen=True, tag=26):
    """A cache's answer to the `Survey` with this id; more rows follow unless this is the last."""

    id: int
    spans: list[Span]
    is_last: bool = True


class Heartbeat(Message, frozen=True, tag=27):
    """A publisher announces its last seq, so that subscribers notice a lost tail. The node forwards it to subscriptions,
    by `sub`. No answer."""

    topic: str
    source: bytes
    seq: int
    sub: int = 0


class Offer(Message, frozen=True, tag=28):
    """A client offers to be a cache: it holds events of the pattern (of one source, or of all) and answers `Recover`.

    With `is_on` false it withdraws the offer. No answer.
    """

    pattern: str
    source: bytes = b""
    is_on: bool = True


class Require(Message, frozen=True, tag=29):
    """A publisher asks in how many caches each of its events is stored. The node answers `Stored` for each cache."""

    source: bytes
    topic: str


class Stored(Message, frozen=True, tag=30):
    """The node tells a publisher that sent `Require`: this cache, beside the node, stored everything of the source up to
    and including `seq`. No answer."""

    source: bytes
    seq: int
    cache: str


RecoveryMessage = Recover | Recovered | Survey | Surveyed | Heartbeat | Offer | Require | Stored
