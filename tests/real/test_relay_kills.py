"""Real processes: the node in the middle is killed and started again while 100,000 events flow through it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reknit.client.session import connect
from reknit.config import Config, RecoverySettings
from reknit.processes.process import NodeProcess, ending
from tests.node.fabric import QUICK, TOPIC, numbers

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180)]

EVENTS = 100_000
STEP = 500
CLIENT = Config(transport=QUICK, recovery=RecoverySettings(again_s=2.0, history_events_max=EVENTS))
"""A client has time to reconnect to a node that was killed, and holds all events that others may lack."""


async def restart(node: NodeProcess) -> None:
    """Kill the node with -9, and start it again a moment later."""
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(0.1)
    await asyncio.to_thread(node.start)


async def flow(first: NodeProcess, last: NodeProcess, killed: NodeProcess, kills: int) -> list[int]:
    """Publish at one node and subscribe at the other, while one of them is killed now and then."""
    got: list[int] = []
    async with (
        connect(first.url, config=CLIENT) as session,
        connect(last.url, config=CLIENT) as reader,
        reader.subscribe("plant/**", on_lost=lambda report: got.append(-report.start)) as events,
    ):

        async def receive() -> None:
            async for batch in events.batches():
                got.extend(map(int, batch.payloads()))
                if got[-1] == EVENTS:
                    return

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(receive())
            publisher = session.publisher(TOPIC)
            kill_at = {EVENTS * (number + 1) // (kills + 2) // STEP * STEP for number in range(kills)}
            restarted: asyncio.Future[None] | None = None
            for at in range(0, EVENTS, STEP):
                kept = publisher.publish_many(numbers(at + 1, at + STEP + 1))
                if at in kill_at:
                    if restarted is not None:
                        await restarted
                    restarted = tasks.create_task(restart(killed))
                await asyncio.sleep(0.01)
            await kept
    return got


def test_the_relay_in_the_middle_is_killed_and_all_arrive_in_order_and_once(tmp_path: Path) -> None:
    origin = NodeProcess(tmp_path, name="origin")
    relay = NodeProcess(tmp_path, "--set", f"recovery.relays={origin.url}", name="relay")
    with ending(origin, relay):
        origin.start()
        relay.start()
        got = asyncio.run(flow(origin, relay, relay, kills=2))
    assert got == list(range(1, EVENTS + 1))


def test_the_relay_with_its_journal_in_memory_is_killed_and_all_arrive_in_order_and_once(
    tmp_path: Path,
) -> None:
    origin = NodeProcess(tmp_path, name="origin")
    options = ("--set", f"recovery.relays={origin.url}", "--journal", "memory")
    relay = NodeProcess(tmp_path, *options, name="relay")
    with ending(origin, relay):
        origin.start()
        relay.start()
        got = asyncio.run(flow(origin, relay, relay, kills=2))
    assert got == list(range(1, EVENTS + 1))


def test_the_origin_is_killed_and_all_arrive_in_order_and_once(tmp_path: Path) -> None:
    origin = NodeProcess(tmp_path, name="origin")
    relay = NodeProcess(tmp_path, "--set", f"recovery.relays={origin.url}", name="relay")
    with ending(origin, relay):
        origin.start()
        relay.start()
        got = asyncio.run(flow(origin, relay, origin, kills=2))
    assert got == list(range(1, EVENTS + 1))


def test_one_node_with_its_journal_in_memory_is_killed_and_the_publishers_cache_heals_it(
    tmp_path: Path,
) -> None:
    node = NodeProcess(tmp_path, "--journal", "memory", name="node")
    with ending(node):
        node.start()
        got = asyncio.run(flow(node, node, node, kills=2))
    assert got == list(range(1, EVENTS + 1))
