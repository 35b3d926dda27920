"""How many events a second each topic has."""

from __future__ import annotations

from typing import Final

from reknit.ledger import Ledger

PERIOD_S: Final = 1.0


class TopicRates:
    """The rates of the last whole period. Keeping them costs nothing for topics without events, however many there are.

    >>> ledger = Ledger()
    >>> rates = TopicRates(ledger)
    >>> ledger.publish("plant/a", b"s" * 16, 1, 11)
    >>> rates.sample(2.0)
    >>> rates.of("plant/a"), rates.of("plant/b"), rates.total
    (5.0, 0.0, 5.0)
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        ledger.take_recent()  # what was replayed when the journal was opened
        self._began = 0.0
        """When the period began that is under way."""
        self._lasted_s = 1.0
        """How long the last one was."""
        self._counts: dict[str, int] = {}
        """By topic with events in the last period: how many."""

    def sample(self, now: float) -> None:
        """Begin the next period, if this one has lasted long enough."""
        if now - self._began < PERIOD_S:
            return
        topics = self._ledger.topics
        self._counts = {
            topic: topics[topic].events - before for topic, before in self._ledger.take_recent().items()
        }
        self._began, self._lasted_s = now, now - self._began

    def of(self, topic: str) -> float:
        """The events of a topic in a second."""
        return self._counts.get(topic, 0) / self._lasted_s

    @property
    def total(self) -> float:
        """The events of all topics in a second."""
        return sum(self._counts.values()) / self._lasted_s
