"""When to try again: exponential back-off with full jitter."""

from __future__ import annotations

from random import Random

import msgspec


class Retry(msgspec.Struct, frozen=True):
    """A retry policy. `attempts_max` 0 means: until the event's ttl.

    >>> policy = Retry(backoff_s_min=1.0, backoff_s_max=8.0)
    >>> [policy.ceiling_s(attempt) for attempt in (1, 2, 3, 4, 5)]
    [1.0, 2.0, 4.0, 8.0, 8.0]
    """

    backoff_s_min: float = 0.1
    backoff_s_max: float = 30.0
    attempts_max: int = 0

    def ceiling_s(self, attempt: int) -> float:
        """The longest wait after this failed attempt, the first being 1."""
        return min(self.backoff_s_max, self.backoff_s_min * 2.0 ** min(attempt - 1, 60))

    def delay_s(self, attempt: int, rng: Random) -> float:
        """How long to wait after this failed attempt: anything up to the ceiling, so that retries spread."""
        return rng.uniform(0.0, self.ceiling_s(attempt))

    def is_exhausted(self, attempt: int) -> bool:
        """Whether this failed attempt was the last one."""
        return 0 < self.attempts_max <= attempt
