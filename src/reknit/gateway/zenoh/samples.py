"""Zenoh's samples as our events: which source, seq and batch a sample becomes.

A sample with source information keeps it: its publisher becomes a source, and its 32-bit number, which starts at 0,
becomes a seq, which starts at 1 and does not wrap. Samples without source information are numbered here, per key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import xxhash

from reknit.batch import SOURCE_BYTES, Batch

MARK: Final = b"znh\0"
"""The first bytes of sources that came from Zenoh. Their events are not sent back."""
WRAP: Final = 1 << 32
SOURCES_MAX: Final = 1_000_000


class Origin(msgspec.Struct, frozen=True):
    """The publisher of a sample: a Zenoh session and an entity in it."""

    zid: str
    eid: int


class ZenohSample(msgspec.Struct, frozen=True):
    """A sample, as it came from Zenoh."""

    key: str
    payload: bytes
    time_us: int
    origin: Origin | None = None
    sn: int = 0
    headers: dict[str, str] = {}


def source_of(key: str, origin: Origin | None, node: str) -> bytes:
    """The source of a Zenoh publisher's events, or of a key's samples without source information at this node.

    >>> source_of("plant/a", Origin("c0ffee", 7), "")[:4]
    b'znh\\x00'
    """
    text = f"{key}\0{origin.zid}\0{origin.eid}" if origin is not None else f"{key}\0\0{node}"
    return MARK + xxhash.xxh3_128_digest(text.encode())[: SOURCE_BYTES - len(MARK)]


def is_from_zenoh(source: bytes) -> bool:
    """Whether a source's events came from Zenoh."""
    return source.startswith(MARK)


def sn_of(seq: int) -> int:
    """Zenoh's number of an event.

    >>> sn_of(1), sn_of((1 << 32) + 3)
    (0, 2)
    """
    return (seq - 1) % WRAP


class SampleNumbering:
    """Gives every sample its source and seq, and joins consecutive samples to batches.

    >>> numbering = SampleNumbering("edge")
    >>> ann = Origin("c0ffee", 7)
    >>> samples = [ZenohSample("plant/a", b"x", 1, ann, sn) for sn in (0, 1, 4)]
    >>> [(batch.first, batch.stop) for batch in numbering.batches(samples)]
    [(1, 3), (5, 6)]
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._sns: dict[bytes, int] = {}
        """The highest number of each source, unwrapped."""
        self._next_seqs: dict[str, int] = {}
        """By key, for samples without source information."""
        self.origins: dict[bytes, tuple[str, Origin]] = {}
        """The key and publisher behind each source."""

    def unknown_keys(self, samples: Iterable[ZenohSample]) -> set[str]:
        """The keys of samples without source information that need `resume` first."""
        return {one.key for one in samples if one.origin is None and one.key not in self._next_seqs}

    def resume(self, key: str, last: int) -> None:
        """Number samples of a key without source information from `last + 1` on."""
        self._next_seqs[key] = last + 1

    def batches(self, samples: Iterable[ZenohSample]) -> list[Batch]:
        """All samples in order, in as few batches as possible."""
        runs: list[tuple[bytes, int, list[ZenohSample]]] = []
        for sample in samples:
            source, seq = self._place(sample)
            if runs and runs[-1][0] == source and runs[-1][1] + len(runs[-1][2]) == seq:
                runs[-1][2].append(sample)
            else:
                runs.append((source, seq, [sample]))
        return [_build(source, first, run) for source, first, run in runs]

    def _place(self, sample: ZenohSample) -> tuple[bytes, int]:
        source = source_of(sample.key, sample.origin, self._node)
        if sample.origin is None:
            seq = self._next_seqs[sample.key]
            self._next_seqs[sample.key] = seq + 1
            return source, seq
        if source not in self.origins and len(self.origins) < SOURCES_MAX:
            self.origins[source] = (sample.key, sample.origin)
        return source, self._unwrap(source, sample.sn) + 1

    def _unwrap(self, source: bytes, sn: int) -> int:
        """The number before it wrapped: of all candidates the one nearest to the last number."""
        last = self._sns.get(source)
        if last is None:
            number = sn
        else:
            number = last - last % WRAP + sn
            if number < last - WRAP // 2:
                number += WRAP
            elif number > last + WRAP // 2 and number >= WRAP:
                number -= WRAP
        self._sns[source] = max(number, last or 0)
        return number


def _build(source: bytes, first: int, run: list[ZenohSample]) -> Batch:
    columns: dict[str, list[Any]] = {}
    if any(sample.headers for sample in run):
        columns["headers"] = [sample.headers for sample in run]
    if len({sample.time_us for sample in run}) > 1:
        columns["time"] = [sample.time_us for sample in run]
    payloads = [sample.payload for sample in run]
    return Batch.build(source, run[0].key, first, payloads, run[0].time_us, columns=columns or None)


def sn_range(parameters: str) -> tuple[int, int] | None:
    """The seqs `[start, stop)` that a query's `_sn` asks for (it includes both ends); None without `_sn`.

    >>> sn_range("_anyke;_sn=3..7"), sn_range("_sn=3.."), sn_range("_anyke")
    ((4, 9), (4, 4294967297), None)
    """
    for part in parameters.split(";"):
        name, _, value = part.partition("=")
        if name == "_sn":
            start, _, stop = value.partition("..")
            try:
                return int(start or 0) + 1, int(stop) + 2 if stop else WRAP + 1
            except ValueError:
                return None
    return None


def merge(samples: Iterable[ZenohSample]) -> list[ZenohSample]:
    """Join history and newer samples: every sample once, each source in its order.

    >>> [one.payload for one in merge([ZenohSample("a", b"2", 2), ZenohSample("a", b"1", 1), ZenohSample("a", b"2", 2)])]
    [b'1', b'2']
    """
    once = {(one.key, one.origin, one.sn, one.time_us if one.origin is None else 0): one for one in samples}
    return sorted(
        once.values(),
        key=lambda one: (one.origin.zid, one.origin.eid, one.sn) if one.origin else ("", 0, one.time_us),
    )
