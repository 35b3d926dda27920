"""The rows of the index and their keys, as values. Numbers in keys are big endian, so that they sort."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from reknit.attempts import AttemptCount
from reknit.entries import Removed
from reknit.errors import JournalError
from reknit.ledger import Account, HandledLetters, Ledger, Redriven
from reknit.outcome import FinalOutcome
from reknit.seqset import Range, SeqSet
from reknit.store.index.series import Extent, SeriesExtents, SeriesTable
from reknit.store.log.retention import Segment
from reknit.topic import Pattern

FORMAT: Final = 2
UNSEALED_FORMAT: Final = 1
"""The rows of an index of this format have no checksums. They get them when it is opened for writing."""

NUMBER: Final = struct.Struct(">Q")
PAIR: Final = struct.Struct(">QQ")
EXTENT_KEY: Final = struct.Struct(">QQQ")
EXTENT: Final = struct.Struct("<QQ")
PLACE: Final = struct.Struct("<QQQQ")
SEGMENT: Final = struct.Struct("<QQQQ")


DATABASES: Final = ("meta", "streams", "extents", "places", "segments", "marks", "accounts", "ends")
ADDED: Final = ("tallies", "letters")
"""An older index lacks these databases. It is read without them, and gets them when it is written."""
_SEEDS: Final = {name: number for number, name in enumerate((*DATABASES, *ADDED))}


class RowDamaged(JournalError):
    """A row of the index is not what was written."""

    do = "start the node again: it rebuilds the index from the log"


def seal(database: str, key: bytes, row: bytes) -> bytes:
    """A row with a checksum of itself, its key and its database."""
    return row + NUMBER.pack(xxh3_64_intdigest(key + row, seed=_SEEDS[database]))


def unseal(database: str, key: bytes, sealed: bytes) -> bytes:
    """The row without its checksum. Raises `RowDamaged`.

    >>> unseal("meta", b"state", seal("meta", b"state", b"row"))
    b'row'
    """
    row = sealed[:-8]
    if sealed[-8:] != NUMBER.pack(xxh3_64_intdigest(key + row, seed=_SEEDS[database])):
        raise RowDamaged(f"a row of {database} does not match its checksum")
    return row


def unpack_key(form: struct.Struct, database: str, key: bytes) -> tuple[int, ...]:
    """The numbers in a key that was not compared with its row's checksum yet. Raises `RowDamaged`.

    >>> unpack_key(NUMBER, "places", NUMBER.pack(7))
    (7,)
    """
    if len(key) != form.size:
        raise RowDamaged(f"a key of {database} has {len(key)} bytes")
    return form.unpack(key)


class IndexState(msgspec.Struct, frozen=True, array_like=True):
    """Which part of the log the index covers."""

    format: int
    indexed_to: int
    """The index has everything before this position of the log, and nothing after."""
    start: int
    """The log begins here; earlier files are left over from an interrupted removal."""
    paused: list[str]
    offset_us: int = 0
    """The journal's own time minus the time of day."""
    lost: list[Removed] = []
    """The events that were lost with damage which repairs set aside."""


class SeriesRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A series, and which of its events were published."""

    topic: str
    source: bytes
    first_held: int
    last: int
    span_max: int
    published: list[Range]
    skipped: list[Range] = []
    owner: str = ""

    @classmethod
    def of(cls, series: SeriesExtents, ledger: Ledger) -> SeriesRow:
        key = (series.topic, series.source)
        published, skipped = ledger.published.get(key), ledger.skipped.get(key)
        return cls(
            *key,
            series.first_held,
            series.last,
            series.span_max,
            published.ranges() if published else [],
            skipped.ranges() if skipped else [],
            ledger.owners.get(series.source, ""),
        )

    def load(self, number: int, table: SeriesTable, ledger: Ledger) -> SeriesExtents:
        series = table.make(self.topic, self.source, number)
        series.restore(self.first_held, self.last, self.span_max)
        if self.published:
            ledger.restore_published((self.topic, self.source), SeqSet.from_ranges(self.published))
        if self.skipped:
            ledger.restore_skipped((self.topic, self.source), SeqSet.from_ranges(self.skipped))
        if self.owner:
            ledger.owners[self.source] = self.owner
        return series


class AccountRow(msgspec.Struct, frozen=True, array_like=True):
    """A durable subscriber."""

    name: str
    pattern: str
    since: list[tuple[str, bytes, int]]
    floor: int
    losses: list[tuple[str, bytes, str, list[Range]]] = []
    """Topic, source, reason and ranges of losses that the subscriber has to learn."""
    owner: str = ""

    @classmethod
    def of(cls, account: Account) -> AccountRow:
        since = [(*series, seq) for series, seq in account.since.items()]
        losses = [
            (*series, reason, seqs.ranges())
            for series, by_reason in account.losses.items()
            for reason, seqs in by_reason.items()
        ]
        return cls(account.name, account.pattern.text, since, account.floor, losses, account.owner)

    def load(self, ledger: Ledger) -> Account:
        since = {(topic, source): seq for topic, source, seq in self.since}
        account = ledger.open(self.name, Pattern(self.pattern), since, self.floor)
        for topic, source, reason, ranges in self.losses:
            account.losses.setdefault((topic, source), {})[reason] = SeqSet.from_ranges(ranges)
        account.owner = self.owner
        return account


OutcomesRow = dict[int, list[Range]]
"""The outcomes of a series' events for a subscriber: ranges by final outcome."""


def outcomes_of(account: Account, series: SeriesExtents) -> OutcomesRow | None:
    """None if nothing has ended."""
    ends = account.ends.get((series.topic, series.source))
    return None if ends is None else {int(end): seqs.ranges() for end, seqs in ends.items()}


def load_outcomes(row: OutcomesRow) -> dict[FinalOutcome, SeqSet]:
    return {FinalOutcome(end): SeqSet.from_ranges(ranges) for end, ranges in row.items()}


LettersRow = tuple[list[Range], list[Range], Redriven | None]
"""Which of a source's dead letters were redriven, which dropped, and the last redrive."""


def load_letters(row: LettersRow) -> HandledLetters:
    return HandledLetters(SeqSet.from_ranges(row[0]), SeqSet.from_ranges(row[1]), row[2])


class LoadedIndex(NamedTuple):
    """The content of an index, apart from series and ledger."""

    state: IndexState | None
    segments: list[Segment]
    account_numbers: dict[str, int]


class Snapshot(msgspec.Struct):
    """The content of one checkpoint, as of one moment at position `to`."""

    to: int
    start: int
    extents: Sequence[Extent]
    segments: list[tuple[bytes, bytes]]
    marks: list[tuple[int, int]]
    paused: list[str]
    offset_us: int = 0
    lost: Sequence[Removed] = ()
    series: dict[int, SeriesRow] = msgspec.field(default_factory=dict)
    accounts: dict[int, AccountRow | None] = msgspec.field(default_factory=dict)
    """None: the account is gone; `ends` has its outcomes."""
    ends: dict[tuple[int, int], OutcomesRow | None] = msgspec.field(default_factory=dict)
    tallies: dict[tuple[int, int, int], AttemptCount | None] = msgspec.field(default_factory=dict)
    """By account, series and seq; None: the event has ended."""
    letters: dict[bytes, LettersRow] = msgspec.field(default_factory=dict)


encode: Final = msgspec.msgpack.encode
decode_state: Final = msgspec.msgpack.Decoder(IndexState).decode
decode_series: Final = msgspec.msgpack.Decoder(SeriesRow).decode
decode_account: Final = msgspec.msgpack.Decoder(AccountRow).decode
decode_outcomes: Final = msgspec.msgpack.Decoder(OutcomesRow).decode
decode_tally: Final = msgspec.msgpack.Decoder(AttemptCount).decode
decode_letters: Final = msgspec.msgpack.Decoder(LettersRow).decode


def segment_row(segment: Segment) -> tuple[bytes, bytes]:
    """A segment as key and value."""
    row = SEGMENT.pack(segment.end, segment.events, segment.first_us, segment.last_us)
    return NUMBER.pack(segment.start), row
