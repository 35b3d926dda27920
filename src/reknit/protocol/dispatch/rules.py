"""The dispatcher's rules: the settings for dispatching, and the rule of each topic, remembered by topic."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from reknit.backoff import read_backoffs, read_codes
from reknit.config import Config, TopicSettings
from reknit.private_topics import public_topic
from reknit.protocol.dispatch.retry import Retry
from reknit.topic import Pattern
from reknit.wire.messages import Handling

TOPICS_KNOWN_MAX: Final = 100_000
"""Topics whose rule was looked up are remembered up to this many; then the memory is cleared."""
_NO_RULE: Final = TopicSettings()


class DispatchRules:
    """Settings in the form that the dispatcher needs.

    >>> rules = DispatchRules(topics=[TopicSettings(pattern="a/**", order="source", attempts_max=3)])
    >>> rules.of("a/1").order, rules.of("b").order, rules.has_order, rules.has_ttl
    ('source', 'none', True, False)
    """

    def __init__(
        self,
        retry: Retry | None = None,
        topics: Sequence[TopicSettings] = (),
        lease_s: float = 0.0,
        queue_events_max: int = 0,
        queue_bytes_max: int = 0,
        reserve_percent: int = 10,
        lanes_max: int = 65_536,
        in_flight_bytes_max: float = inf,
        crash_attempts_max: int = 0,
    ) -> None:
        self.retry = retry or Retry()
        self.lease_s = lease_s
        self.queue_events_max = queue_events_max
        self.queue_bytes_max = queue_bytes_max
        self.reserve_percent = reserve_percent
        self.lanes_max = lanes_max
        """Ranges of events that may wait beside a queue's cursor before the cursor waits too."""
        self.in_flight_bytes_max = in_flight_bytes_max
        """Bytes that may be with one subscriber before it settles some."""
        self.crash_attempts_max = crash_attempts_max
        """Crashes of a subscriber with only one event before that is dead-lettered; 0 is any number."""
        self.has_order = any(rule.order != "none" for rule in topics)
        self.has_ttl = any(rule.ttl_ms for rule in topics)
        self._topics = tuple(topics)
        self._known: dict[str, TopicSettings] = {}

    @classmethod
    def from_config(cls, config: Config) -> DispatchRules:
        """The rules of a configuration."""
        dispatch, limits = config.dispatch, config.limits
        retry = Retry(
            dispatch.retry_backoff_s_min,
            dispatch.retry_backoff_s_max,
            dispatch.attempts_max,
            read_backoffs(dispatch.retry_codes),
            read_codes(dispatch.never_retry),
        )
        return cls(
            retry,
            config.topics,
            dispatch.lease_s,
            limits.queue_events_max,
            limits.queue_bytes_max,
            limits.queue_reserve_percent,
            limits.unsettled_ranges_max,
            limits.in_flight_bytes_max,
            dispatch.crash_attempts_max,
        )

    def handling(self, pattern: Pattern) -> list[Handling]:
        """The rules for subscribers that recover events on these topics, and so count attempts themselves.

        >>> rules = DispatchRules(Retry(attempts_max=9), [TopicSettings(pattern="a/**", attempts_max=3)])
        >>> [(one.pattern, one.attempts_max) for one in rules.handling(Pattern("a/b"))]
        [('a/**', 3), ('**', 9)]
        """
        default = self.retry.attempts_max
        rules = [
            Handling(rule.pattern.text, rule.attempts_max or default, rule.ttl_ms, rule.order != "none")
            for rule in self._topics
            if rule.pattern.intersects(pattern)
        ]
        return [*rules, Handling("**", default)] if rules or default else []

    @property
    def never(self) -> list[int]:
        """Codes that are never retried."""
        return sorted(self.retry.never)

    @property
    def limits_queues(self) -> bool:
        return bool(self.queue_events_max or self.queue_bytes_max)

    def of(self, topic: str) -> TopicSettings:
        """The rule of a topic."""
        rule = self._known.get(topic)
        if rule is None:
            if len(self._known) >= TOPICS_KNOWN_MAX:
                self._known.clear()
            public = public_topic(topic)
            rule = next((one for one in self._topics if one.pattern.matches(public)), _NO_RULE)
            self._known[topic] = rule
        return rule
