"""`[journal]`: how events are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from reknit.config.settings import Section, setting
from reknit.config.units import KIB, MIB

__all__ = ["JournalSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings(Section):
    """How events are stored.

    >>> JournalSettings(segment_bytes="64 MiB").segment_bytes
    67108864
    """

    title: ClassVar[str] = "journal"
    kind: Literal["disk", "memory"] = setting("disk", "on disk, or in memory until the node stops")
    segment_bytes: int = setting(256 * MIB, "size at which the log continues in a new file", low=4 * KIB)
    tail_cache_bytes: int = setting(64 * MIB, "newest part of the log that is also held in memory")
    index_interval_s: float = setting(
        5.0, "how often the index is saved; opening replays the rest of the log"
    )
    index_bytes: int = setting(8 * MIB, "save the index sooner when this much of the log is not in it")
    failed_sync: Literal["stop_intake", "exit"] = setting(
        "stop_intake",
        "what a node does when a sync failed, for which it must be restarted: deliver what it has and take no more "
        "events, or exit with code 1, so that a service manager restarts it",
    )
    sync: bool = setting(True, "acknowledge events only once they are on disk, not just in the page cache")
