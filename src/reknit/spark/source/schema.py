"""The columns of the source, for each kind of row. `docs/reference/spark-source.md` explains them.

`events`     one row per event
`batches`    one row per batch: a range of events, and the frame that carries them
`outcomes`   one row per range that ended for a subscriber, and rows for opened and closed subscribers

A reader returns the columns of the schema that Spark asks for, in that order, and reads nothing for the others.
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

from reknit.spark.options import InvalidOption

__all__ = ["BATCHES", "EVENTS", "KINDS", "OUTCOMES", "check_schema", "full_schema"]


def _struct(nullable: set[str], **columns: DataType) -> StructType:
    """Columns; those not in `nullable` are declared as never null, which Spark reads faster."""
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
"""`position` is that of the batch: all its events share it, and (source, seq) identifies each."""

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
"""Events `[first, stop)`, and `data`, the whole frame. A row with `count` 0 reports removed events."""

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
"""`row` numbers the rows of the record at `position`. `kind` is outcomes, opened, closed, skipped or gone."""

KINDS: Final = {"events": EVENTS, "batches": BATCHES, "outcomes": OUTCOMES}
"""The kinds of rows, as in option `rows`."""


def full_schema(rows: str) -> StructType:
    """Every column of a kind of row. Raises `InvalidOption` for an unknown kind.

    >>> full_schema("batches").names[4:7]
    ['first', 'stop', 'count']
    """
    if rows not in KINDS:
        raise InvalidOption("rows", repr(rows), f"is not a kind of row: use {', '.join(KINDS)}")
    return KINDS[rows]


def check_schema(rows: str, wanted: StructType) -> StructType:
    """The schema that a user asked for, if the source has its columns. Raises `InvalidOption` otherwise.

    >>> check_schema("events", StructType([EVENTS["topic"], EVENTS["payload"]])).names
    ['topic', 'payload']
    """
    known = full_schema(rows)
    for field in wanted.fields:
        if field.name not in known.names:
            columns = ", ".join(known.names)
            raise InvalidOption(
                "schema", repr(field.name), f"is not a column of {rows}: use some of {columns}"
            )
        kind = known[field.name].dataType
        if field.dataType != kind:
            asked = field.dataType.simpleString()
            raise InvalidOption("schema", f"{field.name} {asked}", f"has another type: {kind.simpleString()}")
    return wanted
