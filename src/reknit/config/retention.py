"""`[retention]`: how much the journal holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reknit.config.settings import Section, setting

__all__ = ["RetentionSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(Section):
    """Limits of the journal. When one is exceeded, the oldest events are removed; 0 means no limit.

    >>> RetentionSettings().protect_unsettled
    True
    """

    title: ClassVar[str] = "retention"
    count_max: int = setting(0, "events to retain; 0: no limit")
    bytes_max: int = setting(0, "bytes to retain; 0: no limit")
    age_s_max: float = setting(0.0, "how long to retain an event, by elapsed time; 0: no limit")
    protect_unsettled: bool = setting(
        True, "retain events that a durable subscriber is still owed, over any limit above"
    )
