"""Table `dead_letters`: events that ended undelivered, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.dead_letter import read_letter
from reknit.errors import MalformedFrame
from reknit.spark.lake.columns import struct
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import Transaction, read_files
from reknit.spark.lake.tables import TABLE_OF, topic_key
from reknit.spark.stages.settle.expand import expand, with_frames
from reknit.spark.stages.settle.newly_settled import newly_settled
from reknit.topic import Pattern

__all__ = ["DEAD_LETTER_TOPIC", "dead_letters", "dead_letters_by", "dead_letters_lake", "known_topics"]

DEAD_LETTER_TOPIC: Final = "reknit/dead-letters"
MALFORMED: Final = "malformed"
GROUPS: Final = ("reason", "code", "topic", "subscriber", "node", "hour")

_TIME: Final = pa.timestamp("us", "UTC")
_ARROW: Final = pa.schema(
    {
        "topic": pa.string(),
        "source": pa.binary(),
        "seq": pa.int64(),
        "time": _TIME,
        "payload": pa.binary(),
        "subscriber": pa.string(),
        "code": pa.int32(),
        "reason": pa.string(),
        "text": pa.string(),
        "attempts": pa.int32(),
        "node": pa.string(),
        "died": _TIME,
        "letter_source": pa.binary(),
        "letter_seq": pa.int64(),
        "has_payload": pa.bool_(),
        "ttl_ms": pa.int32(),
        "priority": pa.int32(),
        "type": pa.int32(),
        "flags": pa.int32(),
        "headers": pa.map_(pa.string(), pa.string()),
        "fields": pa.binary(),
        "redriven": pa.int32(),
        "original": pa.string(),
    }
)


def dead_letters(events: DataFrame, patterns: Iterable[str] = ()) -> DataFrame:
    """Events of a dead-letter topic (one row per event) as rows of table `dead_letters`.

    With patterns, only those about events on topics that match. An event that is not a valid dead letter gets reason
    `malformed`, and its bytes become the payload.
    """
    wanted = tuple(map(Pattern, patterns))

    def parse(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            rows = [row for row in map(letter_row, chunk.to_pylist()) if _is_wanted(row, wanted)]
            lists = [{**row, "headers": list((row.get("headers") or {}).items())} for row in rows]
            yield pa.RecordBatch.from_pylist(lists, _ARROW)

    needed = events.select("topic", "source", "seq", "time", "payload")
    return needed.mapInArrow(parse, struct(TABLE_OF["dead_letters"].ddl))


def _is_wanted(row: dict[str, Any], patterns: tuple[Pattern, ...]) -> bool:
    if not patterns or row["reason"] == MALFORMED:
        return True
    return any(pattern.matches(row["topic"]) for pattern in patterns)


def letter_row(event: dict[str, Any]) -> dict[str, Any]:
    """An event of the dead-letter topic as a row of table `dead_letters`."""
    own = {"letter_source": event["source"], "letter_seq": event["seq"]}
    try:
        letter = read_letter(event["payload"])
    except MalformedFrame as error:
        return {
            **{name: event[name] for name in ("topic", "source", "seq", "time", "payload")},
            **dict.fromkeys(_ARROW.names[5:]),
            **own,
            "reason": MALFORMED,
            "text": f"not a dead letter: {error.what}",
            "died": event["time"],
        }
    fields = msgspec.structs.asdict(letter)
    times = {"time": _time(fields.pop("time_us")), "died": _time(fields.pop("died_us"))}
    columns = fields.pop("columns")
    headers = {str(name): str(value) for name, value in (columns.get("headers") or {}).items()}
    row = {**fields, **times, **own, "headers": headers, "fields": msgspec.msgpack.encode(columns)}
    return {name: row[name] for name in _ARROW.names}


def _time(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def known_topics(lake: Lake) -> set[str]:
    """The dead-letter topics of earlier runs."""
    last = lake.log("dead_letters").last()
    return set() if last is None else set(last.meta.get("topics", ()))


def dead_letters_lake(
    spark: SparkSession,
    lake: Lake,
    topics: Iterable[str] = (DEAD_LETTER_TOPIC,),
    patterns: Iterable[str] = (),
) -> int | None:
    """Bring table `dead_letters` up to date from these dead-letter topics, with letters about events that match.

    Returns the number of new rows, or None if nothing new was settled.
    """
    new = newly_settled(lake, "dead_letters")
    if new is None:
        return None
    named = sorted(topics)
    keys = set(map(topic_key, named))
    pieces = read_files(spark, lake, "settled", [file for file in new.pieces if file.may_hold(keys)])
    pieces = pieces.where(F.col("topic").isin(named))
    with Transaction(lake, "dead_letters", new.id) as transaction:
        rows = 0
        if not pieces.isEmpty():
            batches = [file for file in new.batches if file.may_hold(keys)]
            frames = with_frames(spark, lake, pieces, batches)
            rows = transaction.write("dead_letters", dead_letters(expand(frames), patterns))
        transaction.commit({"through": new.through, "topics": named})
    return rows


def dead_letters_by(letters: DataFrame, by: list[str]) -> DataFrame:
    """The number of dead letters, and when the first and last ended, grouped by columns of `GROUPS`."""
    hour = letters.withColumn("hour", F.date_trunc("hour", "died"))
    sums = hour.groupBy(*by).agg(
        F.count("*").alias("letters"), F.min("died").alias("first_died"), F.max("died").alias("last_died")
    )
    return sums.orderBy(F.desc("letters"), *by)
