"""Which batches of a journal to read: by topic, source, seq, time and position, decided for many batches at once.

A batch without a matching event is skipped before any row is made of it. Spark checks its filters again on the rows,
so a batch that may hold a match must pass here, and one without a match may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from reknit.checkpoint import Checkpoint
from reknit.spark.source.frame_scan import ScannedFrames
from reknit.topic import Pattern

__all__ = ["BatchFilter"]

Range = tuple[int, int]
EVERYTHING: Final = (-(1 << 63), (1 << 63) - 1)
_RANGES: Final = frozenset({"seq", "first", "stop", "time", "position"})


@dataclass(frozen=True)
class BatchFilter:
    """Bounds on batches. A range includes both ends; empty sets and tuples match everything."""

    patterns: tuple[Pattern, ...] = ()
    after: Checkpoint | None = None
    """Of these sources, only events after these seqs."""
    topics: frozenset[str] = frozenset()
    sources: frozenset[bytes] = frozenset()
    ranges: dict[str, Range] = field(default_factory=dict)

    def push(self, filters: Sequence[Filter]) -> BatchFilter:
        """These bounds, narrowed by Spark's filters."""
        narrowed = self
        for one in filters:
            narrowed = narrowed._narrowed(one)
        return narrowed

    def _narrowed(self, one: Filter) -> BatchFilter:
        name = ".".join(getattr(one, "attribute", ()))
        match one:
            case EqualTo(value=value) | In(value=(value,)) if name in _RANGES:
                return self._within(name, _number(value), _number(value))
            case GreaterThan(value=value) | GreaterThanOrEqual(value=value) if name in _RANGES:
                return self._within(name, _number(value), None)
            case LessThan(value=value) | LessThanOrEqual(value=value) if name in _RANGES:
                return self._within(name, None, _number(value))
            case EqualTo(value=value) if name in ("topic", "source"):
                return self._among(name, (value,))
            case In(value=values) if name in ("topic", "source"):
                return self._among(name, values)
            case _:
                return self

    def _within(self, name: str, low: int | None, high: int | None) -> BatchFilter:
        old = self.ranges.get(name, EVERYTHING)
        made = (old[0] if low is None else max(old[0], low), old[1] if high is None else min(old[1], high))
        return replace(self, ranges={**self.ranges, name: made})

    def _among(self, name: str, values: Sequence[Any]) -> BatchFilter:
        if name == "topic":
            topics = frozenset(map(str, values))
            return replace(self, topics=topics & self.topics if self.topics else topics)
        sources = frozenset(map(bytes, values))
        return replace(self, sources=sources & self.sources if self.sources else sources)

    # -- batches

    def pick(self, frames: ScannedFrames) -> ScannedFrames:
        """The frames that may hold a match. Events that the checkpoint covers are skipped in them."""
        if not len(frames) or self == _ALL:
            return frames
        mask = np.ones(len(frames), dtype=bool)
        for name, (low, high) in self.ranges.items():
            lows, highs = _RANGE_OF[name](frames)
            mask &= (highs >= low) & (lows <= high)
        if self.patterns or self.topics:
            mask &= _each(frames.topics(), self._is_topic_wanted)
        if self.sources:
            mask &= _each(frames.sources(), self.sources.__contains__)
        picked = frames if mask.all() else frames.pick(mask)
        return picked if self.after is None else _after(picked, self.after)

    def _is_topic_wanted(self, topic: str) -> bool:
        if self.topics and topic not in self.topics:
            return False
        return self.matches_topic(topic)

    def matches_topic(self, topic: str) -> bool:
        """True if one of the user's patterns matches."""
        return not self.patterns or any(pattern.matches(topic) for pattern in self.patterns)

    def overlaps(self, start: int, stop: int) -> bool:
        """True if positions `[start, stop)` of a journal may hold a match."""
        low, high = self.ranges.get("position", EVERYTHING)
        return low < stop and start <= high


_ALL: Final = BatchFilter()


def _each(values: Sequence[Any], matches: Callable[[Any], bool]) -> npt.NDArray[np.bool_]:
    known = {value: matches(value) for value in set(values)}
    return np.fromiter(map(known.__getitem__, values), dtype=bool, count=len(values))


def _after(frames: ScannedFrames, checkpoint: Checkpoint) -> ScannedFrames:
    last = np.array([checkpoint.get(source) for source in frames.sources()], dtype=np.int64)
    skips = np.clip(last + 1 - frames.heads["first"], 0, frames.heads["count"].astype(np.int64))
    return frames.skipping(skips).pick(skips < frames.heads["count"])


def _number(value: Any) -> int:
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1e6)
    return int(value)


def _seqs(frames: ScannedFrames) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    first = frames.heads["first"]
    return first, first + frames.heads["count"].astype(np.int64) - 1


def _stops(frames: ScannedFrames) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    last = _seqs(frames)[1]
    return last + 1, last + 1


def _times(frames: ScannedFrames) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The range of times. A batch with columns may give each event its own time, so its range is everything."""
    time_us, varies = frames.heads["time_us"], frames.heads["columns_len"] > 0
    return np.where(varies, EVERYTHING[0], time_us), np.where(varies, EVERYTHING[1], time_us)


_RANGE_OF: Final[dict[str, Callable[[ScannedFrames], tuple[npt.NDArray[Any], npt.NDArray[Any]]]]] = {
    "seq": _seqs,
    "first": lambda frames: (frames.heads["first"],) * 2,
    "stop": _stops,
    "time": _times,
    "position": lambda frames: (frames.positions(),) * 2,
}
