"""The distribution of topics: the configured rules with a distribution other than `journal`."""

from __future__ import annotations

from typing import Final

from reknit.config import Config, TopicSettings
from reknit.errors import InvalidConfig
from reknit.topic import Pattern

JOURNAL: Final = "journal"


class Distributions:
    """The rules of one node. Raises `InvalidConfig` where two of them contradict each other."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rules = [rule for rule in config.topics if rule.distribution != JOURNAL]
        self._check()
        self.is_on = bool(self._rules)
        """Whether there is any such rule."""
        self.patterns = [rule.pattern for rule in self._rules]
        self._known: dict[str, TopicSettings] = {}

    def _check(self) -> None:
        """A rule's account covers all topics of its pattern: no other rule may take some of them out."""
        topics = self._config.topics
        for at, rule in enumerate(topics):
            for before in topics[:at]:
                differs = before.distribution != rule.distribution and rule.distribution != JOURNAL
                if differs and before.pattern.intersects(rule.pattern):
                    text = f"has topics in common with {before.pattern.text!r} before it, which is {before.distribution}"
                    origin = dict(self._config.origins).get("topics", "code")
                    raise InvalidConfig(f"topics[{at}].distribution", origin, text)

    def of(self, topic: str) -> str:
        """How a topic is distributed."""
        return self._rule(topic).distribution if self.is_on else JOURNAL

    def attempts_max(self, topic: str) -> int:
        """After how many failed attempts an event that nobody waits for becomes a dead letter; 0: never."""
        return self._rule(topic).attempts_max or self._config.dispatch.attempts_max

    def _rule(self, topic: str) -> TopicSettings:
        rule = self._known.get(topic)
        if rule is None:
            if len(self._known) >= self._config.limits.subscriptions_max:
                self._known.clear()
            rule = self._known[topic] = self._config.topic(topic)
        return rule

    def of_all(self, pattern: Pattern) -> str:
        """How all topics that match are distributed."""
        for rule in self._rules:
            if rule.pattern.includes(pattern):
                return rule.distribution
        return JOURNAL
