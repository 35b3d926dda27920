"""The fields of messages, datagrams and records that come from a network or a file: which values each may have.

msgspec checks them as it decodes, so that whatever comes out of a decoder is in range. It is the only place where they
are checked. A rule that concerns two fields, such as the order of a range's ends, is in the struct's `__post_init__`,
with a function of this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct

from reknit.batch_layout import SEQ_MAX, SOURCE_BYTES, TIME_US_MAX
from reknit.outcome import Code, Outcome

NUMBER_MAX: Final = (1 << 63) - 1
SECONDS_MAX: Final = 1e10
"""Some 300 years."""
PIECES_MAX: Final = 1 << 16
"""A piece's number has 16 bits."""
TOPIC_CHARS_MAX: Final = (1 << 16) - 1

Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
"""A count, an id or a size: whole, not negative, and a signed 64-bit number."""
Hash = Annotated[int, Meta(ge=0)]
"""An unsigned 64-bit number. (A decoder knows no larger ones.)"""
Position = Annotated[int, Meta(ge=-1, le=NUMBER_MAX)]
"""A place in a journal, or -1 for none."""
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]
"""A seq, or 0 for none."""
FirstSeq = Annotated[int, Meta(ge=1, le=SEQ_MAX)]
"""A seq at which events begin. Seqs start at 1."""
Time = Annotated[int, Meta(ge=0, le=TIME_US_MAX)]
"""Microseconds since 1970."""
Seconds = Annotated[float, Meta(ge=0.0, le=SECONDS_MAX)]
"""A time span: never NaN, infinite or negative."""
Millis = Annotated[int, Meta(ge=0, lt=1 << 32)]
Source = Annotated[bytes, Meta(min_length=SOURCE_BYTES, max_length=SOURCE_BYTES)]
AnySource = Annotated[bytes, Meta(max_length=SOURCE_BYTES)]
"""A source, or nothing for all."""
Topic = Annotated[str, Meta(max_length=TOPIC_CHARS_MAX)]
"""A topic or a pattern, not longer than one may be. Its spelling is checked where it is used."""
QueueName = Annotated[str, Meta(max_length=255, pattern=r"\A[\w.:@-]*\Z")]
"""The name of a queue, or nothing: letters, digits and `_ . : @ -`."""
CodeNumber = Annotated[int, Meta(ge=0, le=int(max(Code)))]
OutcomeNumber = Annotated[int, Meta(ge=int(min(Outcome)), le=int(max(Outcome)))]

SeqRange = tuple[Seq, Seq]
"""Seqs `[start, stop)`. `check_ranges` compares the ends."""
SeqRanges = list[SeqRange]
PieceNumber = Annotated[int, Meta(ge=0, le=PIECES_MAX)]
PieceRanges = list[tuple[PieceNumber, PieceNumber]]


def check_range(start: int, stop: int) -> None:
    """Raise `ValueError` unless `[start, stop)` is a range of seqs. It may be empty.

    >>> check_range(4, 3)
    Traceback (most recent call last):
    ...
    ValueError: [4, 3) is not a range of seqs: seqs start at 1, and stop is not before start
    """
    if not 0 < start <= stop:
        raise ValueError(
            f"[{start}, {stop}) is not a range of seqs: seqs start at 1, and stop is not before start"
        )


def check_ranges(ranges: Iterable[tuple[int, int]], first: int = 1) -> None:
    """Raise `ValueError` unless each of them is a range, and begins at `first` or later.

    >>> check_ranges([(1, 4), (7, 9)])
    """
    for start, stop in ranges:
        if not first <= start <= stop:
            raise ValueError(
                f"[{start}, {stop}) is not a range: it begins at {first} or later, and ends after that"
            )


class SeriesRange(Struct, frozen=True, array_like=True):
    """Events `[start, stop)` of a series."""

    topic: Topic
    source: Source
    start: Seq
    stop: Seq

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)
