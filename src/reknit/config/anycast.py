"""`[anycast]`: events that go to one of many subscribers, and streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reknit.config.settings import Section, setting
from reknit.config.units import GIB, KIB, MIB

__all__ = ["AnycastSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnycastSettings(Section):
    """Limits of events that go to one of many subscribers.

    >>> AnycastSettings().trail_attempts_max
    100000
    """

    title: ClassVar[str] = "anycast"
    sender_unsettled_max: int = setting(65_536, "events of one sender without an outcome", low=1)
    held_bytes_max: int = setting(64 * MIB, "read from the journal and in flight", low=1)
    parked_max: int = setting(
        100_000, "ranges of events without a subscriber that wait for the next attempt", low=1
    )
    trail_attempts_max: int = setting(100_000, "ended attempts that `reknit trail` remembers")
    streams_max: int = setting(1_024, "streams in flight on one node", low=1)
    stream_bytes_max: int = setting(64 * GIB, "bytes of one stream", low=1)
    stream_window_bytes: int = setting(
        256 * KIB, "bytes of one stream in flight to the next node or to a subscriber", low=2
    )
    streams_held_bytes_max: int = setting(
        16 * MIB, "bytes of all streams held in memory, to send them again; more goes into files", low=0
    )
