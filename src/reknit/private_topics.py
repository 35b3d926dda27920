"""Private topics: an event on one of them is for one durable subscriber alone.

A dead letter that is redriven to the subscriber it failed at is published on `reknit/redriven/NAME/TOPIC`. No other
pattern matches that, since no wildcard stands for `reknit`. The pattern of the subscriber's account does, so that its
queue, its outcomes and the ledger know the event as any other; applications see it on TOPIC.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

__all__ = ["PRIVATE", "private_prefix", "private_topic", "public_topic"]

PRIVATE: Final = "reknit/redriven/"


def private_prefix(subscriber: str) -> str:
    """How the topics of a durable subscriber begin.

    >>> private_prefix("queue/a b")
    'reknit/redriven/queue%2Fa%20b/'
    """
    return f"{PRIVATE}{quote(subscriber, safe='')}/"


def private_topic(subscriber: str, topic: str) -> str:
    """Where an event on a topic is published for one subscriber alone.

    >>> private_topic("audit", "plant/a")
    'reknit/redriven/audit/plant/a'
    """
    return private_prefix(subscriber) + public_topic(topic)


def public_topic(topic: str) -> str:
    """The topic as applications know it.

    >>> public_topic("reknit/redriven/audit/plant/a"), public_topic("plant/a")
    ('plant/a', 'plant/a')
    """
    if not topic.startswith(PRIVATE):
        return topic
    return topic[len(PRIVATE) :].partition("/")[2] or topic
