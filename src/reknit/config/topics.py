"""`[[topics]]`: rules for some topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from reknit.config.settings import Section, setting
from reknit.topic import Pattern

__all__ = ["TopicSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(Section):
    """A rule for some topics: a `[[topics]]` table in the file. The first rule that matches a topic applies.

    >>> TopicSettings(pattern="camera/**", durability="memory").pattern.matches("camera/1")
    True
    """

    title: ClassVar[str] = "topics[]"
    pattern: Pattern = setting(Pattern("**"), "the topics that this rule applies to")  # noqa: RUF009
    durability: Literal["durable", "memory"] = setting("durable", "acknowledge when durable, or at once")
    distribution: Literal["journal", "multicast", "closest", "balanced"] = setting(
        "journal",
        "to every subscriber from the journal; or with outcomes to all, the closest, the least busy",
    )
    order: Literal["none", "source", "key"] = setting(
        "none", "whether later events of a source, or with the same key, wait for one that is retried"
    )
    attempts_max: int = setting(0, "failed attempts before a dead letter; 0: as dispatch.attempts_max")
    ttl_ms: int = setting(0, "the ttl of events without one; 0: for ever")
    overflow: Literal["withhold", "refuse_newest", "drop_oldest"] = setting(
        "withhold", "at the limits of a subscriber's queue: publishers wait, or events are dead-lettered"
    )
    dead_letters_max: int = setting(
        0, "dead letters of one topic that wait before its publishers do; 0: as limits.dead_letters_max"
    )
    dead_letter_payload: bool = setting(True, "whether a dead letter has the event's payload")
