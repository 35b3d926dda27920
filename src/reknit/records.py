"""Records: what the journal keeps beside batches. They change the ledger, and nothing else does.

A record is applied when it is staged and again when the log is replayed, by the same function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from reknit.attempts import Tally, Try
from reknit.errors import MalformedFrame
from reknit.frame import KIND_RECORD, Buffer, unwrap, wrap
from reknit.ledger import Ledger, Redriven, Stream
from reknit.outcome import End, Outcome
from reknit.topic import Pattern


class _Tagged(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", omit_defaults=False):
    pass


class Since(msgspec.Struct, frozen=True, array_like=True):
    """The first seq of a stream that a subscriber is owed."""

    topic: str
    source: bytes
    seq: int


class SubscriberOpened(_Tagged, frozen=True, tag="opened"):
    """A durable subscriber appeared.

    It is owed what its pattern matches, from `since` on (new streams: from 1).
    """

    name: str
    pattern: str
    since: list[Since]
    position: int
    """Its floor: nothing before is owed to it."""
    time_us: int

    @classmethod
    def at(
        cls, name: str, pattern: str, since: Mapping[Stream, int], position: int, time_us: int
    ) -> SubscriberOpened:
        """The record from the ledger's form of `since`."""
        return cls(name, pattern, [Since(*stream, seq) for stream, seq in since.items()], position, time_us)


class SubscriberClosed(_Tagged, frozen=True, tag="closed"):
    """A durable subscriber was removed for good."""

    name: str
    time_us: int = 0


class OutcomeRow(msgspec.Struct, frozen=True, array_like=True):
    """How events `[start, stop)` ended for a subscriber."""

    topic: str
    source: bytes
    start: int
    stop: int
    end: End
    code: int = 0
    reason: str = ""
    text: str = ""
    attempts: int = 1
    time_us: int = 0


class Outcomes(_Tagged, frozen=True, tag="outcomes"):
    """What became of events for one subscriber, and the position before which nothing is owed to it any more."""

    name: str
    rows: list[OutcomeRow]
    floor: int = 0


class AttemptRow(msgspec.Struct, frozen=True, array_like=True):
    """Events `[start, stop)` came back from an attempt; the counters are those since the beginning."""

    topic: str
    source: bytes
    start: int
    stop: int
    acquired: int
    failed: int
    outcome: Outcome
    code: int = 0
    time_us: int = 0


class Attempts(_Tagged, frozen=True, tag="attempts"):
    """Attempts that did not end events of one subscriber, so that a restart goes on counting."""

    name: str
    rows: list[AttemptRow]


class LettersRedriven(_Tagged, frozen=True, tag="redriven"):
    """Dead letters of a source were published again, as the events `[first, first + count)` that follow in the log."""

    source: bytes
    ranges: list[tuple[int, int]]
    topic: str
    as_source: bytes
    first: int
    count: int
    time_us: int = 0


class LettersDropped(_Tagged, frozen=True, tag="dropped"):
    """Dead letters of a source were dropped, by a person or because there were too many."""

    source: bytes
    ranges: list[tuple[int, int]]
    time_us: int = 0


class LettersBack(_Tagged, frozen=True, tag="back"):
    """A crash came between `LettersRedriven` and its events: the letters wait again."""

    source: bytes
    ranges: list[tuple[int, int]]
    time_us: int = 0


class Skipped(_Tagged, frozen=True, tag="skipped"):
    """Events `[start, stop)` of a stream never came here, as nobody had them; the stream goes on behind them."""

    topic: str
    source: bytes
    start: int
    stop: int
    text: str = ""
    time_us: int = 0


class TopicPaused(_Tagged, frozen=True, tag="paused"):
    """Delivery of what the pattern matches was stopped."""

    pattern: str
    time_us: int = 0


class TopicResumed(_Tagged, frozen=True, tag="resumed"):
    """Delivery of what the pattern matches goes on."""

    pattern: str
    time_us: int = 0


Record = (
    SubscriberOpened | SubscriberClosed | Outcomes | Attempts | TopicPaused | TopicResumed
    | LettersRedriven | LettersDropped | LettersBack | Skipped
)  # fmt: skip

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """A record as a frame.

    >>> decode(encode(SubscriberClosed("audit")))
    SubscriberClosed(name='audit', time_us=0)
    """
    return wrap(KIND_RECORD, _encoder.encode(record))


def decode(frame: Buffer) -> Record:
    """The record in a whole frame, its checksum verified. Raises `MalformedFrame`."""
    body = unwrap(frame)
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise MalformedFrame("a record can't be read", str(error)) from None


def apply(ledger: Ledger, record: Record) -> None:
    """Book a record. Doing it twice is the same as doing it once."""
    match record:
        case SubscriberOpened():
            since = {(row.topic, row.source): row.seq for row in record.since}
            ledger.open(record.name, Pattern(record.pattern), since, record.position)
        case SubscriberClosed():
            ledger.close(record.name)
        case Outcomes():
            for row in record.rows:
                ledger.settle(record.name, row.topic, row.source, row.start, row.stop, row.end)
            ledger.move_floor(record.name, record.floor)
        case Attempts():
            for tried in record.rows:
                last = Try(tried.time_us, tried.outcome, tried.code)
                counts = Tally(tried.acquired, tried.failed)
                ledger.tally(
                    record.name, (tried.topic, tried.source), (tried.start, tried.stop), counts, last
                )
        case LettersRedriven(ranges=ranges, topic=topic, as_source=as_source, first=first, count=count):
            ledger.redrive_letters(record.source, Redriven(ranges, topic, as_source, first, first + count))
        case LettersDropped():
            for start, stop in record.ranges:
                ledger.handle_letters(record.source, start, stop, is_redriven=False)
        case LettersBack():
            for start, stop in record.ranges:
                ledger.put_letters_back(record.source, start, stop)
        case Skipped(topic=topic, source=source, start=start, stop=stop):
            ledger.skip(topic, source, start, stop)
        case TopicPaused() | TopicResumed():
            pass  # the ledger owes the same whether delivery is paused or not


def note_paused(paused: set[str], record: Record) -> None:
    """Keep the set of paused patterns, which the ledger has no use for."""
    if isinstance(record, TopicPaused):
        paused.add(record.pattern)
    elif isinstance(record, TopicResumed):
        paused.discard(record.pattern)
