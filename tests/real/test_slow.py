"""A subscriber that takes nothing costs bounded memory, and nobody else's events."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending
from reknit.wire.messages import Start, Subscribe, Subscribed
from tests.real.raw import raw

pytestmark = pytest.mark.real

EVENTS = 300_000
PAYLOAD = b"x" * 100


def test_a_stalled_subscriber_costs_bounded_memory(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, "--set", "journal.tail_cache_bytes=4 MiB")
    with ending(node):
        node.start()
        with (
            raw(node.port) as stalled,
            reknit.connect_sync(node.url) as session,
            session.subscribe("a", name="quick") as events,
        ):
            stalled.say(Subscribe(1, "a", "stalled", Start(), 8 << 20))
            stalled.read_until(Subscribed)
            publish(session, EVENTS // 3)
            before = session.status()["rss_bytes"]
            publish(session, EVENTS - EVENTS // 3)
            after = session.status()["rss_bytes"]
            assert counted(events.batches(), EVENTS) == EVENTS
            waiting = {row["name"]: row for row in session.status()["subscribers"]}["stalled"]
        print(f"{before >> 20} MiB, then {after >> 20} MiB", file=sys.stderr)
        held = (EVENTS - EVENTS // 3) * len(PAYLOAD)
        assert after - before < held / 2, "the node keeps in memory what the journal has"
        assert waiting["unsettled"] + waiting["waiting_bytes"] > 0


def publish(session: reknit.SyncSession, count: int) -> None:
    for _ in range(count // 10_000):
        session.publish_many("a", [PAYLOAD] * 10_000)


def counted(batches: Iterator[reknit.Batch], count: int) -> int:
    """Take batches until there are so many events."""
    total = 0
    while total < count:
        total += next(batches).count
    return total


def test_a_stalled_subscriber_gets_everything_when_it_wakes_up(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with ending(node):
        node.start()
        with reknit.connect_sync(node.url) as session:
            with session.subscribe("a", name="late") as events:
                publish(session, 100_000)
                assert counted(events.batches(), 100_000) == 100_000
            (row,) = session.ledger()
            assert (row["accepted"], row["in_flight"]) == (100_000, 0)
