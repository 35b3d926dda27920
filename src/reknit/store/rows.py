"""What the index holds, as values: rows and their keys. Numbers in keys are big endian, so that they sort."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from reknit.attempts import Tally
from reknit.ledger import Account, Ledger, Letters, Redriven
from reknit.outcome import End
from reknit.seqset import Range, SeqSet
from reknit.store.retention import Segment
from reknit.store.series import Extent, Stream, Streams
from reknit.topic import Pattern

FORMAT: Final = 1

NUMBER: Final = struct.Struct(">Q")
PAIR: Final = struct.Struct(">QQ")
EXTENT_KEY: Final = struct.Struct(">QQQ")
EXTENT: Final = struct.Struct("<QQ")
PLACE: Final = struct.Struct("<QQQQ")
SEGMENT: Final = struct.Struct("<QQQQ")


class State(msgspec.Struct, frozen=True, array_like=True):
    """What the index is about."""

    format: int
    indexed_to: int
    """Everything before this position of the log is in here, and nothing after."""
    start: int
    """The log begins here; files before are left from a removal."""
    paused: list[str]


class StreamRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stream, and which of its events were published."""

    topic: str
    source: bytes
    first_held: int
    last: int
    span_max: int
    published: list[Range]
    skipped: list[Range] = []

    @classmethod
    def of(cls, stream: Stream, published: SeqSet | None, skipped: SeqSet | None = None) -> StreamRow:
        known = (stream.topic, stream.source, stream.first_held, stream.last, stream.span_max)
        return cls(*known, *(seqs.ranges() if seqs else [] for seqs in (published, skipped)))

    def load(self, number: int, streams: Streams, ledger: Ledger) -> Stream:
        stream = streams.make(self.topic, self.source, number)
        stream.first_held, stream.last, stream.span_max = self.first_held, self.last, self.span_max
        if self.published:
            ledger.published[self.topic, self.source] = SeqSet.from_ranges(self.published)
        if self.skipped:
            ledger.skipped[self.topic, self.source] = SeqSet.from_ranges(self.skipped)
        return stream


class AccountRow(msgspec.Struct, frozen=True, array_like=True):
    """A durable subscriber."""

    name: str
    pattern: str
    since: list[tuple[str, bytes, int]]
    floor: int

    @classmethod
    def of(cls, account: Account) -> AccountRow:
        since = [(*stream, seq) for stream, seq in account.since.items()]
        return cls(account.name, account.pattern.text, since, account.floor)

    def load(self, ledger: Ledger) -> Account:
        since = {(topic, source): seq for topic, source, seq in self.since}
        return ledger.open(self.name, Pattern(self.pattern), since, self.floor)


EndsRow = dict[int, list[Range]]
"""What became of a stream's events for a subscriber: ranges by end."""


def ends_of(account: Account, stream: Stream) -> EndsRow | None:
    """None where nothing has ended."""
    ends = account.ends.get((stream.topic, stream.source))
    return None if ends is None else {int(end): seqs.ranges() for end, seqs in ends.items()}


def load_ends(row: EndsRow) -> dict[End, SeqSet]:
    return {End(end): SeqSet.from_ranges(ranges) for end, ranges in row.items()}


LettersRow = tuple[list[Range], list[Range], Redriven | None]
"""Which of a source's dead letters were redriven, which dropped, and the last redrive."""


def load_letters(row: LettersRow) -> Letters:
    return Letters(SeqSet.from_ranges(row[0]), SeqSet.from_ranges(row[1]), row[2])


class Loaded(NamedTuple):
    """What was loaded beside streams and ledger."""

    state: State | None
    segments: list[Segment]
    account_numbers: dict[str, int]


class Snapshot(msgspec.Struct):
    """What one checkpoint writes, taken in one moment at position `to`."""

    to: int
    start: int
    extents: Sequence[Extent]
    segments: list[tuple[bytes, bytes]]
    marks: list[tuple[int, int]]
    paused: list[str]
    streams: dict[int, StreamRow] = msgspec.field(default_factory=dict)
    accounts: dict[int, AccountRow | None] = msgspec.field(default_factory=dict)
    """None: the account is gone; its ends are among `ends`."""
    ends: dict[tuple[int, int], EndsRow | None] = msgspec.field(default_factory=dict)
    tallies: dict[tuple[int, int, int], Tally | None] = msgspec.field(default_factory=dict)
    """By account, stream and seq; None: the event has ended."""
    letters: dict[bytes, LettersRow] = msgspec.field(default_factory=dict)


encode: Final = msgspec.msgpack.encode
decode_state: Final = msgspec.msgpack.Decoder(State).decode
decode_stream: Final = msgspec.msgpack.Decoder(StreamRow).decode
decode_account: Final = msgspec.msgpack.Decoder(AccountRow).decode
decode_ends: Final = msgspec.msgpack.Decoder(EndsRow).decode
decode_tally: Final = msgspec.msgpack.Decoder(Tally).decode
decode_letters: Final = msgspec.msgpack.Decoder(LettersRow).decode


def segment_row(segment: Segment) -> tuple[bytes, bytes]:
    """A segment as key and value."""
    row = SEGMENT.pack(segment.end, segment.events, segment.first_us, segment.last_us)
    return NUMBER.pack(segment.start), row
