"""A publisher's heartbeat: its last seq, so that subscribers notice a lost tail before the next event.

It is sent periodically, or when the last seq changed. In the second case it is repeated after every reconnection, and
then less and less often, so that an outage never swallows the last one.
"""

from __future__ import annotations

from typing import Final

from reknit.wire.recovery import Heartbeat

REPEAT_FACTOR_MAX: Final = 64
"""A heartbeat on change is repeated after 1, 2, 4 … periods, and then at this interval, in periods."""


class Heartbeats:
    """The heartbeat of one source.

    >>> beats = Heartbeats("plant/a", b"s" * 16, period_s=1.0)
    >>> beats.published(7, now=0.0)
    >>> beats.tick(0.5), [beat.seq for beat in beats.tick(1.0)], beats.next_deadline()
    ([], [7], 2.0)
    """

    def __init__(self, topic: str, source: bytes, period_s: float, is_periodic: bool = False) -> None:
        self._topic, self._source = topic, source
        self._period_s = period_s
        self._is_periodic = is_periodic
        self._seq = 0
        self._factor = 1
        self._due: float | None = None

    def renamed(self, source: bytes) -> None:
        """The source became known."""
        self._source = source

    def published(self, seq: int, now: float) -> None:
        """The source's last seq is `seq` now."""
        if seq > self._seq:
            self._seq = seq
            self._factor = 1
            if self._due is None or not self._is_periodic:
                self._due = now + self._period_s

    def connected(self, now: float) -> None:
        """The connection is up again: subscribers that missed the last heartbeat get it now."""
        if self._seq:
            self._due = now
            self._factor = 1

    def tick(self, now: float) -> list[Heartbeat]:
        """The heartbeat that is due, if any."""
        if self._due is None or now < self._due:
            return []
        self._due = now + self._period_s * self._factor
        if not self._is_periodic:
            self._factor = min(self._factor * 2, REPEAT_FACTOR_MAX)
        return [Heartbeat(self._topic, self._source, self._seq)]

    def next_deadline(self) -> float | None:
        return self._due
