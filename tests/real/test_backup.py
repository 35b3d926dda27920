"""A node is backed up while events are published, killed, restored, and goes on."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from reknit.client.session import connect
from reknit.processes.process import NodeProcess, ending
from tests.node.fabric import TOPIC, client, config, fabric, numbers, run, take

pytestmark = pytest.mark.real


async def reknit(*arguments: str) -> None:
    done = await asyncio.create_subprocess_exec(sys.executable, "-m", "reknit", *arguments)
    assert await done.wait() == 0


def test_a_killed_node_goes_on_from_a_backup_that_was_made_beside_a_publisher(tmp_path: Path) -> None:
    async def test() -> None:
        node, backup = NodeProcess(tmp_path), tmp_path / "backup"
        async with AsyncExitStack() as stack:
            stack.enter_context(ending(node))
            node.start()
            [relay] = await stack.enter_async_context(fabric(config(relays=(node.url,))))
            neighbour = await stack.enter_async_context(client(relay))
            events = await stack.enter_async_context(neighbour.subscribe("plant/**"))
            async with connect(node.url, name="device") as device:
                publisher = device.publisher(TOPIC)
                backing_up = asyncio.create_task(reknit("backup", str(backup), "--data", str(node.data)))
                count = 0
                while not backing_up.done():
                    count += 1
                    await publisher.publish_many(numbers(count, count + 1))
                await backing_up
                await publisher.publish_many(numbers(count + 1, count + 4))
                old = publisher.source
            assert await take(events, count + 3) == list(range(1, count + 4))
            node.kill()
            node.data.rename(tmp_path / "old")
            await reknit("restore", str(backup), "--data", str(node.data))
            node.start()
            async with connect(node.url, name="device") as device:
                publisher = device.publisher(TOPIC)
                await publisher.publish_many(numbers(count + 4, count + 7))
                assert publisher.source != old
            # No seq that was given out after the backup is used again, so nobody takes these for copies.
            assert await take(events, 3) == [count + 4, count + 5, count + 6]

    run(test)
