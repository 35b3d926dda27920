"""The trail: the attempts at each event on this node, and their outcomes. Bounded, and in memory."""

from __future__ import annotations

from collections import deque

import msgspec

from reknit.outcome import Outcome


class PathAttempt(msgspec.Struct, frozen=True, gc=False):
    """Events `[start, stop)` were given to a path, and this was the outcome."""

    topic: str
    source: bytes
    start: int
    stop: int
    node: str
    path: str
    is_node: bool
    sent_us: int
    ended_us: int
    """0 while it has not ended."""
    outcome: int
    text: str

    def row(self) -> dict[str, object]:
        """For people and machines."""
        return {
            "node": self.node,
            "path": self.path,
            "is_node": self.is_node,
            "topic": self.topic,
            "sent_us": self.sent_us,
            "ended_us": self.ended_us,
            "outcome": Outcome(self.outcome).name if self.outcome else "",
            "text": self.text,
        }


class Trail:
    """The newest attempts.

    >>> trail = Trail(2)
    >>> for number in range(3):
    ...     trail.add(PathAttempt("a", bytes(16), 1, 2, "n", f"p{number}", False, 0, 0, 1, ""))
    >>> [attempt.path for attempt in trail.of(bytes(16), 1)]
    ['p1', 'p2']
    """

    def __init__(self, attempts_max: int) -> None:
        self._attempts: deque[PathAttempt] = deque(maxlen=attempts_max)

    def add(self, attempt: PathAttempt) -> None:
        """An attempt ended; the oldest one may be evicted."""
        self._attempts.append(attempt)

    def of(self, source: bytes, seq: int) -> list[PathAttempt]:
        """The attempts at one event, in the order in which they ended."""
        return [one for one in self._attempts if one.source == source and one.start <= seq < one.stop]
