"""The messages that recover missed events, and those about the caches that hold them."""

from __future__ import annotations

import msgspec

from reknit.batch_layout import SOURCE_BYTES
from reknit.fields import AnySource, Number, Seconds, Seq, SeqRanges, Source, Topic, check_ranges
from reknit.wire.messages import Message


class Recover(Message, frozen=True, tag=23):
    """A subscriber or node asks a cache for ranges of a series. The cache answers one or more `Recovered`."""

    id: Number
    topic: Topic
    source: Source
    ranges: SeqRanges
    bytes_max: Number
    """About how many bytes one answer may have."""
    deep: bool = True
    """Whether the cache asks further caches for events that it does not hold."""

    def __post_init__(self) -> None:
        check_ranges(self.ranges)


class Recovered(Message, frozen=True, tag=24):
    """A cache's answer to the `Recover` with this id: the next `size` bytes are batches.

    Events in `covered` that are not among them are not held there.
    """

    id: Number
    size: Number
    covered: SeqRanges
    is_last: bool = True

    def __post_init__(self) -> None:
        check_ranges(self.covered)


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The ranges of a series that a cache holds, and the last seq that it knows to exist."""

    topic: Topic
    source: Source
    ranges: SeqRanges
    last: Seq

    def __post_init__(self) -> None:
        check_ranges(self.ranges)


class Survey(Message, frozen=True, tag=25):
    """A subscriber or node asks a cache what it holds of matching topics. The cache answers one or more `Surveyed`."""

    id: Number
    pattern: Topic
    age_s: Seconds = 0.0
    """Only events that are at most this old; 0: all."""
    deep: bool = True


class Surveyed(Message, frozen=True, tag=26):
    """A cache's answer to the `Survey` with this id; more rows follow unless this is the last."""

    id: Number
    spans: list[Span]
    is_last: bool = True


class Heartbeat(Message, frozen=True, tag=27):
    """A publisher announces its last seq, so that subscribers notice a lost tail. The node forwards it to subscriptions,
    by `sub`. No answer."""

    topic: Topic
    source: Source
    seq: Seq
    sub: Number = 0


class Offer(Message, frozen=True, tag=28):
    """A client offers to be a cache: it holds events of the pattern (of one source, or of all) and answers `Recover`.

    With `is_on` false it withdraws the offer. No answer.
    """

    pattern: Topic
    source: AnySource = b""
    is_on: bool = True

    def __post_init__(self) -> None:
        if len(self.source) not in (0, SOURCE_BYTES):
            raise ValueError(f"a source has {SOURCE_BYTES} bytes, not {len(self.source)}")


class Require(Message, frozen=True, tag=29):
    """A publisher asks in how many caches each of its events is stored. The node answers `Stored` for each cache."""

    source: Source
    topic: Topic


class Stored(Message, frozen=True, tag=30):
    """The node tells a publisher that sent `Require`: this cache, beside the node, stored everything of the source up to
    and including `seq`. No answer."""

    source: Source
    seq: Seq
    cache: str


RecoveryMessage = Recover | Recovered | Survey | Surveyed | Heartbeat | Offer | Require | Stored
