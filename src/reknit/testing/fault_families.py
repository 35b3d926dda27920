"""Families of plans: each makes one situation that plans with independent fields hardly ever meet.

Every tenth seed belongs to a family. Each has a random generator of its own, so that all other seeds keep their plans.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

FAMILY_EVERY: Final = 10
FAMILY_SEED: Final = 5
"""The seeds of families are this one, and every tenth one after it."""

QUIET: Final[dict[str, Any]] = {
    "nodes": 1,
    "cut_rate": 0.0,
    "partition_rate": 0.0,
    "node_crash_rate": 0.0,
    "publisher_crash_rate": 0.0,
    "subscriber_crash_rate": 0.0,
    "supersede_rate": 0.0,
    "commit_failure_share": 0.0,
    "staged_bytes_max": 1 << 20,
    "pause_rate": 0.0,
    "lease_s": 0.0,
    "queue_events_max": 0,
    "unsent_share": 0.0,
    "puts_max": 0,
    "members": 0,
    "schedule_share": 0.0,
}
"""No faults but those of the family."""


def short_pauses(rng: Random) -> dict[str, Any]:
    """Topics are resumed while some events wait for the first time, and others that failed are about to expire."""
    return {
        **QUIET,
        "durables": 3,
        "ephemerals": 1,
        "run_s": rng.uniform(4.0, 8.0),
        "put_rate": 12.0,
        "burst_max": 4,
        "payload_bytes_max": rng.choice((100, 600)),
        "think_s_max": 0.02,
        "credit_bytes": 300,
        "release": 0.0,
        "fail": 0.5,
        "attempts_max": 0,
        "ttl_ms": rng.randint(150, 600),
        "is_ordered": False,
        "pause_rate": rng.uniform(3.0, 8.0),
        "pause_s_max": 0.3,
    }


def slow_archive(rng: Random) -> dict[str, Any]:
    """A later gap is given up before an earlier one is filled: a cache answers late, and has not everything."""
    return {
        **QUIET,
        "durables": 0,
        "ephemerals": 2,
        "run_s": rng.uniform(4.0, 8.0),
        "put_rate": 12.0,
        "burst_max": rng.choice((1, 4)),
        "payload_bytes_max": 8,
        "recover_share": 1.0,
        "missed_share": rng.uniform(0.1, 0.4),
        "archive": "part",
        "archive_s_max": 1.0,
        "hold_events_max": 200,
        "segment_bytes": 512,
        "retain_events": 20,
        "retain_owed": False,
        "trim_s": 0.05,
    }


def brief_retention(rng: Random) -> dict[str, Any]:
    """Retention removes events that wait for their next attempt."""
    return {
        **QUIET,
        "durables": 1,
        "ephemerals": 2,
        "put_rate": 15.0,
        "burst_max": 4,
        "think_s_max": rng.choice((0.0, 0.02)),
        "credit_bytes": rng.choice((2048, 1 << 20)),
        "recover_share": 0.0,
        "release": rng.uniform(0.2, 0.5),
        "fail": rng.uniform(0.2, 0.5),
        "attempts_max": 0,
        "ttl_ms": 0,
        "missed_share": 0.0,
        "archive": "",
        "segment_bytes": 512,
        "retain_events": 20,
        "retain_owed": False,
        "trim_s": 0.05,
    }


def last_words(rng: Random) -> dict[str, Any]:
    """Publishers repeat their last events on a new connection, while these are being made durable."""
    return {
        **QUIET,
        "publishers": rng.randint(1, 2),
        "puts_max": rng.randint(1, 3),
        "opening_puts": 0,
        "put_rate": 15.0,
        "notice_s_max": 0.01,
        "delay_s_max": 0.002,
        "reconnect_s_max": 0.02,
        "commit_s_max": 0.6,
        "durables": 0,
        "ephemerals": 0,
    }


def expiry_after_restarts(rng: Random) -> dict[str, Any]:
    """Events expire while their subscriber is away, after their node has restarted."""
    return {
        **QUIET,
        "durables": 3,
        "ephemerals": 0,
        "run_s": 8.0,
        "node_crash_rate": rng.uniform(0.3, 0.6),
        "node_down_s_max": 0.1,
        "subscriber_crash_rate": 1.5,
        "leave_share": 0.0,
        "program_down_s_max": 4.0,
        "ttl_ms": rng.randint(300, 900),
    }


def retention_during_commits(rng: Random) -> dict[str, Any]:
    """Nodes crash after retention ran, and before the outcomes that it counted on were durable."""
    return {
        **QUIET,
        "durables": 1,
        "ephemerals": 0,
        "put_rate": 20.0,
        "burst_max": 4,
        "payload_bytes_max": 100,
        "think_s_max": 0.01,
        "delay_s_max": 0.002,
        "reconnect_s_max": 0.05,
        "release": 0.0,
        "fail": 0.0,
        "ttl_ms": 0,
        "is_ordered": False,
        "node_crash_rate": rng.uniform(0.5, 1.5),
        "node_down_s_max": 0.1,
        "unsynced_survives_share": 0.0,
        "commit_s_max": rng.choice((0.1, 0.4)),
        "memory_topics": False,
        "segment_bytes": 512,
        "retain_events": 2,
        "retain_owed": True,
        "trim_s": 0.01,
    }


def outcomes_without_room(rng: Random) -> dict[str, Any]:
    """Subscribers come back while their outcomes wait for room in the journal."""
    return {
        **QUIET,
        "durables": 3,
        "ephemerals": 0,
        "put_rate": 20.0,
        "think_s_max": 0.02,
        "delay_s_max": 0.002,
        "reconnect_s_max": 0.05,
        "notice_s_max": 0.02,
        "cut_rate": rng.uniform(2.0, 5.0),
        "subscriber_crash_rate": rng.uniform(0.0, 3.0),
        "program_down_s_max": 0.05,
        "leave_share": 0.0,
        "fail": 0.3,
        "reject": 0.3,
        "attempts_max": 2,
        "commit_s_max": 0.4,
        "commit_failure_share": rng.choice((0.0, 0.5)),
        "staged_bytes_max": rng.choice((600, 1500)),
    }


FAMILIES: Final[tuple[Callable[[Random], dict[str, Any]], ...]] = (
    short_pauses,
    slow_archive,
    brief_retention,
    last_words,
    expiry_after_restarts,
    retention_during_commits,
    outcomes_without_room,
)


def family_fields(seed: int) -> dict[str, Any]:
    """The fields that a seed's family sets; none if it belongs to none.

    >>> family_fields(4), sorted(family_fields(5)) == sorted(family_fields(75))
    ({}, True)
    """
    if seed % FAMILY_EVERY != FAMILY_SEED:
        return {}
    family = FAMILIES[seed // FAMILY_EVERY % len(FAMILIES)]
    return family(Random(f"{family.__name__} {seed}"))
