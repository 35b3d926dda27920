"""A token bucket: so much a second, and a little more at once. It reads no clock: every call is given the time."""

from __future__ import annotations

__all__ = ["TokenBucket"]


class TokenBucket:
    """Holds up to `burst` tokens, and gets `rate` of them a second. It begins full.

    It may go into debt: what is taken when there is any room counts in full, and later takers wait until the debt is
    paid. So a batch that is larger than the bucket passes, and the average still holds.

    >>> bucket = TokenBucket(rate=10, burst=20)
    >>> bucket.has_room(0.0), bucket.take(40, 0.0), bucket.has_room(1.0)
    (True, None, False)
    >>> bucket.ready_at(1.0), bucket.has_room(2.5)
    (2.0, True)
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens = burst
        self._at = float("-inf")

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now

    def has_room(self, now: float, wanted: float = 0.0) -> bool:
        """Whether there are more tokens than none, and at least as many as are wanted."""
        self._fill(now)
        return self._tokens > 0 and self._tokens >= wanted

    def take(self, tokens: float, now: float) -> None:
        """Take tokens, also more than there are."""
        self._fill(now)
        self._tokens -= tokens

    def ready_at(self, now: float) -> float:
        """When there will be room: at once, or when the debt is paid."""
        self._fill(now)
        return now if self._tokens > 0 else now - self._tokens / self._rate
