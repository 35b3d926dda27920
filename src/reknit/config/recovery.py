"""`[recovery]`: how missed events are found and recovered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from reknit.config.addresses import check_urls
from reknit.config.settings import Section, setting
from reknit.config.units import MIB
from reknit.topic import Pattern

__all__ = ["RecoverySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings(Section):
    """How missed events are found and recovered, and from where.

    It has more than 15 fields because each is a setting of this section.

    >>> RecoverySettings(relays="tcp://10.0.0.7:7440=plant/**").relays
    ('tcp://10.0.0.7:7440=plant/**',)
    """

    title: ClassVar[str] = "recovery"
    caches: tuple[str, ...] = setting((), "further nodes to recover from, nearest first", check=check_urls)
    relays: tuple[str, ...] = setting(
        (), "nodes whose events this one stores too: address, or address=pattern"
    )
    history_events_max: int = setting(10_000, "newest events of a series that a publisher or cache holds")
    history_bytes_max: int = setting(8 * MIB, "bytes of a series that a publisher or cache holds")
    history_age_s_max: float = setting(0.0, "how long a publisher or cache holds an event; 0: no limit")
    hold_events_max: int = setting(1_000_000, "events of one source held behind a gap", low=1)
    hold_bytes_max: int = setting(64 * MIB, "bytes held behind gaps in one subscription", low=1)
    ask_bytes_max: int = setting(4 * MIB, "longest answer of a cache to one request", low=1)
    ask_timeout_s: float = setting(
        1.0, "how long a cache may be silent before the next one is asked", low=0.001
    )
    again_s: float = setting(
        0.1, "when to ask again for events that no cache has, before they are lost; 0: never"
    )
    patience_s: float = setting(30.0, "how long a gap waits for caches that don't answer, before it is lost")
    heartbeat_s: float = setting(
        0.0, "how often a publisher announces its last seq after it changed; 0: never"
    )
    query_s: float = setting(0.0, "how often a subscriber asks caches for a lost tail; 0: never")
    align_s: float = setting(0.0, "how often a node compares its events with its caches; 0: never")
    zenoh_listen: tuple[str, ...] = setting((), "Zenoh endpoints to listen on, such as tcp/127.0.0.1:7447")
    zenoh_connect: tuple[str, ...] = setting((), "Zenoh endpoints to connect to")
    zenoh_pattern: Pattern = setting(Pattern("**"), "the topics that are exchanged with Zenoh")  # noqa: RUF009
    zenoh_mode: Literal["auto", "client", "peer", "router"] = setting(
        "auto",
        "as what the node joins a Zenoh network; auto: a client of one `zenoh_connect`, otherwise a peer",
    )
    zenoh_gossip: bool = setting(False, "whether Zenoh peers behind a router find each other")
    zenoh_heartbeat_s: float = setting(
        1.0, "how often Zenoh subscribers are told the last number of each source; 0: never"
    )
