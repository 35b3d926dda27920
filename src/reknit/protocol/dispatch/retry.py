"""When to retry: exponential back-off with full jitter, and codes that are never retried."""

from __future__ import annotations

from random import Random

import msgspec

from reknit.backoff import Backoff


class Retry(msgspec.Struct, frozen=True):
    """A retry policy. `attempts_max` 0 means: until the event's ttl.

    >>> policy = Retry(1.0, 8.0, codes={14: Backoff(5.0, 60.0)}, never=frozenset({3}))
    >>> policy.ceiling_s(2), policy.ceiling_s(2, code=14), policy.is_never(3)
    (2.0, 10.0, True)
    """

    backoff_s_min: float = 0.1
    backoff_s_max: float = 30.0
    attempts_max: int = 0
    codes: dict[int, Backoff] = {}
    """Codes with a back-off of their own."""
    never: frozenset[int] = frozenset()
    """Codes that are never retried."""

    def ceiling_s(self, attempt: int, code: int = 0) -> float:
        """The longest wait after this failed attempt, the first being 1."""
        own = self.codes.get(code)
        return (own or Backoff(self.backoff_s_min, self.backoff_s_max)).ceiling_s(attempt)

    def delay_s(self, attempt: int, rng: Random, code: int = 0) -> float:
        """How long to wait after this failed attempt: anything up to the ceiling, so that retries spread out."""
        return rng.uniform(0.0, self.ceiling_s(attempt, code))

    def is_exhausted(self, failed: int, attempts_max: int = 0) -> bool:
        """Whether this failed attempt was the last one; a topic's own limit takes precedence."""
        limit = attempts_max or self.attempts_max
        return 0 < limit <= failed

    def is_never(self, code: int) -> bool:
        """Whether a failure with this code is final."""
        return code in self.never
