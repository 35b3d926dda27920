"""Zenoh's samples as our events: which source, seq and batch a sample becomes.

A sample with source information keeps it: its publisher becomes a source, and its 32-bit number, which starts at 0,
becomes a seq, which starts at 1 and does not wrap. Samples without source information are numbered here, per key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import xxhash

from reknit.batch import PRIORITY_DEFAULT, SOURCE_BYTES, Batch
from reknit.client.publish.batching import BatchLimits
from reknit.config import LimitSettings

MARK: Final = b"znh\0"
"""The first bytes of sources that came from Zenoh. Their events are not sent back."""
WRAP: Final = 1 << 32
SOURCES_MAX: Final = 1_000_000
LENGTH_BYTES: Final = 4


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
    priority: int = PRIORITY_DEFAULT

    @property
    def size(self) -> int:
        """The bytes of its payload and headers."""
        return len(self.payload) + sum(len(name) + len(value) for name, value in self.headers.items())


class LastNumber(msgspec.Struct, frozen=True):
    """A publisher's heartbeat: the number of the last sample that it put."""

    key: str
    origin: Origin
    sn: int


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


def nearest(sn: int, last: int) -> int:
    """A number before it wrapped: of all candidates the one nearest to the last number.

    >>> nearest(3, WRAP - 1) == WRAP + 3, nearest(WRAP - 1, WRAP + 3) == WRAP - 1, nearest(9, 5)
    (True, True, 9)
    """
    number = last - last % WRAP + sn
    if number < last - WRAP // 2:
        return number + WRAP
    if number > last + WRAP // 2 and number >= WRAP:
        return number - WRAP
    return number


class SampleNumbering:
    """Gives every sample its source and seq, and joins consecutive samples to batches.

    >>> numbering = SampleNumbering("edge")
    >>> ann = Origin("c0ffee", 7)
    >>> samples = [ZenohSample("plant/a", b"x", 1, ann, sn) for sn in (0, 1, 4)]
    >>> [(batch.first, batch.stop) for batch in numbering.batches(samples)]
    [(1, 3), (5, 6)]
    """

    def __init__(self, node: str, limits: LimitSettings | None = None) -> None:
        self._node = node
        self._limits = BatchLimits.of(limits or LimitSettings())
        self._sns: dict[bytes, int] = {}
        """The highest number of each source, unwrapped."""
        self._next_seqs: dict[str, int] = {}
        """By key, for samples without source information."""
        self.origins: dict[bytes, tuple[str, Origin]] = {}
        """The key and publisher behind each source."""

    def source(self, key: str, origin: Origin) -> bytes:
        """The source of a publisher's events, which is remembered with it."""
        source = source_of(key, origin, self._node)
        if source not in self.origins and len(self.origins) < SOURCES_MAX:
            self.origins[source] = (key, origin)
        return source

    def unknown_keys(self, samples: Iterable[ZenohSample]) -> set[str]:
        """The keys of samples without source information that need `resume` first."""
        return {one.key for one in samples if one.origin is None and one.key not in self._next_seqs}

    def resume(self, key: str, last: int) -> None:
        """Number samples of a key without source information from `last + 1` on."""
        self._next_seqs[key] = last + 1

    def unknown_sources(self, found: Iterable[ZenohSample | LastNumber]) -> dict[bytes, str]:
        """The sources, and their keys, that need `resume_source` first."""
        keys = {self.source(one.key, one.origin): one.key for one in found if one.origin is not None}
        return {source: key for source, key in keys.items() if source not in self._sns}

    def resume_source(self, source: bytes, last: int) -> None:
        """The node has the events of a source up to the seq `last`."""
        self._sns.setdefault(source, last - 1)

    def last_seq(self, source: bytes) -> int:
        """The highest seq of a source that was seen; 0 if none was."""
        return self._sns.get(source, -1) + 1

    def passed(self, source: bytes, last: int) -> None:
        """Everything of a source up to the seq `last` came, or is lost."""
        self._sns[source] = max(self._sns.get(source, -1), last - 1)

    def seq(self, source: bytes, sn: int) -> int:
        """The seq that a number of a source stands for."""
        return nearest(sn, max(self._sns.get(source, sn), 0)) + 1

    def batches(self, samples: Iterable[ZenohSample]) -> list[Batch]:
        """All samples in order, in as few batches as possible."""
        return [_build(source, first, run) for source, first, run in self._runs(samples)]

    def _runs(self, samples: Iterable[ZenohSample]) -> Iterator[tuple[bytes, int, list[ZenohSample]]]:
        """Consecutive samples of one source and priority, as many as fit into a batch."""
        run: list[ZenohSample] = []
        source, first, size = b"", 0, 0
        for sample in samples:
            where, seq = self._place(sample)
            longer = size + sample.size + LENGTH_BYTES
            if (
                run
                and where == source
                and seq == first + len(run)
                and sample.priority == run[0].priority
                and len(run) < self._limits.events_max
                and longer <= self._limits.bytes_max
            ):
                run.append(sample)
                size = longer
                continue
            if run:
                yield source, first, run
            source, first, run, size = where, seq, [sample], sample.size + LENGTH_BYTES
        if run:
            yield source, first, run

    def _place(self, sample: ZenohSample) -> tuple[bytes, int]:
        if sample.origin is None:
            seq = self._next_seqs[sample.key]
            self._next_seqs[sample.key] = seq + 1
            return source_of(sample.key, None, self._node), seq
        source = self.source(sample.key, sample.origin)
        seq = self.seq(source, sample.sn)
        self.passed(source, seq)
        return source, seq


def _build(source: bytes, first: int, run: list[ZenohSample]) -> Batch:
    columns: dict[str, list[Any]] = {}
    if any(sample.headers for sample in run):
        columns["headers"] = [sample.headers for sample in run]
    if len({sample.time_us for sample in run}) > 1:
        columns["time"] = [sample.time_us for sample in run]
    payloads = [sample.payload for sample in run]
    head = run[0]
    return Batch.build(
        source, head.key, first, payloads, head.time_us, priority=head.priority, columns=columns or None
    )


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
