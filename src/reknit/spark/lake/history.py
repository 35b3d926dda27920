"""History: the lake as an archive for events that are too old for a node's journal. Needs pyarrow, not Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reknit.batch import Batch
from reknit.seqset import SeqSet
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.storage import open_dataset
from reknit.spark.lake.tables import topic_key

__all__ = ["Archive"]

FRAMES_MAX: Final = 10_000
"""One answer has at most this many batches; ask again from where it ends."""


class Archive:
    """Answers recovery requests from a lake: `find(topic, source, start, stop)`, as a node's journal does.

    >>> import tempfile
    >>> archive = Archive(Lake.create(tempfile.mkdtemp()))
    >>> archive.find("plant/temp", bytes(16), 1, 10)
    []
    """

    def __init__(self, lake: Lake | str | Path) -> None:
        self.lake = lake if isinstance(lake, Lake) else Lake(lake)

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        """The archived events of `[start, stop)`, each once, in seq order, as batches cut to the range."""
        rows = self._rows(topic, source, start, stop).sort_by(
            [("first", "ascending"), ("stop", "descending")]
        )
        found: list[Batch] = []
        seen = SeqSet()
        for data in rows.column("data")[:FRAMES_MAX]:
            batch = Batch.parse(data.as_py())
            for low, high in seen.missing(max(start, batch.first), max(start, min(stop, batch.stop))):
                found.append(batch.cut(low, high))
                seen.add(low, high)
        return sorted(found, key=lambda batch: batch.first)

    def held(self, topic: str, source: bytes) -> SeqSet:
        """The seqs of a series that are archived."""
        rows = self._rows(topic, source, 0, 1 << 62, ["first", "stop"])
        bounds = zip(rows.column("first").to_pylist(), rows.column("stop").to_pylist(), strict=True)
        return SeqSet.from_ranges(sorted(bounds))

    def _rows(
        self, topic: str, source: bytes, start: int, stop: int, columns: list[str] | None = None
    ) -> pa.Table:
        """Rows that overlap the range. Opens only the topic's folders, and only row groups that can hold the range."""
        columns = columns or ["first", "stop", "data"]
        keys = [topic_key(topic)]
        tables = []
        for table in ("batches", "recovered"):
            files = self.lake.files(table, topic_keys=keys if table == "batches" else None)
            if not files:
                continue
            wanted = (
                (pc.field("source") == pa.scalar(source, pa.binary()))
                & (pc.field("topic") == topic)
                & (pc.field("first") < stop)
                & (pc.field("stop") > start)
                & (pc.field("count") > 0)
            )
            tables.append(open_dataset(self.lake.paths(files)).to_table(columns, filter=wanted))
        empty = pa.table(
            {
                "first": pa.array([], pa.int64()),
                "stop": pa.array([], pa.int64()),
                "data": pa.array([], pa.binary()),
            }
        )
        return pa.concat_tables(tables or [empty.select(columns)])
