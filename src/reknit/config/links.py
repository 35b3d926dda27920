"""`[links]`: the links to other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reknit.config.addresses import check_urls
from reknit.config.settings import Section, setting
from reknit.config.units import MIB

__all__ = ["LINK_COST_MAX", "LinkSettings"]

LINK_COST_MAX = 1_000_000


def _check_links(texts: tuple[str, ...]) -> None:
    for text in texts:
        url, _, cost = text.partition("=")
        check_urls((url,))
        if cost and not (cost.isascii() and cost.isdigit() and 1 <= int(cost) <= LINK_COST_MAX):
            raise ValueError(
                f"{cost!r} in {text!r} is not a cost from 1 to {LINK_COST_MAX}; write tcp://host:port=10"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings(Section):
    """The nodes that this one links to. Linked nodes form one fabric.

    >>> LinkSettings(to="tcp://10.0.0.7:7440=10").to
    ('tcp://10.0.0.7:7440=10',)
    """

    title: ClassVar[str] = "links"
    to: tuple[str, ...] = setting((), "nodes to link to: address, or address=cost", check=_check_links)
    cost: int = setting(1, "the cost of a link without a cost of its own", low=1, high=LINK_COST_MAX)
    edge: bool = setting(False, "have at most one link, and never forward between other nodes")
    beat_s: float = setting(1.0, "how often linked nodes exchange heartbeats with their versions", low=0.01)
    timeout_s: float = setting(
        3.5, "how long a linked node may be silent before its link times out", low=0.02
    )
    nodes_max: int = setting(1_024, "nodes that one node knows", low=2)
    window_events: int = setting(65_536, "anycast events forwarded to a linked node and not settled", low=1)
    window_bytes: int = setting(16 * MIB, "sent to a linked node and not yet stored there", low=1)
    heal_s: float = setting(
        30.0,
        "how far back to look when a route changed, and how long to wait for a subscriber whose connection broke",
    )
    remember_s: float = setting(
        604_800.0,
        "how long a node that is away is known after a restart, so that its events go on towards it",
    )
    hops_max: int = setting(16, "links that an event crosses at most on bridges", low=1, high=255)
