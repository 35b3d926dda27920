"""Batches as Arrow record batches, without Python code per event.

A value that a whole batch shares is repeated by numpy. A batch stores its payloads in Arrow's layout: a record batch
made of one batch uses the journal's own bytes, one made of several joins their blocks. A record batch has about ten
thousand rows, the size that Spark processes fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reknit.batch_layout import decode_columns
from reknit.spark.source.frame_scan import ScannedFrames

__all__ = ["ROWS", "BatchTables", "EventTables", "groups"]

ROWS: Final = 10_000
GROUP_BYTES: Final = 1 << 20

TIME: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.map_(pa.string(), pa.string())

Ints = npt.NDArray[np.int64]
Column = Callable[["FrameGroup"], "pa.Array[Any]"]


def groups(frames: ScannedFrames, counts: Ints) -> Iterator[ScannedFrames]:
    """Groups of consecutive frames, each of about `ROWS` rows or `GROUP_BYTES`."""
    if not len(frames):
        return
    sizes = frames.heads["length"].astype(np.int64)
    steps = (np.cumsum(counts) - 1) // ROWS + (np.cumsum(sizes) - 1) // GROUP_BYTES
    cuts = np.flatnonzero(np.diff(steps)) + 1
    for low, high in pairwise([0, *cuts.tolist(), len(frames)]):
        yield frames.pick(slice(low, high))


class FrameGroup:
    """Frames that become one record batch, with the values that several columns need."""

    __slots__ = ("_columns", "counts", "frames", "rows", "topics")

    def __init__(self, frames: ScannedFrames, counts: Ints) -> None:
        self.frames, self.counts = frames, counts
        self.rows = int(counts.sum())
        self.topics: list[str] | None = None
        self._columns: list[dict[str, list[Any]]] | None = None

    def repeat(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One value per frame, repeated for each of its rows."""
        return np.repeat(values, self.counts)

    def columns(self) -> list[dict[str, list[Any]]]:
        """The columns of each frame: values that differ between its events."""
        if self._columns is None:
            frames = self.frames
            sizes = frames.heads["columns_len"].tolist()
            places = frames.sections()[0].tolist()
            self._columns = [
                decode_columns(frames.view[at : at + size]) if size else {}
                for at, size in zip(places, sizes, strict=True)
            ]
        return self._columns

    def has_columns(self) -> bool:
        return bool(self.frames.heads["columns_len"].any())

    def values(self, name: str, default: Callable[[int], Any]) -> list[Any]:
        """A column that some frames have; `default(index)` gives the value for frame `index` without it."""
        out: list[Any] = []
        skips, counts = self.frames.skips.tolist(), self.counts.tolist()
        for index, (columns, skip, count) in enumerate(zip(self.columns(), skips, counts, strict=True)):
            given = columns.get(name)
            out += [default(index)] * count if given is None else given[skip : skip + count]
        return out


class _Tables:
    """Turns frames into record batches with the columns of one schema."""

    def __init__(self, node: str, schema: pa.Schema) -> None:
        self.schema = schema
        self._node = node
        self._repeated: dict[Any, pa.Array[Any]] = {}

    def _tables(self, frames: ScannedFrames, counts: Ints) -> Iterator[pa.RecordBatch]:
        kinds = [cast(Column, getattr(self, f"col_{name}")) for name in self.schema.names]
        for part in groups(frames, counts):
            group = FrameGroup(part, self._counts(part))
            arrays = [column(group) for column in kinds]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _counts(self, frames: ScannedFrames) -> Ints:
        raise NotImplementedError

    def same(self, key: Any, rows: int, make: Callable[[int], pa.Array[Any]]) -> pa.Array[Any]:
        """One value in every row. Arrays are immutable, so slices of the longest one so far are shared."""
        found = self._repeated.get(key)
        if found is None or len(found) < rows:
            if len(self._repeated) > 1000:
                self._repeated.clear()
            # Longer than needed: the next record batch may have a few more rows.
            found = self._repeated[key] = make(rows + rows // 4)
        return found.slice(0, rows)

    def _text(self, value: bytes | str, rows: int) -> pa.Array[Any]:
        return self.same(value, rows, lambda count: repeated([value], np.array([count])))

    def _number(self, group: FrameGroup, name: str) -> pa.Array[Any]:
        """A field of the header, which is often the same in all frames."""
        values = group.frames.heads[name]
        low = int(values[0])
        if (values == low).all():
            return self.same((name, low), group.rows, lambda count: pa.array(np.full(count, low, np.int32)))
        return pa.array(group.repeat(values.astype(np.int32)))

    def _texts(self, group: FrameGroup, values: Sequence[bytes | str]) -> pa.Array[Any]:
        first = values[0]
        if all(value == first for value in values):
            return self._text(first, group.rows)
        return repeated(values, group.counts)

    # -- columns, called by name

    def col_node(self, group: FrameGroup) -> pa.Array[Any]:
        return self._text(self._node, group.rows)

    def col_position(self, group: FrameGroup) -> pa.Array[Any]:
        return pa.array(group.repeat(group.frames.positions()))

    def col_topic(self, group: FrameGroup) -> pa.Array[Any]:
        return self._texts(group, group.frames.topics())

    def col_source(self, group: FrameGroup) -> pa.Array[Any]:
        return self._texts(group, group.frames.sources())

    def col_time(self, group: FrameGroup) -> pa.Array[Any]:
        return times(group.repeat(group.frames.heads["time_us"]))

    def col_ttl_ms(self, group: FrameGroup) -> pa.Array[Any]:
        return self._number(group, "ttl_ms")

    def col_priority(self, group: FrameGroup) -> pa.Array[Any]:
        return self._number(group, "priority")

    def col_type(self, group: FrameGroup) -> pa.Array[Any]:
        return self._number(group, "type")


class EventTables(_Tables):
    """One row per event."""

    def tables(self, frames: ScannedFrames) -> Iterator[pa.RecordBatch]:
        """Record batches with all events of the frames, in order."""
        return self._tables(frames, frames.counts())

    def _counts(self, frames: ScannedFrames) -> Ints:
        return frames.counts()

    def col_seq(self, group: FrameGroup) -> pa.Array[Any]:
        frames, counts = group.frames, group.counts
        begins = frames.heads["first"] + frames.skips - (np.cumsum(counts) - counts)
        return pa.array(np.arange(group.rows, dtype=np.int64) + group.repeat(begins))

    def col_payload(self, group: FrameGroup) -> pa.Array[Any]:
        return payloads(group.frames, group.counts)

    def col_time(self, group: FrameGroup) -> pa.Array[Any]:
        if not group.has_columns():
            return super().col_time(group)
        given = group.frames.heads["time_us"].tolist()
        return times(np.array(group.values("time", given.__getitem__), dtype=np.int64))

    def col_ttl_ms(self, group: FrameGroup) -> pa.Array[Any]:
        if not group.has_columns():
            return super().col_ttl_ms(group)
        given = group.frames.heads["ttl_ms"].tolist()
        return _int32(np.array(group.values("ttl", given.__getitem__), dtype=np.int64))

    def col_headers(self, group: FrameGroup) -> pa.Array[Any]:
        if not group.has_columns():
            return self.same(None, group.rows, lambda count: pa.nulls(count, HEADERS))
        rows = [None if not one else list(one.items()) for one in group.values("headers", lambda _: None)]
        return pa.array(rows, HEADERS)


class BatchTables(_Tables):
    """One row per batch."""

    def tables(self, frames: ScannedFrames) -> Iterator[pa.RecordBatch]:
        """Record batches with one row per frame, in order."""
        return self._tables(frames, self._counts(frames))

    def _counts(self, frames: ScannedFrames) -> Ints:
        return np.ones(len(frames), dtype=np.int64)

    def col_first(self, group: FrameGroup) -> pa.Array[Any]:
        return pa.array(np.ascontiguousarray(group.frames.heads["first"]))

    def col_stop(self, group: FrameGroup) -> pa.Array[Any]:
        heads = group.frames.heads
        return pa.array(heads["first"] + heads["count"].astype(np.int64))

    def col_count(self, group: FrameGroup) -> pa.Array[Any]:
        return _int32(group.frames.heads["count"])

    def col_length(self, group: FrameGroup) -> pa.Array[Any]:
        return _int32(group.frames.heads["length"])

    def col_data(self, group: FrameGroup) -> pa.Array[Any]:
        frames = group.frames
        lengths = frames.heads["length"].astype(np.int64)
        return _binary(_offsets(lengths), _joined(frames.view, frames.offsets, lengths))


def payloads(frames: ScannedFrames, counts: Ints) -> pa.Array[Any]:
    """The payloads of all events that are not skipped, as one binary column."""
    view = frames.view
    _, lengths_at, begins = frames.sections()
    places = lengths_at // 4 + frames.skips
    numbers = np.frombuffer(view[: len(view) & ~3], dtype="<u4")
    parts = [numbers[at : at + count] for at, count in zip(places.tolist(), counts.tolist(), strict=True)]
    offsets = _offsets(parts[0] if len(parts) == 1 else np.concatenate(parts))
    bounds = offsets[np.concatenate(([0], np.cumsum(counts)))].astype(np.int64)
    for index in np.flatnonzero(frames.skips).tolist():
        skip = int(frames.skips[index])
        begins[index] += int(numbers[places[index] - skip : places[index]].sum(dtype=np.int64))
    return _binary(offsets, _joined(view, begins, np.diff(bounds)))


def _offsets(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, dtype=np.int32, out=offsets[1:])
    return offsets


def _joined(view: memoryview, begins: Ints, sizes: Ints) -> pa.Buffer:
    """The bytes at these offsets, back to back; not copied if they already are."""
    ends = begins + sizes
    if bool((begins[1:] == ends[:-1]).all()):
        return pa.py_buffer(view[int(begins[0]) : int(ends[-1])])
    return pa.py_buffer(b"".join([view[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]))


def _binary(
    offsets: npt.NDArray[np.int32], data: pa.Buffer, kind: pa.DataType | None = None
) -> pa.Array[Any]:
    assert 0 <= int(offsets[-1]) <= data.size, "lengths exceed their block"
    return pa.Array.from_buffers(kind or pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])


def repeated(values: Sequence[bytes | str], counts: Ints) -> pa.Array[Any]:
    """Each value repeated `count` times, as text or as bytes.

    >>> repeated(["a", "bc"], np.array([2, 1])).to_pylist()
    ['a', 'a', 'bc']
    """
    kind = pa.string() if isinstance(values[0], str) else pa.binary()
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    data = b"".join([value * count for value, count in zip(raw, counts.tolist(), strict=True)])
    size = len(raw[0])
    if all(len(value) == size for value in raw):
        offsets = np.arange(int(counts.sum()) + 1, dtype=np.int32) * np.int32(size)
    else:
        offsets = _offsets(np.repeat(np.fromiter(map(len, raw), dtype=np.int32, count=len(raw)), counts))
    return _binary(offsets, pa.py_buffer(data), kind)


def times(micros: npt.NDArray[Any]) -> pa.Array[Any]:
    """Microseconds since 1970 as Spark's timestamps."""
    values = np.ascontiguousarray(micros, dtype=np.int64)
    return pa.Array.from_buffers(TIME, len(values), [None, pa.py_buffer(values)])


def _int32(values: npt.NDArray[Any]) -> pa.Array[Any]:
    return pa.array(values.astype(np.int32))
