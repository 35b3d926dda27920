"""Rates of topics cost as much as there are topics with events, not as many as there are."""

from __future__ import annotations

from typing import Any

from reknit.ledger import Ledger
from reknit.node.admin.topic_rates import TopicRates

SOURCE = b"s" * 16
MANY = 100_000


def test_a_rate_is_that_of_the_last_whole_period() -> None:
    ledger = Ledger()
    ledger.publish("plant/a", SOURCE, 1, 101)
    rates = TopicRates(ledger)
    rates.sample(10.0)
    assert rates.of("plant/a") == 0.0, "its events came before"
    ledger.publish("plant/a", SOURCE, 101, 141)
    rates.sample(10.5)
    ledger.publish("plant/a", SOURCE, 141, 201)
    rates.sample(12.0)
    assert rates.of("plant/a") == 50.0
    rates.sample(13.0)
    assert rates.of("plant/a") == 0.0


class WatchedTopics(dict[str, Any]):
    """Notes which topics are looked at."""

    def __init__(self, topics: dict[str, Any]) -> None:
        super().__init__(topics)
        self.looked_at: list[str] = []

    def __getitem__(self, topic: str) -> Any:
        self.looked_at.append(topic)
        return super().__getitem__(topic)

    def everything(self, *args: object) -> Any:
        raise AssertionError("all topics are looked at")

    __iter__ = items = keys = values = everything


def test_sampling_looks_only_at_topics_with_events() -> None:
    ledger = Ledger()
    for number in range(MANY):
        ledger.publish(f"plant/{number}", SOURCE, 1, 2)
    rates = TopicRates(ledger)
    ledger.publish("plant/7", SOURCE, 2, 4)
    ledger.topics = watched = WatchedTopics(ledger.topics)
    rates.sample(1.0)
    assert watched.looked_at == ["plant/7"]
