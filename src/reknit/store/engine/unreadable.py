"""Parts of the log that can't be read any more: found by a read, skipped by every later one, and reported once."""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from operator import attrgetter

from reknit.entries import UnreadablePart
from reknit.seqset import SeqSet

log = logging.getLogger("reknit.store")

_position = attrgetter("position")
_stop = attrgetter("stop")


class UnreadableParts:
    """The parts that were found so far, in the order of the log. Only the thread that reads uses them.

    >>> parts = UnreadableParts()
    >>> parts.at(4096) is None
    True
    """

    def __init__(self) -> None:
        self._parts: list[UnreadablePart] = []
        self._fresh: list[UnreadablePart] = []
        self._lost: dict[tuple[str, bytes], SeqSet] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def at(self, position: int) -> UnreadablePart | None:
        """The part that holds a position."""
        index = bisect_right(self._parts, position, key=_position) - 1
        part = self._parts[index] if index >= 0 else None
        return part if part is not None and position < part.stop else None

    def since(self, position: int) -> list[UnreadablePart]:
        """The parts that reach beyond a position."""
        return [part for part in self._parts if part.stop > position]

    def lost(self, topic: str, source: bytes) -> SeqSet:
        """The events of a series that are lost with these parts."""
        return self._lost.get((topic, source)) or SeqSet()

    def add(self, part: UnreadablePart) -> None:
        """A part was found. It is logged now, and `take` returns it once."""
        insort(self._parts, part, key=_position)
        self._fresh.append(part)
        for gone in part.lost:
            self._lost.setdefault((gone.topic, gone.source), SeqSet()).add(gone.start, gone.stop)
        log.error("journal: %s", part)

    def take(self) -> list[UnreadablePart]:
        """The parts that were found since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def drop_before(self, position: int) -> None:
        """Retention removed everything before a position."""
        del self._parts[: bisect_right(self._parts, position, key=_stop)]
