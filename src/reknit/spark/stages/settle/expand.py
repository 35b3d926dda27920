"""From ranges to events, as late as possible: a batch's payloads become an Arrow column without a copy per event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reknit.batch import Batch, Head
from reknit.batch_layout import COUNT_AT
from reknit.spark.lake.columns import struct
from reknit.spark.lake.commits import LakeFile
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import read, read_files
from reknit.spark.lake.tables import TABLE_OF

__all__ = ["EVENT_ROW", "HEAD", "expand", "expand_rows", "fingerprints", "join_batches", "with_frames"]

ROWS_MAX: Final = 20_000
"""About this many events go to Spark in one record batch."""

_HEADERS: Final = pa.map_(pa.string(), pa.string())
_FRAME: Final = ["topic", "source", "start", "stop", "first", "skip", "time", "columns_bytes"]
HEAD: Final = ["ttl_ms", "priority", "type", "data"]
EVENT_ROW: Final = [*(name for name in _FRAME if name != "columns_bytes"), *HEAD]
"""The columns of a range and its frame that become events."""


def with_frames(spark: SparkSession, lake: Lake, pieces: DataFrame, files: Iterable[LakeFile]) -> DataFrame:
    """Ranges joined with the frames that hold them, which are in these files of table `batches` or were recovered.

    The ranges are small and are sent to the frames, never the other way round.
    """
    frames = _frames_of(read_files(spark, lake, "batches", files), "batches")
    if lake.files("recovered"):
        frames = frames.unionByName(_frames_of(read(spark, lake, "recovered"), "recovered"))
    return _join(frames, pieces)


def join_batches(batches: DataFrame, pieces: DataFrame) -> DataFrame:
    """Ranges joined with the rows of table `batches` that hold them, for `expand`."""
    return _join(_frames_of(batches, "batches"), pieces)


# A journal that replaced another begins at position 0 again: the seqs distinguish their batches.
_KEY: Final = ["origin", "node", "position", "source", "first"]


def _frames_of(batches: DataFrame, origin: str) -> DataFrame:
    return batches.select(F.lit(origin).alias("origin"), *_KEY[1:], *HEAD)


def _join(frames: DataFrame, pieces: DataFrame) -> DataFrame:
    wanted = F.broadcast(pieces.select("origin", "node", "position", *_FRAME))
    return frames.join(wanted, _KEY).select(*_FRAME, *HEAD)


def expand(frames: DataFrame) -> DataFrame:
    """One row per event, from rows of `with_frames`."""
    return frames.select(*EVENT_ROW).mapInArrow(expand_rows, struct(TABLE_OF["events"].ddl))


def expand_rows(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The events of ranges with their frames (`EVENT_ROW`)."""
    for chunk in chunks:
        rows = chunk.to_pydict()
        data = chunk.column("data")
        size, begin = 0, 0
        for at in range(chunk.num_rows):
            size += rows["stop"][at] - rows["start"][at]
            if size >= ROWS_MAX or at + 1 == chunk.num_rows:
                yield _events(rows, chunk, data, begin, at + 1)
                size, begin = 0, at + 1


def _events(
    rows: dict[str, list[Any]], chunk: pa.RecordBatch, data: pa.Array, low: int, high: int
) -> pa.RecordBatch:
    """The events of rows `[low, high)`."""
    payloads: list[pa.Array] = []
    seqs: list[np.ndarray[Any, Any]] = []
    own: list[dict[str, list[Any]]] = []
    for at in range(low, high):
        start, stop = rows["start"][at], rows["stop"][at]
        batch = view(rows, data[at].as_buffer(), at)
        payloads.append(payload_column(batch).slice(start - batch.first, stop - start))
        seqs.append(np.arange(start, stop, dtype=np.int64))
        cut = slice(start - batch.first, stop - batch.first)
        own.append({name: values[cut] for name, values in batch.columns().items()})
    counts = [len(column) for column in payloads]
    columns = _repeated(chunk, low, counts) | {
        "seq": pa.array(np.concatenate(seqs)),
        "payload": pa.concat_arrays(payloads),
        "headers": pa.concat_arrays(list(map(_headers, own, counts))),
    }
    for name, given in (("time", "time"), ("ttl_ms", "ttl")):
        if any(given in one for one in own):
            columns[name] = _own_values(columns[name], [one.get(given) for one in own], counts)
    made = pa.RecordBatch.from_pydict({name: columns[name] for name in TABLE_OF["events"].names})
    if not any(rows["skip"][low:high]):
        return made
    return made.filter(_is_unique(rows, low, high, seqs))


def _own_values(shared: pa.Array, own: list[list[Any] | None], counts: list[int]) -> pa.Array:
    """The values of a column that some batches have for each of their events, and others for all together."""
    parts: list[pa.Array] = []
    at = 0
    for values, count in zip(own, counts, strict=True):
        part = shared.slice(at, count)
        parts.append(part if values is None else pa.array(values, pa.int64()).cast(shared.type))
        at += count
    return pa.concat_arrays(parts)


def _repeated(chunk: pa.RecordBatch, low: int, counts: list[int]) -> dict[str, pa.Array]:
    """The columns that the events of a row share; row `low + n` is repeated `counts[n]` times."""
    index = pa.array(np.repeat(np.arange(low, low + len(counts)), counts))
    names = ("topic", "source", "time", "ttl_ms", "priority", "type")
    return {name: chunk.column(name).take(index) for name in names}


def _is_unique(rows: dict[str, list[Any]], low: int, high: int, seqs: list[np.ndarray[Any, Any]]) -> pa.Array:
    """True for each event that does not repeat the fingerprint of another."""
    masks = [~np.isin(seqs[at - low], rows["skip"][at] or []) for at in range(low, high)]
    return pa.array(np.concatenate(masks))


def view(rows: dict[str, list[Any]], frame: pa.Buffer, at: int) -> Batch:
    """A batch over a frame, which was verified when it was captured."""
    head = Head(rows["source"][at], rows["topic"][at], rows["first"][at], _count(frame), frame.size, 0)
    return Batch(head, memoryview(frame))


def _count(frame: pa.Buffer) -> int:
    return int.from_bytes(memoryview(frame)[COUNT_AT], "little")


def payload_column(batch: Batch) -> pa.Array:
    """A batch's payloads as a binary column over the batch's own bytes.

    >>> payload_column(Batch.build(bytes(16), "a", 1, [b"x", b"yz"], time_us=0)).to_pylist()
    [b'x', b'yz']
    """
    offsets = np.zeros(batch.count + 1, dtype=np.int32)
    np.cumsum(np.frombuffer(batch.lengths(), dtype=np.uint32), out=offsets[1:])
    block = pa.py_buffer(batch.block())
    return pa.Array.from_buffers(pa.binary(), batch.count, [None, pa.py_buffer(offsets), block])


def _headers(columns: dict[str, list[Any]], count: int) -> pa.Array:
    values = columns.get("headers")
    if values is None:
        return pa.nulls(count, _HEADERS)
    texts = [[(str(k), str(v)) for k, v in one.items()] if one else None for one in values]
    return pa.array(texts, _HEADERS)


def fingerprints(frames: DataFrame) -> DataFrame:
    """(topic, source, seq, fingerprint, time) of each event that has a fingerprint."""
    return frames.select(*_FRAME, *HEAD).mapInArrow(_fingerprints, TABLE_OF["fingerprints"].ddl)


def _fingerprints(chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        rows = chunk.to_pydict()
        found: dict[str, list[Any]] = {name: [] for name in TABLE_OF["fingerprints"].names}
        for at in range(chunk.num_rows):
            batch = view(rows, chunk.column("data")[at].as_buffer(), at)
            values = batch.columns().get("fingerprint") or []
            for seq in range(rows["start"][at], rows["stop"][at]) if values else ():
                if (value := values[seq - batch.first]) is not None:
                    _put(found, rows, at, seq, value)
        schema = pa.schema(
            {
                "topic": pa.string(),
                "source": pa.binary(),
                "seq": pa.int64(),
                "fingerprint": pa.string(),
                "time": chunk.schema.field("time").type,
            }
        )
        yield pa.RecordBatch.from_pydict(found, schema)


def _put(found: dict[str, list[Any]], rows: dict[str, list[Any]], at: int, seq: int, value: Any) -> None:
    text = value.hex() if isinstance(value, bytes) else str(value)
    for name in ("topic", "source", "time"):
        found[name].append(rows[name][at])
    found["seq"].append(seq)
    found["fingerprint"].append(text)
