"""The journal's own time, by which retention knows how old a segment is.

While a process runs, it advances with a clock that never steps. When a journal is opened again, it continues with the
time of day, corrected by the steps that were seen before: so a step of the time of day makes nothing older or younger,
and the time between two processes counts. It never goes back.

    own time = time of day + offset        the offset is saved with the index, and changes when the time of day steps
"""

from __future__ import annotations

from collections.abc import Callable

from reknit import environment


class JournalClock:
    """The own time of one journal, in microseconds.

    >>> day_us, elapsed_s = [1_000_000], [50.0]
    >>> clock = JournalClock(lambda: day_us[0], lambda: elapsed_s[0])
    >>> elapsed_s[0] += 2.0
    >>> day_us[0] += 86_400_000_000
    >>> clock.now_us(), clock.offset_us()
    (3000000, -86398000000)
    """

    def __init__(self, time_us: Callable[[], int], elapsed: Callable[[], float]) -> None:
        self._time_us, self._elapsed = time_us, elapsed
        self._zero_us = time_us() - int(elapsed() * 1e6)

    def resume(self, offset_us: int, last_us: int) -> None:
        """Continue after another process, which left this offset, and stored the last entry at this own time."""
        self._zero_us += offset_us
        self._zero_us += max(0, last_us - self.now_us())

    def now_us(self) -> int:
        """The own time."""
        return self._zero_us + int(self._elapsed() * 1e6)

    def offset_us(self) -> int:
        """The own time minus the time of day."""
        return self.now_us() - self._time_us()


def make_clock(now_us: Callable[[], int], elapsed: Callable[[], float] | None) -> JournalClock:
    """A clock beside a time of day. If that is not the environment's, time elapses with it unless `elapsed` is given."""
    if elapsed is None:
        elapsed = environment.elapsed if now_us is environment.time_us else lambda: now_us() / 1e6
    return JournalClock(now_us, elapsed)
