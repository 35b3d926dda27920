"""Table `dead_letters`: events that ended undelivered, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.dead_letter import read_letter
from reknit.errors import MalformedFrame
from reknit.spark.lake.columns import struct
from reknit.spark.lake.commit_log import Lake
from reknit.spark.lake.spark_tables import Transaction, read_files
from reknit.spark.lake.tables import TABLE_OF, topic_key
from reknit.spark.stages.settle.expand import expand, with_frames
from reknit.spark.stages.settle.newly_settled import newly_settled

__all__ = ["DEAD_LETTER_TOPIC", "dead_letters", "dead_letters_by", "dead_letters_lake"]

DEAD_LETTER_TOPIC: Final = "reknit/dead-letters"
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
    }
)


def dead_letters(events: DataFrame) -> DataFrame:
    """Events of the dead-letter topic (one row per event) as rows of table `dead_letters`.

    An event that is not a valid dead letter gets reason `malformed`, and its bytes become the payload.
    """
    needed = events.select("topic", "source", "seq", "time", "payload")
    return needed.mapInArrow(_parse, struct(TABLE_OF["dead_letters"].ddl))


def _parse(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        yield pa.RecordBatch.from_pylist([letter_row(row) for row in chunk.to_pylist()], _ARROW)


def letter_row(event: dict[str, Any]) -> dict[str, Any]:
    """An event of the dead-letter topic as a row of table `dead_letters`."""
    own = {"letter_source": event["source"], "letter_seq": event["seq"]}
    try:
        letter = read_letter(event["payload"])
    except MalformedFrame as error:
        return {
            **{name: event[name] for name in ("topic", "source", "seq", "time", "payload")},
            **own,
            "reason": "malformed",
            "text": f"not a dead letter: {error.what}",
            "died": event["time"],
        }
    fields = msgspec.structs.asdict(letter)
    times = {"time": _time(fields.pop("time_us")), "died": _time(fields.pop("died_us"))}
    return {**fields, **times, **own}


def _time(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def dead_letters_lake(spark: SparkSession, lake: Lake, topic: str = DEAD_LETTER_TOPIC) -> int | None:
    """Bring table `dead_letters` up to date. Returns the number of new rows, or None if nothing new was settled."""
    new = newly_settled(lake, "dead_letters")
    if new is None:
        return None
    key = topic_key(topic)
    pieces = read_files(spark, lake, "settled", [file for file in new.pieces if file.topic_key == key])
    pieces = pieces.where(F.col("topic") == topic)
    with Transaction(lake, "dead_letters", new.id) as transaction:
        rows = 0
        if not pieces.isEmpty():
            batches = [file for file in new.batches if file.topic_key == key]
            frames = with_frames(spark, lake, pieces, batches)
            rows = transaction.write("dead_letters", dead_letters(expand(frames)))
        transaction.commit({"through": new.through})
    return rows


def dead_letters_by(letters: DataFrame, by: list[str]) -> DataFrame:
    """The number of dead letters, and when the first and last ended, grouped by columns of `GROUPS`."""
    hour = letters.withColumn("hour", F.date_trunc("hour", "died"))
    sums = hour.groupBy(*by).agg(
        F.count("*").alias("letters"), F.min("died").alias("first_died"), F.max("died").alias("last_died")
    )
    return sums.orderBy(F.desc("letters"), *by)
