"""The distribution of topics: the configured rules with a distribution other than `journal`."""

from __future__ import annotations

from typing import Final

from reknit.config import Config
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
        self._known: dict[str, str] = {}

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
        if not self.is_on:
            return JOURNAL
        mode = self._known.get(topic)
        if mode is None:
            if len(self._known) >= self._config.limits.subscriptions_max:
                self._known.clear()
            mode = self._known[topic] = self._config.topic(topic).distribution
        return mode

    def of_all(self, pattern: Pattern) -> str:
        """How all topics that match are distributed."""
        for rule in self._rules:
            if rule.pattern.includes(pattern):
                return rule.distribution
        return JOURNAL
