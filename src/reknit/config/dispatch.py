"""`[dispatch]`: retries, leases and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from reknit.backoff import read_backoffs, read_codes
from reknit.config.settings import Section, setting
from reknit.topic import check_topic

__all__ = ["DispatchSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings(Section):
    """How often an event is attempted, and where it goes when no attempt succeeds.

    >>> DispatchSettings().dead_letter_topic
    'reknit/dead-letters'
    """

    title: ClassVar[str] = "dispatch"
    retry_backoff_s_min: float = setting(0.1, "ceiling of the back-off after the first failed attempt")
    retry_backoff_s_max: float = setting(30.0, "ceiling of the back-off after any failed attempt")
    attempts_max: int = setting(0, "failed attempts before an event is dead-lettered; 0: until its ttl")
    crash_attempts_max: int = setting(
        5, "crashes of a durable subscriber with only this event before it is dead-lettered; 0: any number"
    )
    never_retry: tuple[str, ...] = setting(
        ("INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"),
        "codes of failures that are dead-lettered at once",
        check=read_codes,
    )
    retry_codes: tuple[str, ...] = setting(
        (), "codes with a back-off of their own, as 'UNAVAILABLE=5:60' in seconds", check=read_backoffs
    )
    lease_s: float = setting(
        0.0, "how long a durable subscriber may hold an event unsettled; 0: while it is connected"
    )
    dead_letter_topic: str = setting(
        "reknit/dead-letters", "the topic that dead letters are published on", check=check_topic
    )
    dead_letters_full: Literal["stop_intake", "drop_oldest"] = setting(
        "stop_intake",
        "at limits.dead_letters_max and dead_letters_bytes_max: those whose events fill them wait, or the oldest go",
    )
