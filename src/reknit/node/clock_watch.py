"""Notices when the time of day is set, and logs it once. Nothing in a node breaks, but times in events may jump."""

from __future__ import annotations

import logging
from typing import Final

from reknit import environment

log = logging.getLogger("reknit.node")

STEP_S: Final = 1.0
"""Less than this is the usual correction of a clock."""


class ClockWatch:
    """Compares the time of day with a clock that never steps."""

    def __init__(self) -> None:
        self._difference_s = _difference_s()

    def check(self, now: float) -> None:
        """Log a step since the last call."""
        before, self._difference_s = self._difference_s, _difference_s()
        step_s = self._difference_s - before
        if abs(step_s) >= STEP_S:
            way = "forward" if step_s > 0 else "back"
            log.warning(
                "the clock of this machine was set %s by %.1f s; retention and retries go on by elapsed time",
                way,
                abs(step_s),
            )


def _difference_s() -> float:
    return environment.time_us() / 1e6 - environment.elapsed()
