"""Addresses of clients as topics: many libraries write a topic as a URL."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

_KINDS: Final = ("topic://", "queue://")
_URLS: Final = ("amqp://", "amqps://")


def topic_of(address: str) -> str:
    """The topic or pattern that an address names. The host of a URL is not looked at: it named a way to this node.

    >>> topic_of("plant/temp"), topic_of("queue://orders"), topic_of("topic://plant/**")
    ('plant/temp', 'orders', 'plant/**')
    >>> topic_of("amqps://node.example:5671/plant/7%C2%B0"), topic_of("amqp://node.example")
    ('plant/7°', '')
    """
    for prefix in _KINDS:
        if address.startswith(prefix):
            return address[len(prefix) :]
    for prefix in _URLS:
        if address.startswith(prefix):
            return unquote(address[len(prefix) :].partition("/")[2])
    return address
