"""The messages between a worker and the harness."""

from __future__ import annotations

import json
import resource
import select
import sys
import time

LEAVE_AFTER_S = 3600.0  # the harness ends the process long before


def say(what: str, **fields: object) -> None:
    print(json.dumps({"what": what, **fields}), flush=True)


def is_told(timeout_s: float) -> bool:
    """Whether a line, or its end, arrives on stdin within a time."""
    return bool(select.select([sys.stdin], [], [], timeout_s)[0])


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Clock:
    """Measures the time and CPU time of this process, from its creation."""

    def __init__(self) -> None:
        self.start_ns, self._cpu_s = time.monotonic_ns(), cpu_s()

    def done(self, events: int, **fields: object) -> None:
        stop_ns, used_s = time.monotonic_ns(), cpu_s() - self._cpu_s
        say("done", events=events, start_ns=self.start_ns, stop_ns=stop_ns, cpu_s=used_s, **fields)
