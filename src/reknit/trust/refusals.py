"""What was refused, by identity and reason. A refusal costs a count, and now and then a line in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from reknit import environment
from reknit.trust.audit import Audit

log = logging.getLogger("reknit.trust")

NAMES_MAX: Final = 1_000
"""Beyond this many pairs of identity and reason, refusals count as those of `others`."""
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

    def __init__(self, audit: Audit | None = None) -> None:
        self._audit = audit
        self._counts: dict[tuple[str, str], int] = {}
        self._logged: dict[tuple[str, str], float] = {}
        """When a line was logged last."""

    def count(self, name: str, reason: str, text: str, events: int = 1, address: str = "") -> None:
        """Events of somebody were refused."""
        key = _bounded((name, reason), self._counts)
        self._counts[key] = self._counts.get(key, 0) + events
        self.report(name, reason, text, events, address)

    def report(
        self, name: str, reason: str, text: str, events: int = 0, address: str = "", door: str = ""
    ) -> None:
        """Log a refusal, at a limited rate, and tell the audit."""
        if self._audit is not None:
            self._audit.refused(name, reason, text, events, door, address)
        key, now = _bounded((name, reason), self._logged), environment.monotonic()
        if now >= self._logged.get(key, -LOG_S) + LOG_S:
            self._logged[key] = now
            log.warning("refused: %s (%s)", text, reason)

    def totals(self) -> dict[str, dict[str, int]]:
        """The refusals by identity and reason."""
        totals: dict[str, dict[str, int]] = {}
        for (name, reason), count in sorted(self._counts.items()):
            totals.setdefault(name, {})[reason] = count
        return totals


def _bounded(key: tuple[str, str], known: Mapping[tuple[str, str], object]) -> tuple[str, str]:
    """The same key, or that of all others if there are too many."""
    return key if key in known or len(known) < NAMES_MAX else (OTHERS, key[1])
