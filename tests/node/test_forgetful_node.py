"""A node that forgot its journal: events that are published afterwards are new events, to everyone."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from reknit.config import Config, JournalSettings, NodeSettings
from reknit.node.core.dead_letters import DeadLetters
from reknit.node.node import Node
from reknit.processes.process import free_port
from reknit.server import build_node
from reknit.store.memory import MemoryJournal
from tests.node.fabric import QUICK, TOPIC, client, config, fabric, numbers, run, take

pytestmark = pytest.mark.real


def node_at(port: int, data_dir: Path | None = None) -> Node:
    """With its journal in memory, unless it has a directory."""
    if data_dir is None:
        return build_node(config(port))
    settings = NodeSettings(name="test", data_dir=data_dir, listen=(f"tcp://127.0.0.1:{port}",))
    return build_node(Config(node=settings, journal=JournalSettings(kind="disk"), transport=QUICK))


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["in memory", "emptied directory"])
@pytest.mark.parametrize("outcome", [False, True], ids=["plain", "with outcomes"])
def test_what_a_named_publisher_publishes_to_a_node_that_forgot_arrives(
    tmp_path: Path, is_on_disk: bool, outcome: bool
) -> None:
    async def test() -> None:
        port, data_dir = free_port(), tmp_path if is_on_disk else None
        async with AsyncExitStack() as stack:
            origin = node_at(port, data_dir)
            await origin.start()
            [relay] = await stack.enter_async_context(fabric(config(relays=(origin.urls[0],))))
            sessions = [await stack.enter_async_context(client(node)) for node in (origin, relay)]
            subscriptions = [await stack.enter_async_context(one.subscribe("plant/**")) for one in sessions]
            async with client(origin, name="device") as device:
                await device.publisher(TOPIC, outcome=outcome).publish_many(numbers(1, 6))
            for events in subscriptions:
                assert await take(events, 5) == [1, 2, 3, 4, 5]
            await origin.stop()
            if is_on_disk:
                rmtree(tmp_path)
            origin = await stack.enter_async_context(node_at(port, data_dir))
            async with client(origin, name="device") as device:
                publisher = device.publisher(TOPIC, outcome=outcome)
                assert await publisher.resume() == 1
                await publisher.publish_many(numbers(6, 9))
            for events in subscriptions:
                assert await take(events, 3) == [6, 7, 8]

    run(test)


def test_a_named_publisher_continues_its_seqs_on_a_node_that_remembers(tmp_path: Path) -> None:
    async def test() -> None:
        port, sources = free_port(), set()
        for start in (1, 6):
            async with node_at(port, tmp_path) as node, client(node, name="device") as device:
                publisher = device.publisher(TOPIC)
                assert await publisher.resume() == start
                await publisher.publish_many(numbers(start, start + 5))
                sources.add(publisher.source)
        assert len(sources) == 1

    run(test)


def test_a_publisher_that_stays_goes_on_when_its_node_is_an_older_copy_of_itself(tmp_path: Path) -> None:
    """The events in between are lost on that node, which says so: nobody waits for them for ever."""

    async def test() -> None:
        port, now, before = free_port(), tmp_path / "now", tmp_path / "before"
        async with AsyncExitStack() as stack:
            node = node_at(port, now)
            await node.start()
            session = await stack.enter_async_context(client(node))
            publisher = session.publisher(TOPIC)
            await publisher.publish_many(numbers(1, 4))
            await node.stop()
            copytree(now, before)
            node = node_at(port, now)
            await node.start()
            await publisher.publish_many(numbers(4, 7))
            await node.stop()
            rmtree(now)
            before.rename(now)
            node = await stack.enter_async_context(node_at(port, now))
            await publisher.publish_many(numbers(7, 9))
            assert node.journal.ledger.skipped[TOPIC, publisher.source].ranges() == [(4, 7)]
            async with session.subscribe(TOPIC, history=True) as events:
                assert await take(events, 5) == [1, 2, 3, 7, 8]

    run(test)


def test_dead_letters_of_a_node_that_forgot_have_a_source_of_their_own() -> None:
    made = [DeadLetters("north", Config(), MemoryJournal(), lambda: 0).source for _ in range(2)]
    assert made[0] != made[1]
    journal = MemoryJournal()
    assert (
        DeadLetters("north", Config(), journal, lambda: 0).source
        == DeadLetters("north", Config(), journal, lambda: 0).source
    )
