"""What was refused, by identity and reason. A refusal costs a count, and now and then a line in the log."""

from __future__ import annotations

import logging
from typing import Final

from reknit import environment

log = logging.getLogger("reknit.trust")

NAMES_MAX: Final = 1_000
"""Beyond this many pairs of identity and reason, refusals are counted under `others`."""
LOG_S: Final = 10.0
"""A line for the same identity and reason is logged at most this often."""
OTHERS: Final = "others"


class Refusals:
    """Counts refusals.

    >>> refusals = Refusals()
    >>> refusals.count("ann", "denied", "ann may not publish on 'plant/a'", 3)
    >>> refusals.totals()
    {'ann': {'denied': 3}}
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        """When a line was logged last, and the count at that time."""

    def count(self, name: str, reason: str, text: str, events: int = 1) -> None:
        """Somebody was refused something."""
        key = (name, reason)
        if key not in self._counts and len(self._counts) >= NAMES_MAX:
            key = (OTHERS, reason)
        total = self._counts[key] = self._counts.get(key, 0) + events
        now = environment.monotonic()
        at, before = self._logged.get(key, (-LOG_S, 0))
        if now >= at + LOG_S:
            self._logged[key] = (now, total)
            log.warning("refused: %s (%s, %d since the last line)", text, reason, total - before)

    def totals(self) -> dict[str, dict[str, int]]:
        """The refusals by identity and reason."""
        totals: dict[str, dict[str, int]] = {}
        for (name, reason), count in sorted(self._counts.items()):
            totals.setdefault(name, {})[reason] = count
        return totals
