"""The columns that the source gives, for each kind of row. `docs/reference/spark-source.md` explains them.

`events`     a row an event
`batches`    a row a batch: a range of events, and the frame that carries them
`outcomes`   a row a range that ended for a subscriber, and rows for subscribers that came and went

A reader gives the columns of the schema that it is given, in that order, and reads nothing for the others.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from reknit.errors import LocalError

__all__ = ["BATCHES", "EVENTS", "KINDS", "OUTCOMES", "InvalidOption", "check_schema", "full_schema"]


class InvalidOption(LocalError, ValueError):
    """An option is unknown, missing, or has a value that it can't have.

    >>> print(InvalidOption("rows", "'lines'", "is none of events, batches, outcomes"))
    option rows of format 'reknit': 'lines' is none of events, batches, outcomes
    """

    def __init__(self, name: str, value: str, why: str) -> None:
        super().__init__(name, value, why)
        self.name, self.value, self.why = name, value, why

    def __str__(self) -> str:
        return f"option {self.name} of format 'reknit': {self.value} {self.why}".replace(":  ", ": ")


def _struct(nullable: set[str], **columns: DataType) -> StructType:
    """Spark is faster on columns that say they are never null."""
    return StructType([StructField(name, kind, name in nullable) for name, kind in columns.items()])


EVENTS: Final = _struct(
    {"headers"},
    node=StringType(),
    position=LongType(),
    topic=StringType(),
    source=BinaryType(),
    seq=LongType(),
    time=TimestampType(),
    ttl_ms=IntegerType(),
    priority=IntegerType(),
    type=IntegerType(),
    payload=BinaryType(),
    headers=MapType(StringType(), StringType()),
)
"""`position` is the batch's: events of one batch share it, and (source, seq) tells them apart."""

BATCHES: Final = _struct(
    {"topic", "source", "time", "ttl_ms", "priority", "type", "length", "data", "first", "stop"},
    node=StringType(),
    position=LongType(),
    topic=StringType(),
    source=BinaryType(),
    first=LongType(),
    stop=LongType(),
    count=IntegerType(),
    time=TimestampType(),
    ttl_ms=IntegerType(),
    priority=IntegerType(),
    type=IntegerType(),
    length=IntegerType(),
    data=BinaryType(),
)
"""Events `[first, stop)`, and `data`, the whole frame. A row with `count` 0 says what was passed over."""

OUTCOMES: Final = _struct(
    {
        "subscriber",
        "topic",
        "source",
        "start",
        "stop",
        "end",
        "code",
        "reason",
        "text",
        "attempts",
        "time",
        "pattern",
        "since",
        "floor",
    },
    node=StringType(),
    position=LongType(),
    row=IntegerType(),
    kind=StringType(),
    subscriber=StringType(),
    topic=StringType(),
    source=BinaryType(),
    start=LongType(),
    stop=LongType(),
    end=StringType(),
    code=IntegerType(),
    reason=StringType(),
    text=StringType(),
    attempts=IntegerType(),
    time=TimestampType(),
    pattern=StringType(),
    since=LongType(),
    floor=LongType(),
)
"""`row` counts within the record at `position`. `kind` is outcomes, opened, closed, skipped or gone."""

KINDS: Final = {"events": EVENTS, "batches": BATCHES, "outcomes": OUTCOMES}
"""The kinds of rows, as in option `rows`."""


def full_schema(rows: str) -> StructType:
    """Every column of a kind of row. Raises `InvalidOption` where there is no such kind.

    >>> full_schema("batches").names[4:7]
    ['first', 'stop', 'count']
    """
    if rows not in KINDS:
        raise InvalidOption("rows", repr(rows), f"is no kind of row: use {', '.join(KINDS)}")
    return KINDS[rows]


def check_schema(rows: str, wanted: StructType) -> StructType:
    """The schema that a user asked for, if the source can give it. Raises `InvalidOption` if not.

    >>> check_schema("events", StructType([EVENTS["topic"], EVENTS["payload"]])).names
    ['topic', 'payload']
    """
    known = full_schema(rows)
    for field in wanted.fields:
        if field.name not in known.names:
            columns = ", ".join(known.names)
            raise InvalidOption("schema", repr(field.name), f"is no column of {rows}: there are {columns}")
        kind = known[field.name].dataType
        if field.dataType != kind:
            asked = field.dataType.simpleString()
            raise InvalidOption("schema", f"{field.name} {asked}", f"has another type: {kind.simpleString()}")
    return wanted
