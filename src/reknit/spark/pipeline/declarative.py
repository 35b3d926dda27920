"""The stages as datasets of a Spark Declarative Pipeline, for `spark-pipelines run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from reknit.batch import Batch
from reknit.spark.lake.columns import struct
from reknit.spark.lake.tables import TABLE_OF
from reknit.spark.stages.audit import ledger, segments
from reknit.spark.stages.capture import batch_rows, outcome_rows
from reknit.spark.stages.dead_letters import DEAD_LETTER_TOPIC, letter_row
from reknit.spark.stages.settle import settle
from reknit.spark.stages.settle.expand import join_batches

__all__ = ["DATASETS", "define"]

DATASETS: Final = ("batches", "outcomes", "settled", "losses", "events", "dead_letters", "ledger")


def define(nodes: str, dead_letter_topic: str = DEAD_LETTER_TOPIC, **options: str) -> None:
    """Define all `DATASETS` over these nodes; `options` are options of the source.

    `batches` and `outcomes` are streaming tables: each update appends new rows, once. The others are materialized
    views of them: each update computes them again. Call this in a file that the pipeline's `libraries` name.
    """
    for name, rows in (("batches", batch_rows), ("outcomes", outcome_rows)):
        _capture(name, rows, {"nodes": nodes, **options})
    _view("settled", lambda: _decided("settled"))
    _view("losses", lambda: _decided("losses"))
    _view("events", _events)
    _view("dead_letters", lambda: _dead_letters(dead_letter_topic))
    _view("ledger", _ledger)


def _capture(name: str, rows: Callable[[DataFrame], DataFrame], options: dict[str, str]) -> None:
    def query() -> DataFrame:
        reader = SparkSession.active().readStream.format("reknit").option("rows", name)
        return rows(reader.options(**options).load())

    dp.table(name=name, comment=TABLE_OF[name].doc)(query)


def _view(name: str, query: Callable[[], DataFrame]) -> None:
    doc = (
        TABLE_OF[name].doc if name in TABLE_OF else "How events ended, a row per node, subscriber and topic."
    )
    dp.materialized_view(name=name, comment=doc)(query)


def _table(name: str) -> DataFrame:
    return SparkSession.active().read.table(name)


def _decided(name: str) -> DataFrame:
    """The decisions of settle about all batches so far, without a grace period."""
    what, time = {"settled": ("settled", "time"), "losses": ("lost", "noticed")}[name]
    rows = settle(_table("batches")).where(F.col("what") == what)
    own = {"skip": F.lit(None).cast("array<bigint>"), "time": F.col(time)}
    return rows.select(*(own[one].alias(one) if one in own else F.col(one) for one in TABLE_OF[name].names))


# The stages use functions over whole frames (mapInArrow), which need their input's schema while the pipeline is still
# being defined. Functions over values do not.


def _events() -> DataFrame:
    parts = ArrayType(struct("seq bigint, payload binary, headers map<string,string>"))
    frames = join_batches(_table("batches"), _table("settled"))
    opened = F.explode(F.udf(_open, parts, useArrow=False)("data", "start", "stop")).alias("event")
    common = ("topic", "source", "time", "ttl_ms", "priority", "type")
    return frames.select(*common, opened).select(*common, "event.*").select(*TABLE_OF["events"].names)


def _open(data: bytes, start: int, stop: int) -> list[dict[str, Any]]:
    """The events of a frame that are in the range."""
    batch = Batch.parse(bytes(data)).cut(start, stop)
    headers = batch.columns().get("headers") or [None] * batch.count
    rows = zip(range(batch.first, batch.stop), batch.payloads(), headers, strict=True)
    return [
        {
            "seq": seq,
            "payload": payload,
            "headers": {str(k): str(v) for k, v in found.items()} if found else None,
        }
        for seq, payload, found in rows
    ]


def _dead_letters(topic: str) -> DataFrame:
    columns = ("topic", "source", "seq", "time", "payload")
    letter = F.udf(_letter, struct(TABLE_OF["dead_letters"].ddl), useArrow=False)(*columns).alias("letter")
    return _table("events").where(F.col("topic") == topic).select(letter).select("letter.*")


def _letter(*values: Any) -> dict[str, Any]:
    return letter_row(dict(zip(("topic", "source", "seq", "time", "payload"), values, strict=True)))


def _ledger() -> DataFrame:
    return ledger(segments(_table("batches"), _table("outcomes"), _table("losses"), is_lazy=True))
