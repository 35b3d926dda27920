"""Checks on the messages of other nodes over a link."""

from __future__ import annotations

from typing import Final

from reknit.config import LINK_COST_MAX, LinkSettings
from reknit.errors import InvalidTopic
from reknit.ledger import QUEUES
from reknit.topic import Pattern, check_topic
from reknit.wire.codec import Item
from reknit.wire.links import Announce, Carry, Forward, Link, LinkState

NAME_CHARS_MAX: Final = 255
MODES: Final = ("multicast", "closest", "balanced")


def objection(hello: Link, name: str, settings: LinkSettings, others: set[str]) -> str:
    """Why a link to a node is not possible, or an empty text; `others` are the neighbours that there are."""
    if not 0 < len(hello.node) <= NAME_CHARS_MAX or not hello.node.isprintable():
        return f"a node's name must have 1 to {NAME_CHARS_MAX} printable characters"
    if hello.node == name:
        return f"both nodes are called {name!r}: give each a name of its own (node.name)"
    if settings.edge and others - {hello.node}:
        return f"{name} is an edge node and already has its one link (links.edge)"
    if hello.is_edge and settings.edge:
        return "two edges can't be linked: set links.edge to false on one of them"
    return ""


def unsound(item: Item) -> str:
    """Why a message of another node is not valid, or an empty text.

    >>> unsound(LinkState("a", 1, 1, {"b": 0}))
    'the cost of a link must be from 1 to 1000000'
    """
    match item:
        case LinkState(links=links):
            sound = all(0 < cost <= LINK_COST_MAX for cost in links.values())
            return "" if sound else f"the cost of a link must be from 1 to {LINK_COST_MAX}"
        case Announce(added=added, removed=removed):
            return next((why for row in (*added, *removed) if (why := _unsound_interest(*row))), "")
        case Carry(missed=missed):
            return next((why for one in missed if (why := _unsound_topic(one.topic))), "")
        case Forward(mode=mode):
            return "" if mode in MODES else f"{mode!r} is not a distribution of events with outcomes"
        case _:
            return ""


def _unsound_topic(topic: str) -> str:
    try:
        check_topic(topic)
    except InvalidTopic as error:
        return str(error)
    return ""


def _unsound_interest(pattern: str, mode: str) -> str:
    try:
        Pattern(pattern)
    except InvalidTopic as error:
        return str(error)
    is_queue = mode.startswith(QUEUES) and len(mode) <= NAME_CHARS_MAX + len(QUEUES) and mode.isprintable()
    is_known = mode in ("journal", "any", "stream") or is_queue
    return "" if is_known else f"{mode[:NAME_CHARS_MAX]!r} is not a kind of subscription"
