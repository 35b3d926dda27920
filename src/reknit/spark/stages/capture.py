"""Capture: writes raw batches and outcomes into their tables, exactly once across restarts.

Structured Streaming stores the offsets, and repeats a failed micro-batch with the same id and the same rows. The
table's commit log records which ids it has. Together they write each row exactly once, whenever the driver dies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reknit.batch_layout import COLUMNS_LEN_AT
from reknit.spark.lake.columns import add
from reknit.spark.lake.commits import LakeError
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import Transaction
from reknit.spark.lake.tables import TABLE_OF

__all__ = ["batch_rows", "capture_batch", "check_checkpoint", "into_table", "outcome_rows"]


def batch_rows(frame: DataFrame) -> DataFrame:
    """Rows of the source (`rows=batches`) as rows of table `batches`, by columns of Spark alone."""
    start, stop = COLUMNS_LEN_AT.start, COLUMNS_LEN_AT.stop
    field = F.reverse(F.hex(F.substring("data", start + 1, stop - start)))  # Spark counts from 1
    # `reverse` put the bytes into big-endian order, but also swapped the two digits of each: swap them back.
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
    """Write one micro-batch to its table, unless it is there already. Returns the number of new rows."""
    stage = TABLE_OF[table].stage
    log = lake.log(stage)
    if log.has(batch_id):
        return 0
    last = log.last()
    if last is not None and batch_id != last.id + 1:
        do = "restore the lake's own checkpoints, or start a new lake"
        raise LakeError(
            lake.storage.root, f"{table} ends with commit {last.id}, but the next one is {batch_id}", do
        )
    with Transaction(lake, stage, batch_id) as transaction:
        rows = transaction.write(table, _PREPARE[table](frame))
        transaction.commit(meta)
    return rows


def into_table(
    lake: Lake, table: str, checkpoint: Path, after: Callable[[str, int, int], None] | None = None
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch`. It calls `after(table, batch_id, rows)` after each commit."""

    def write(frame: DataFrame, batch_id: int) -> None:
        found = offsets(checkpoint, batch_id)
        meta = {"query": query_id(checkpoint), "ends": by_node(found), "offsets": found}
        check_checkpoint(lake, table, checkpoint)
        rows = capture_batch(lake, table, frame, batch_id, meta)
        if after is not None:
            after(table, batch_id, rows)

    return write


def check_checkpoint(lake: Lake, table: str, checkpoint: Path) -> None:
    """Raise `LakeError` if a table was captured with another checkpoint than this: it would be captured twice."""
    last = lake.log(TABLE_OF[table].stage).last()
    query = None if last is None else last.meta.get("query")
    if query is None:
        return
    do = "restore the lake's own checkpoints, or start a new lake"
    if not (checkpoint / "metadata").exists():
        raise LakeError(lake.storage.root, f"the checkpoint of {table} is missing at {checkpoint}", do)
    if query != query_id(checkpoint):
        what = f"{table} was written with other checkpoints than those in {checkpoint}"
        raise LakeError(lake.storage.root, what, do)


def query_id(checkpoint: Path) -> str:
    """The streaming query that a checkpoint belongs to: ids of micro-batches are valid within one query only."""
    text = (checkpoint / "metadata").read_text()
    return str(json.loads(text)["id"])


def offsets(checkpoint: Path, batch_id: int) -> dict[str, int]:
    """How far a micro-batch reaches in each journal (node@epoch): the position after its last record."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    ends: dict[str, int] = {}
    for line in lines[2:]:
        if line.startswith("{"):
            found = json.loads(line)
            ends.update({key: end for key, end in found.items() if isinstance(end, int)})
    return ends


def by_node(offsets: dict[str, int]) -> dict[str, int]:
    """The positions by node alone.

    >>> by_node({"line1@e5": 64})
    {'line1': 64}
    """
    return {key.rpartition("@")[0] or key: end for key, end in offsets.items()}
