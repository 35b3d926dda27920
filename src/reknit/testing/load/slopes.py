"""Whether a figure grows over time: the slope of a line through its samples, and how sure that slope is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

SURE: Final = 4.0
"""A slope counts if it is so many times its own standard error."""
PARTS: Final = 12
"""Samples are summed up by the medians of so many parts of the time: neighbouring samples are not independent."""


@dataclass(frozen=True)
class Slope:
    """A line through samples."""

    per_hour: float
    grown: float
    """By how much it grew over the time of the samples."""
    level: float
    """The median of the samples."""
    sureness: float
    """The slope divided by its standard error."""

    def is_up(self, least: float, ratio: float) -> bool:
        """Whether it surely grew, and by more than `least` and by more than this ratio of its level."""
        return self.sureness >= SURE and self.grown > least and self.grown > ratio * self.level


def slope(samples: Sequence[tuple[float, float]]) -> Slope:
    """The slope of samples of (seconds, value).

    >>> slope([(second, 100 + second) for second in range(3600)]).per_hour
    3600.0
    >>> flat = slope([(second, 100 + second % 7) for second in range(3600)])
    >>> flat.is_up(0.0, 0.0)
    False
    """
    points = _medians(samples)
    count = len(points)
    if count < 3:
        return Slope(0.0, 0.0, points[0][1] if points else 0.0, 0.0)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    tilt = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - tilt * (x - mean_x)) ** 2 for x, y in points)
    error = math.sqrt(rest / (count - 2) / spread)
    sureness = tilt / error if error else math.copysign(math.inf, tilt) if tilt else 0.0
    span = samples[-1][0] - samples[0][0]
    return Slope(round(tilt * 3600, 6), tilt * span, median(y for _, y in samples), sureness)


def _medians(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = max(1, len(samples) // PARTS)
    parts = [samples[at : at + size] for at in range(0, len(samples), size)]
    return [
        (sum(x for x, _ in part) / len(part), median(y for _, y in part))
        for part in parts
        if len(part) == size
    ]
