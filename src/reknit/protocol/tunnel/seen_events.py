"""The memory of delivered events: a repeat within the grace period is recognised."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

GRACE_S: Final = 60.0
"""The specification's default: `[default: 60 seconds.]`"""
ENTRIES_MAX: Final = 1_000_000


class SeenEvents:
    """Keys of delivered events, each for at least `grace_s` seconds, unless there are more than `entries_max`.

    >>> seen = SeenEvents(60.0)
    >>> seen.add("/what/chat 3f", now=0.0), seen.add("/what/chat 3f", now=59.0), seen.add("/what/chat 3f", now=61.0)
    (True, False, True)
    """

    __slots__ = ("_added", "entries_max", "forgotten", "grace_s")

    def __init__(self, grace_s: float = GRACE_S, entries_max: int = ENTRIES_MAX) -> None:
        self.grace_s = grace_s
        self.entries_max = entries_max
        self.forgotten = 0
        """How many keys were evicted early, because there were too many."""
        self._added: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._added)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._added

    def add(self, key: Hashable, now: float) -> bool:
        """Remember a key. False if it was seen already: its entry stays as it was."""
        self.discard_stale(now)
        if key in self._added:
            return False
        self._added[key] = now
        if len(self._added) > self.entries_max:
            self._added.popitem(last=False)
            self.forgotten += 1
        return True

    def set_grace(self, grace_s: float) -> None:
        """Remember keys for this long from now on."""
        self.grace_s = grace_s

    def discard_stale(self, now: float) -> None:
        """Forget the keys that "remained in the cache for the reconnect grace period"."""
        added = self._added
        while added:
            key = next(iter(added))
            if now - added[key] <= self.grace_s:
                break
            del added[key]
