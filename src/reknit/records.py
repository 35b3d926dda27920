"""Records: the journal stores them beside batches. Only batches and records change the ledger.

The same function applies a record when it is staged and again when the log is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, get_args

import msgspec

from reknit.attempts import Attempt, AttemptCount
from reknit.decoding import decode_packed
from reknit.errors import LocalError, MalformedFrame
from reknit.fields import (
    Number,
    Position,
    Seq,
    SeqRanges,
    SeriesRange,
    Source,
    Time,
    Topic,
    check_range,
    check_ranges,
)
from reknit.frame import KIND_RECORD, Buffer, unwrap, wrap
from reknit.ledger import Account, Ledger, Redriven, Series
from reknit.outcome import FinalOutcome, Outcome
from reknit.topic import Pattern


class _Tagged(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", omit_defaults=False):
    pass


class Since(msgspec.Struct, frozen=True, array_like=True):
    """The first seq of a series that a subscriber is owed."""

    topic: Topic
    source: Source
    seq: Seq


class SubscriberOpened(_Tagged, frozen=True, tag="opened"):
    """A durable subscriber was added.

    It is owed everything that its pattern matches, from `since` on (new series: from 1).
    """

    name: str
    pattern: Topic
    since: list[Since]
    position: Position
    """It is owed nothing before this position."""
    time_us: Time

    @classmethod
    def at(
        cls, name: str, pattern: str, since: Mapping[Series, int], position: int, time_us: int
    ) -> SubscriberOpened:
        """The record for the ledger's form of `since`."""
        return cls(name, pattern, [Since(*series, seq) for series, seq in since.items()], position, time_us)


class SubscriberClosed(_Tagged, frozen=True, tag="closed"):
    """A durable subscriber was deleted."""

    name: str
    time_us: Time = 0


class OutcomeRow(msgspec.Struct, frozen=True, array_like=True):
    """How events `[start, stop)` ended for a subscriber."""

    topic: Topic
    source: Source
    start: Seq
    stop: Seq
    end: FinalOutcome
    code: int = 0
    """Not checked: older versions stored whatever number the subscriber chose."""
    reason: str = ""
    text: str = ""
    attempts: Number = 1
    time_us: Time = 0

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class Outcomes(_Tagged, frozen=True, tag="outcomes"):
    """Outcomes of events for one subscriber, and the position before which it is owed nothing any more."""

    name: str
    rows: list[OutcomeRow]
    floor: Position = 0


class LossesKnown(_Tagged, frozen=True, tag="known"):
    """A subscriber knows that these events are lost to it."""

    name: str
    ranges: list[SeriesRange]
    time_us: Time = 0


class AttemptRow(msgspec.Struct, frozen=True, array_like=True):
    """Events `[start, stop)` came back from an attempt. The counters count since the beginning."""

    topic: Topic
    source: Source
    start: Seq
    stop: Seq
    acquired: Number
    failed: Number
    outcome: Outcome
    code: int = 0
    """Not checked, as in `OutcomeRow`."""
    time_us: Time = 0
    crashed: Number = 0

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class Attempts(_Tagged, frozen=True, tag="attempts"):
    """Attempts that did not end events of one subscriber, so that a restart continues to count."""

    name: str
    rows: list[AttemptRow]


class SourceOwned(_Tagged, frozen=True, tag="source-owned"):
    """A source belongs to an identity: only this one may publish as it."""

    topic: Topic
    source: Source
    owner: str
    time_us: Time = 0


class SubscriberOwned(_Tagged, frozen=True, tag="subscriber-owned"):
    """A durable subscriber belongs to an identity: only this one may use its name."""

    name: str
    owner: str
    time_us: Time = 0


class DeadLettersRedriven(_Tagged, frozen=True, tag="redriven"):
    """Dead letters of a source were published again, as the events `[first, first + count)` that follow in the log."""

    source: Source
    ranges: SeqRanges
    topic: Topic
    as_source: Source
    first: Seq
    count: Number
    time_us: Time = 0

    def __post_init__(self) -> None:
        check_ranges(self.ranges)


class DeadLettersDropped(_Tagged, frozen=True, tag="dropped"):
    """Dead letters of a source were dropped, by a person or at a limit."""

    source: Source
    ranges: SeqRanges
    time_us: Time = 0

    def __post_init__(self) -> None:
        check_ranges(self.ranges)


class DeadLettersBack(_Tagged, frozen=True, tag="back"):
    """A crash happened between `DeadLettersRedriven` and its events: the dead letters wait again."""

    source: Source
    ranges: SeqRanges
    time_us: Time = 0

    def __post_init__(self) -> None:
        check_ranges(self.ranges)


class Skipped(_Tagged, frozen=True, tag="skipped"):
    """Events `[start, stop)` of a series never arrived, because no cache had them. The series continues after them."""

    topic: Topic
    source: Source
    start: Seq
    stop: Seq
    text: str = ""
    time_us: Time = 0

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class TopicPaused(_Tagged, frozen=True, tag="paused"):
    """Delivery of events that match the pattern was stopped."""

    pattern: Topic
    time_us: Time = 0


class TopicResumed(_Tagged, frozen=True, tag="resumed"):
    """Delivery of events that match the pattern was resumed."""

    pattern: Topic
    time_us: Time = 0


Record = (
    SubscriberOpened | SubscriberClosed | Outcomes | LossesKnown | Attempts | TopicPaused | TopicResumed
    | SourceOwned | SubscriberOwned | DeadLettersRedriven | DeadLettersDropped | DeadLettersBack | Skipped
)  # fmt: skip

OfAccount = Outcomes | LossesKnown | Attempts
"""The records that change an account."""

_CHECKED: Final = (SubscriberClosed, SourceOwned, SubscriberOwned, Skipped, TopicPaused, TopicResumed)
"""Records of what somebody asked for. What the others have was checked when its message was decoded."""
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """A record as a frame. Raises `LocalError` for one that nobody could read: a journal with it could not be opened.

    >>> decode(encode(SubscriberClosed("audit")))
    SubscriberClosed(name='audit', time_us=0)
    """
    frame = wrap(KIND_RECORD, _encoder.encode(record))
    if isinstance(record, _CHECKED):
        try:
            decode(frame)
        except MalformedFrame as error:
            raise LocalError(f"{type(record).__name__} can't be recorded: {error.what}") from None
    return frame


def decode(frame: Buffer) -> Record:
    """The record in a whole frame, its checksum verified. Raises `MalformedFrame`."""
    return decode_packed(_decoder.decode, unwrap(frame), "a record")


def _open_account(ledger: Ledger, record: SubscriberOpened) -> None:
    since = {(row.topic, row.source): row.seq for row in record.since}
    ledger.open(record.name, Pattern(record.pattern), since, record.position)


def _close_account(ledger: Ledger, record: SubscriberClosed) -> None:
    ledger.close(record.name)


def _settle(ledger: Ledger, record: Outcomes) -> None:
    for row in record.rows:
        fresh = ledger.settle(record.name, row.topic, row.source, row.start, row.stop, row.end)
        if row.end is FinalOutcome.LOST:
            ledger.lose(record.name, (row.topic, row.source), fresh, row.reason)
    ledger.move_floor(record.name, record.floor)


def _learn(ledger: Ledger, record: LossesKnown) -> None:
    for lost in record.ranges:
        ledger.learn(record.name, (lost.topic, lost.source), lost.start, lost.stop)


def _count_attempts(ledger: Ledger, record: Attempts) -> None:
    for row in record.rows:
        last = Attempt(row.time_us, row.outcome, row.code)
        counts = AttemptCount(row.acquired, row.failed, crashed=row.crashed)
        ledger.tally(record.name, (row.topic, row.source), (row.start, row.stop), counts, last)


def _own_source(ledger: Ledger, record: SourceOwned) -> None:
    ledger.own_source(record.topic, record.source, record.owner)


def _own_subscriber(ledger: Ledger, record: SubscriberOwned) -> None:
    ledger.own_subscriber(record.name, record.owner)


def _redrive(ledger: Ledger, record: DeadLettersRedriven) -> None:
    stop = record.first + record.count
    redriven = Redriven(record.ranges, record.topic, record.as_source, record.first, stop)
    ledger.redrive_letters(record.source, redriven)


def _drop(ledger: Ledger, record: DeadLettersDropped) -> None:
    for start, stop in record.ranges:
        ledger.drop_letters(record.source, start, stop)


def _put_back(ledger: Ledger, record: DeadLettersBack) -> None:
    for start, stop in record.ranges:
        ledger.put_letters_back(record.source, start, stop)


def _skip(ledger: Ledger, record: Skipped) -> None:
    ledger.skip(record.topic, record.source, record.start, record.stop)


def _ignore(ledger: Ledger, record: TopicPaused | TopicResumed) -> None:
    """The ledger owes the same whether delivery is paused or not."""


_APPLY: Final[dict[type[_Tagged], Callable[[Ledger, Any], None]]] = {
    SubscriberOpened: _open_account,
    SubscriberClosed: _close_account,
    Outcomes: _settle,
    LossesKnown: _learn,
    Attempts: _count_attempts,
    SourceOwned: _own_source,
    SubscriberOwned: _own_subscriber,
    DeadLettersRedriven: _redrive,
    DeadLettersDropped: _drop,
    DeadLettersBack: _put_back,
    Skipped: _skip,
    TopicPaused: _ignore,
    TopicResumed: _ignore,
}
assert set(_APPLY) == set(get_args(Record)), "every record is applied"


def apply(ledger: Ledger, record: Record) -> None:
    """Apply a record to the ledger. Applying it twice has the same effect as once."""
    _APPLY[type(record)](ledger, record)


def account_after(account: Account, records: Iterable[OfAccount]) -> Account:
    """An account as it will be when these records are applied; the account itself stays unchanged."""
    ends = {
        series: {end: seqs.copy() for end, seqs in by_end.items()} for series, by_end in account.ends.items()
    }
    losses = {
        series: {reason: seqs.copy() for reason, seqs in by_reason.items()}
        for series, by_reason in account.losses.items()
    }
    tallies = {series: dict(by_seq) for series, by_seq in account.tallies.items()}
    ledger = Ledger()
    after = ledger.accounts[account.name] = replace(
        account, ends=ends, tallies=tallies, losses=losses, outside=set(account.outside)
    )
    for record in records:
        apply(ledger, record)
    return after


def apply_to_paused(paused: set[str], record: Record) -> None:
    """Update the set of paused patterns, which is not part of the ledger."""
    if isinstance(record, TopicPaused):
        paused.add(record.pattern)
    elif isinstance(record, TopicResumed):
        paused.discard(record.pattern)
