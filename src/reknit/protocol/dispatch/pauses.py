"""Which topics are paused. Their events are not delivered; their ttl runs, and delivered events can be settled."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from reknit.private_topics import public_topic
from reknit.topic import Pattern

TOPICS_KNOWN_MAX: Final = 100_000
"""Topics that were looked up are remembered up to this many; then the memory is cleared."""


class Pauses:
    """Paused patterns, and whether a topic is among them.

    >>> pauses = Pauses({"plant/**"})
    >>> pauses.is_paused("plant/a"), pauses.is_paused("car/1")
    (True, False)
    >>> pauses.resume("plant/**"), bool(pauses)
    (True, False)
    """

    def __init__(self, patterns: Set[str] = frozenset()) -> None:
        self._patterns = {text: Pattern(text) for text in sorted(patterns)}
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._patterns)

    @property
    def patterns(self) -> list[str]:
        return sorted(self._patterns)

    def pause(self, pattern: str) -> bool:
        """Pause a pattern; returns whether it was not paused before. Raises `InvalidTopic`."""
        is_new = pattern not in self._patterns
        self._patterns[pattern] = Pattern(pattern)
        self._known.clear()
        return is_new

    def resume(self, pattern: str) -> bool:
        """Resume a pattern; returns whether exactly this pattern was paused."""
        self._known.clear()
        return self._patterns.pop(pattern, None) is not None

    def is_paused(self, topic: str) -> bool:
        if not self._patterns:
            return False
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= TOPICS_KNOWN_MAX:
                self._known.clear()
            public = public_topic(topic)
            found = self._known[topic] = any(one.matches(public) for one in self._patterns.values())
        return found
