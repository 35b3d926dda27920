"""Families of plans for whole fabrics: each makes one situation that independent fields hardly ever meet.

A third of all seeds belong to a family. Each has a random generator of its own: all other seeds keep their plans.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

FAMILY_EVERY: Final = 10

QUIET: Final[dict[str, Any]] = {
    "shape": "chain",
    "cost_max": 1,
    "memory_share": 0.0,
    "senders": 0,
    "requesters": 0,
    "release": 0.0,
    "fail": 0.0,
    "reject": 0.0,
    "leave_share": 0.0,
    "reset_rate": 0.0,
    "cut_rate": 0.0,
    "slow_rate": 0.0,
    "crash_rate": 0.0,
    "freeze_rate": 0.0,
    "program_crash_rate": 0.0,
    "step_rate": 0.0,
    "sync_failure_rate": 0.0,
    "stall_s_max": 0.0,
    "full_rate": 0.0,
    "pause_rate": 0.0,
    "redrive_rate": 0.0,
    "drop_rate": 0.0,
    "link_rate": 0.0,
    "look_rate": 0.0,
    "order": "none",
    "lease_s": 0.0,
    "hang": 0.0,
    "ttl_ms": 0,
    "queue_events_max": 0,
    "retain_events_max": 0,
    "retain_bytes_max": 0,
    "retain_s_max": 0.0,
    "feeds": (),
    "is_ring": False,
    "stream_writers": 0,
    "posters": 0,
    "tunnels": 0,
    "web_readers": 0,
    "amqp_senders": 0,
    "amqp_receivers": 0,
    "hostiles": 0,
    "blocking": 0,
    "members": 0,
    "replace_rate": 0.0,
}
"""No faults but those of the family."""


def no_family(rng: Random) -> dict[str, Any]:
    """Independent fields."""
    return {}


def weak_receivers(rng: Random) -> dict[str, Any]:
    """Nodes lose their power while they store what a neighbour sends, on slow disks."""
    return {
        **QUIET,
        "nodes": 2,
        "run_s": rng.uniform(5.0, 8.0),
        "publishers": 3,
        "lasting_share": 0.0,
        "put_rate": 8.0,
        "burst_max": 2,
        "payload_bytes_max": 2000,
        "durables": 3,
        "ephemerals": 0,
        "crash_rate": rng.uniform(0.6, 1.2),
        "power_share": 1.0,
        "stop_share": 0.0,
        "down_s_max": 0.2,
        "stall_s_max": 2.0,
    }


def spare_lines(rng: Random) -> dict[str, Any]:
    """Nodes have two lines to each other, and one of them is closed."""
    return {
        **QUIET,
        "nodes": rng.choice((2, 3)),
        "run_s": rng.uniform(5.0, 8.0),
        "publishers": 2,
        "put_rate": 8.0,
        "durables": 2,
        "ephemerals": 2,
        "link_rate": 3.0,
        "away_s_max": 0.5,
    }


def long_absence(rng: Random) -> dict[str, Any]:
    """A node at the end of a chain is away for longer than others look back, and those may forget it in an outage."""
    return {
        **QUIET,
        "nodes": rng.choice((3, 4)),
        "run_s": rng.uniform(8.0, 12.0),
        "publishers": 3,
        "put_rate": 3.0,
        "durables": 3,
        "ephemerals": 0,
        "crash_rate": 0.25,
        "power_share": 0.0,
        "stop_share": 0.0,
        "down_s_max": 8.0,
        "outage_rate": rng.choice((0.15, 0.0)),
        "heal_s": 0.5,
    }


def outages(rng: Random) -> dict[str, Any]:
    """All nodes are away at once, again and again: what they know of each other is what they wrote down."""
    return {**long_absence(rng), "outage_rate": 0.3}


def short_memories(rng: Random) -> dict[str, Any]:
    """Nodes keep events for a moment, and those that copy them are away for longer."""
    return {
        **QUIET,
        "nodes": 1,
        "run_s": rng.uniform(4.0, 8.0),
        "publishers": 4,
        "lasting_share": 1.0,
        "put_rate": 2.0,
        "burst_max": 20,
        "payload_bytes_max": 2000,
        "durables": 1,
        "ephemerals": 0,
        "segment_bytes": 4096,
        "retain_bytes_max": 20_000,
        "retain_s_max": rng.choice((0.0, 1.0)),
        "protects_unsettled": False,
        "feeds": tuple(rng.choice(("relay", "push", "pull")) for _ in range(2)),
        "reset_rate": 0.3,
        "cut_rate": 0.6,
        "cut_s_max": 6.0,
        "one_way_share": 0.2,
        "crash_rate": rng.choice((0.0, 0.2)),
        "down_s_max": 6.0,
    }


def deaf_senders(rng: Random) -> dict[str, Any]:
    """Senders publish, and do not hear what became of their events until they connect again."""
    return {
        **QUIET,
        "nodes": 1,
        "run_s": rng.uniform(6.0, 10.0),
        "publishers": 1,
        "put_rate": 6.0,
        "burst_max": 2,
        "durables": 0,
        "ephemerals": 0,
        "senders": 2,
        "workers": 1,
        "think_s_max": 0.0,
        "cut_rate": 1.0,
        "cut_s_max": 4.0,
        "one_way_share": 1.0,
    }


def tenants(rng: Random) -> dict[str, Any]:
    """Programs with identities use their nodes up to their quotas, and try to have more."""
    return {
        **QUIET,
        "nodes": rng.choice((1, 2)),
        "run_s": rng.uniform(4.0, 6.0),
        "publishers": 1,
        "put_rate": 6.0,
        "burst_max": 10,
        "durables": 1,
        "ephemerals": 0,
        "tenants": rng.choice((1, 2)),
        "quota_connections": rng.choice((2, 3)),
        "quota_names": rng.choice((1, 2)),
        "reset_rate": rng.choice((0.0, 0.5)),
        "crash_rate": rng.choice((0.0, 0.2)),
        "program_crash_rate": rng.choice((0.0, 0.3)),
        "down_s_max": 1.0,
    }


def visits(rng: Random) -> dict[str, Any]:
    """Programs use every page of the HTTP gateway, and read what others post by every way."""
    return {
        **QUIET,
        "nodes": rng.choice((1, 1, 2)),
        "run_s": rng.uniform(5.0, 8.0),
        "publishers": 1,
        "put_rate": 4.0,
        "burst_max": 3,
        "durables": 0,
        "ephemerals": 0,
        "posters": 1,
        "tunnels": 1,
        "web_readers": 2,
        "visitors": 2,
        "reset_rate": rng.choice((0.0, 0.3)),
        "slow_rate": rng.choice((0.0, 0.3)),
        "crash_rate": rng.choice((0.0, 0.2)),
        "program_crash_rate": rng.choice((0.0, 0.3)),
        "down_s_max": 1.0,
    }


def calls(rng: Random) -> dict[str, Any]:
    """Programs use every call of the client, on nodes that are linked."""
    return {
        **QUIET,
        "nodes": rng.choice((1, 2, 3)),
        "run_s": rng.uniform(5.0, 8.0),
        "publishers": 1,
        "put_rate": 3.0,
        "burst_max": 3,
        "durables": 1,
        "ephemerals": 0,
        "callers": 2,
        "reset_rate": rng.choice((0.0, 0.0, 0.3)),
        "crash_rate": rng.choice((0.0, 0.0, 0.2)),
        "down_s_max": 1.0,
    }


def amqp_visits(rng: Random) -> dict[str, Any]:
    """Programs use everything that AMQP has."""
    return {
        **QUIET,
        "nodes": rng.choice((1, 2)),
        "run_s": rng.uniform(5.0, 8.0),
        "publishers": 1,
        "put_rate": 3.0,
        "burst_max": 3,
        "payload_bytes_max": rng.choice((200, 2000)),
        "durables": 1,
        "ephemerals": 0,
        "amqp_senders": 2,
        "amqp_receivers": 3,
        "amqp_visitors": 2,
        "release": 0.3,
        "leave_share": 0.3,
        "reset_rate": rng.choice((0.0, 0.3)),
        "crash_rate": rng.choice((0.0, 0.2)),
        "stop_share": rng.choice((0.0, 1.0)),
        "down_s_max": 1.0,
    }


def shared_work(rng: Random) -> dict[str, Any]:
    """Programs share a queue: they leave, crash, hang, and give events back, in order or not."""
    lease_s = rng.choice((0.0, 0.0, 0.5, 1.5))
    return {
        **QUIET,
        "nodes": rng.choice((1, 1, 2, 3)),
        "run_s": rng.uniform(4.0, 7.0),
        "publishers": 2,
        "put_rate": rng.uniform(2.0, 6.0),
        "burst_max": rng.choice((1, 8, 40)),
        "payload_bytes_max": rng.choice((20, 200, 2000)),
        "durables": rng.choice((0, 1)),
        "ephemerals": 0,
        "queue_members": rng.randint(1, 4),
        "think_s_max": rng.choice((0.0, 0.02, 0.1)),
        "release": rng.choice((0.0, 0.3)),
        "fail": rng.choice((0.0, 0.3)),
        "reject": rng.choice((0.0, 0.1)),
        "quit_share": rng.choice((0.0, 0.05, 0.2)),
        "lease_s": lease_s,
        "hang": 0.1 if lease_s else 0.0,
        "order": rng.choice(("none", "source", "key", "key")),
        "attempts_max": rng.choice((0, 0, 3)),
        "ttl_ms": rng.choice((0, 0, 2000)),
        "delay_s_max": rng.choice((0.001, 0.05)),
        "reset_rate": rng.choice((0.0, 0.5, 1.5)),
        "cut_rate": rng.choice((0.0, 0.0, 0.4)),
        "cut_s_max": 3.0,
        "one_way_share": 0.3,
        "freeze_rate": rng.choice((0.0, 0.0, 0.2)),
        "freeze_s_max": 3.0,
        "crash_rate": rng.choice((0.0, 0.0, 0.2)),
        "down_s_max": 1.0,
        "program_crash_rate": rng.choice((0.0, 0.5, 1.0)),
        "program_down_s_max": 0.5,
        "pause_rate": rng.choice((0.0, 0.0, 0.4)),
        "queue_order": rng.choice(("", "", "source", "key")),
    }


Family = Callable[[Random], dict[str, Any]]
FAMILIES: Final[dict[int, tuple[Family, ...]]] = {
    6: (weak_receivers, spare_lines, long_absence, deaf_senders),
    7: (tenants, visits, calls, amqp_visits),
    9: (short_memories, outages, no_family, no_family),
}
"""By the last digit of their seeds."""
SHARED_EVERY: Final = 17
SHARED: Final = (11, 14)
"""Of every 17 seeds of no other family, these belong to `shared_work`. None of them has shown a fault before."""


def family_fields(seed: int) -> dict[str, Any]:
    """The fields that a seed's family sets; none if it belongs to none."""
    families = FAMILIES.get(seed % FAMILY_EVERY)
    if families is not None:
        family = families[seed // FAMILY_EVERY % len(families)]
    elif seed % SHARED_EVERY in SHARED:
        family = shared_work
    else:
        return {}
    return family(Random(f"{family.__name__} {seed}"))
