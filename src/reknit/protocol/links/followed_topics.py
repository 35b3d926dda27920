"""The topics that readers of this node's journal follow: linked nodes send their events here, as to a subscriber.

A reader, such as a browser's tunnel, has no queue. It reads the journal, goes away, and resumes at its position. So its
topics are followed for a while after it left, also over a restart; and for how long without a break is remembered, so
that a reader that stayed away longer is told that it missed events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

REMEMBERED_MAX: Final = 10_000
"""Patterns that are remembered while nobody reads them."""


class FollowedTopics:
    """Patterns with the number of their readers.

    `since` is remembered by the caller: by pattern, the position in this journal from which on it is followed.
    `on_change` is called when a pattern is followed that was not before.

    >>> followed = FollowedTopics({}, linger_s=60.0)
    >>> followed.follow("plant/**", position=100)
    >>> followed.leave("plant/**", now=5.0)
    >>> followed.since("plant/**"), followed.expire(64.0), followed.expire(65.0), followed.since("plant/**")
    (100, False, True, None)
    """

    def __init__(
        self, since: dict[str, int], linger_s: float, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._since = since
        self._linger_s = linger_s
        self._on_change = on_change
        self._readers: Counter[str] = Counter()
        self._left: dict[str, float] = {}
        """When the last reader of a pattern left, the earliest first."""

    def resume(self, now: float) -> None:
        """After a restart: those who read before have time to come back."""
        self._left = dict.fromkeys(self._since, now)

    def patterns(self) -> set[str]:
        """The patterns that are followed now."""
        return set(self._since)

    def since(self, pattern: str) -> int | None:
        """The position from which on a pattern is followed without a break; None if it is not."""
        return self._since.get(pattern)

    def follow(self, pattern: str, position: int) -> None:
        """One more reader; the journal's live edge is at this position."""
        self._readers[pattern] += 1
        self._left.pop(pattern, None)
        if pattern not in self._since:
            self._since[pattern] = position
            self._on_change()

    def leave(self, pattern: str, now: float) -> None:
        """One reader less."""
        self._readers[pattern] -= 1
        if not self._readers[pattern]:
            del self._readers[pattern]
            self._left[pattern] = now

    def expire(self, now: float) -> bool:
        """Forget patterns that nobody has read for too long, or that are too many. Returns whether there were some."""
        gone = [pattern for pattern, left in self._left.items() if left + self._linger_s <= now]
        gone += list(self._left)[len(gone) : len(self._left) - REMEMBERED_MAX]
        for pattern in gone:
            del self._left[pattern], self._since[pattern]
        return bool(gone)
