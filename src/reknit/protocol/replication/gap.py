"""A range that a target misses."""

from __future__ import annotations

import msgspec

from reknit.ledger import Series


class Gap(msgspec.Struct, frozen=True):
    """The target expects `[start, stop)` of a series before what it gets next."""

    series: Series
    start: int
    stop: int
