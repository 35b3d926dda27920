"""The wall clock. The core is given it, so that the simulator can give it another one."""

from __future__ import annotations

import time


def time_us() -> int:
    """The time of day in microseconds since 1970."""
    return time.time_ns() // 1000
