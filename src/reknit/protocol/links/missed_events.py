"""Events that were meant for a neighbour and can't be carried to it any more: it is told that they are lost to it.

Retention may remove events before a link has carried them, and events that are lost here are lost behind this node, too.
A later event of the same source would show the gap, but there may be none. So every such range is remembered, also over
a restart, and told in the flow of events until the neighbour has recorded it. It drops what it knows already.
"""

from __future__ import annotations

from typing import Final

from reknit.entries import Removed
from reknit.protocol.links.memory import LinkMemory, MissedSeries
from reknit.seqset import SeqSet
from reknit.wire.links import Missed

SERIES_MAX: Final = 4096
"""So many series are remembered for a neighbour that is away."""
SERIES_FULL: Final = (
    f"neighbours missed events of more than {SERIES_MAX} series: they learn of further losses only from later events of "
    "the same sources"
)


class MissedEvents:
    """What each neighbour misses.

    >>> missed = MissedEvents(LinkMemory())
    >>> missed.note("b", Removed("plant/a", b"s" * 16, 1, 5), position=100)
    True
    >>> missed.due("b", 99), missed.due("b", 100)
    (None, (1, [Missed(topic='plant/a', source=b'ssssssssssssssss', start=1, stop=5)]))
    >>> missed.due("b", 100), missed.recorded("b", 1)
    (None, True)
    """

    def __init__(self, memory: LinkMemory) -> None:
        self._missed = memory.missed
        self._numbers: dict[str, int] = {}
        """By neighbour: counts what was noted."""
        self._told: dict[str, int] = {}
        """The same count when it was told last over this line."""
        self.is_full = False
        """Whether a series could not be remembered."""

    def note(self, name: str, gone: Removed, position: int) -> bool:
        """A neighbour misses these events, which it is told after everything before `position`.

        Returns whether that is new.
        """
        known = self._missed.setdefault(name, MissedSeries())
        sources = known.ranges.setdefault(gone.topic, {})
        ranges = sources.get(gone.source.hex(), [])
        if not ranges and sum(map(len, known.ranges.values())) >= SERIES_MAX:
            self.is_full = True
            return False
        seqs = SeqSet.from_ranges(ranges)
        if not seqs.missing(gone.start, gone.stop):
            return False
        seqs.add(gone.start, gone.stop)
        sources[gone.source.hex()] = list(seqs.ranges())
        known.position = max(known.position, position)
        self._numbers[name] = self._numbers.get(name, 0) + 1
        return True

    def due(self, name: str, position: int) -> tuple[int, list[Missed]] | None:
        """What a neighbour is to be told now that everything before `position` was sent, and under which number."""
        known, number = self._missed.get(name), self._numbers.get(name, 1)
        if known is None or known.position > position or self._told.get(name) == number:
            return None
        self._told[name] = number
        return number, [
            Missed(topic, bytes.fromhex(source), *bounds)
            for topic, sources in known.ranges.items()
            for source, ranges in sources.items()
            for bounds in ranges
        ]

    def tell_again(self, name: str) -> None:
        """The neighbour requests events anew: it may not have recorded what it was told."""
        self._told.pop(name, None)

    def recorded(self, name: str, number: int) -> bool:
        """The neighbour has recorded what it was told under this number. Returns whether there is something to save."""
        if self._numbers.get(name, 1) != number:
            return False
        return self.forget(name)

    def forget(self, name: str) -> bool:
        """The neighbour is told nothing of what it missed. Returns whether there is something to save."""
        self._told.pop(name, None)
        return self._missed.pop(name, None) is not None
