"""What is said to recover events that somebody misses, and about the caches that hold them."""

from __future__ import annotations

import msgspec

from reknit.wire.messages import Message


class Recover(Message, frozen=True, tag=23):
    """I miss these ranges of a stream: send what you hold of them, about `bytes_max` bytes at most."""

    id: int
    topic: str
    source: bytes
    ranges: list[tuple[int, int]]
    bytes_max: int
    deep: bool = True
    """Whether to ask further caches for what is not held here."""


class Recovered(Message, frozen=True, tag=24):
    """The next `size` bytes are recovered batches. What is in `covered` and not among them is not held here."""

    id: int
    size: int
    covered: list[tuple[int, int]]
    is_last: bool = True


class Span(msgspec.Struct, frozen=True, array_like=True):
    """What a cache holds of a stream, and the last seq that it knows to exist."""

    topic: str
    source: bytes
    ranges: list[tuple[int, int]]
    last: int


class Survey(Message, frozen=True, tag=25):
    """What do you hold of the topics that match? With `age_s` only what is no older than that."""

    id: int
    pattern: str
    age_s: float = 0.0
    deep: bool = True


class Surveyed(Message, frozen=True, tag=26):
    """What is held; more rows follow unless this is the last."""

    id: int
    spans: list[Span]
    is_last: bool = True


class Heartbeat(Message, frozen=True, tag=27):
    """A publisher's last seq, so that a lost tail is noticed. The node passes it on to subscriptions by `sub`."""

    topic: str
    source: bytes
    seq: int
    sub: int = 0


class Offer(Message, frozen=True, tag=28):
    """This side holds events of the pattern (of one source, or of all) and answers `Recover`; or does so no more."""

    pattern: str
    source: bytes = b""
    is_on: bool = True


class Require(Message, frozen=True, tag=29):
    """A publisher wants to hear from how many caches each of its events is stored in."""

    source: bytes
    topic: str


class Stored(Message, frozen=True, tag=30):
    """A put reply: one more cache than the node itself stored everything of the source up to and including seq."""

    source: bytes
    seq: int
    cache: str


RecoveryMessage = Recover | Recovered | Survey | Surveyed | Heartbeat | Offer | Require | Stored
