"""When a whole batch is past its ttl, and need not be copied any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reknit.batch import Batch
from reknit.protocol.ttl import deadlines_of

EXPIRED_ON_THE_WAY: Final = "its ttl ran out before it could be copied"


class BatchExpiry:
    """`ttl_ms_of` is the ttl of a topic's events that have none, and `zero_us` the time of day at `now` 0.

    A batch of which only some events are past their ttl is copied: the node that gets it expires those.
    """

    def __init__(self, ttl_ms_of: Callable[[str], int], zero_us: int) -> None:
        self._ttl_ms_of = ttl_ms_of
        self._zero_us = zero_us

    def deadline(self, batch: Batch, now: float) -> float | None:
        """When the last of these events expires; None if one of them never does."""
        head, default_ms = batch.head, self._ttl_ms_of(batch.topic)
        if not (default_ms or head.ttl_ms or head.flags):
            return None
        columns = batch.columns() if head.ttl_ms or head.flags else {}
        rows = list(deadlines_of(head, columns, default_ms, self._zero_us + int(now * 1e6)))
        if sum(stop - start for start, stop, _ in rows) < head.count:
            return None
        return (max(due_us for _, _, due_us in rows) - self._zero_us) / 1e6

    def is_over(self, batch: Batch, now: float) -> bool:
        """Whether all of these events have expired."""
        deadline = self.deadline(batch, now)
        return deadline is not None and deadline <= now
