"""Capture: raw batches and outcomes into their tables, exactly once across restarts.

Structured Streaming keeps the offsets and gives a micro-batch that failed the same id and the same rows again; the
table's commit log remembers which ids are in. Both together are exactly once, whenever the driver dies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reknit.spark.lake.columns import add
from reknit.spark.lake.commit_log import Lake, LakeError
from reknit.spark.lake.spark_tables import Transaction
from reknit.spark.lake.tables import TABLE_OF

__all__ = ["batch_rows", "capture_batch", "into_table", "outcome_rows"]

_COLUMNS_LEN_AT = 61
"""Where a frame's header says how long its columns are (Spark counts from 1); four bytes, little endian."""


def batch_rows(frame: DataFrame) -> DataFrame:
    """Rows of the source (`rows=batches`) as rows of table `batches`."""
    field = F.reverse(F.hex(F.substring("data", _COLUMNS_LEN_AT, 4)))
    # Reversed digits of reversed nibbles: turn every pair back, which `reverse` of the whole has put last first.
    big_endian = F.regexp_replace(field, "(.)(.)", "$2$1")
    size = F.coalesce(F.conv(big_endian, 16, 10).cast("int"), F.lit(0))
    return add(frame, columns_bytes=size).select(*TABLE_OF["batches"].names)


def outcome_rows(frame: DataFrame) -> DataFrame:
    """Rows of the source (`rows=outcomes`) as rows of table `outcomes`."""
    return frame.select(*TABLE_OF["outcomes"].names)


_PREPARE: dict[str, Callable[[DataFrame], DataFrame]] = {"batches": batch_rows, "outcomes": outcome_rows}


def capture_batch(
    lake: Lake, table: str, frame: DataFrame, batch_id: int, meta: dict[str, Any] | None = None
) -> int:
    """Put one micro-batch into its table, unless it is there already; gives the rows that were new."""
    stage = TABLE_OF[table].stage
    log = lake.log(stage)
    if log.has(batch_id):
        return 0
    last = log.last()
    if last is not None and batch_id != last.id + 1:
        do = "give the lake back its own checkpoints, or start a new lake"
        raise LakeError(str(lake.root), f"{table} ends with commit {last.id}, but {batch_id} came", do)
    with Transaction(lake, stage, batch_id) as transaction:
        rows = transaction.write(table, _PREPARE[table](frame))
        transaction.commit(meta)
    return rows


def into_table(
    lake: Lake, table: str, checkpoint: Path, after: Callable[[str, int, int], None] | None = None
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`. `after(table, batch_id, rows)` is told what was committed."""

    def write(frame: DataFrame, batch_id: int) -> None:
        meta = {"query": query_id(checkpoint), "ends": offsets(checkpoint, batch_id)}
        last = lake.log(TABLE_OF[table].stage).last()
        if last is not None and last.meta.get("query") not in (None, meta["query"]):
            what = f"{table} was written with other checkpoints than those in {checkpoint}"
            raise LakeError(str(lake.root), what, "give the lake back its own, or start a new lake")
        rows = capture_batch(lake, table, frame, batch_id, meta)
        if after is not None:
            after(table, batch_id, rows)

    return write


def query_id(checkpoint: Path) -> str:
    """Which streaming query a checkpoint belongs to: ids of micro-batches count within one query only."""
    text = (checkpoint / "metadata").read_text()
    return str(json.loads(text)["id"])


def offsets(checkpoint: Path, batch_id: int) -> dict[str, int]:
    """How far a micro-batch reaches in every node's journal: the position after its last record."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    ends: dict[str, int] = {}
    for line in lines[2:]:
        if line.startswith("{"):
            found = json.loads(line)
            # The source names a journal as node@epoch.
            ends.update(
                {key.rpartition("@")[0] or key: end for key, end in found.items() if isinstance(end, int)}
            )
    return ends
