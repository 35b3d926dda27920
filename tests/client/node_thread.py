"""A node for tests of clients: the real thing with its journal in memory, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from reknit.client.blocking.loop_thread import LoopThread
from reknit.config import Config, JournalSettings, NodeSettings
from reknit.node.node import Node
from reknit.server import build_node

ANY_PORT = NodeSettings(name="test", listen=("tcp://127.0.0.1:0",))


@contextmanager
def serving(config: Config | None = None) -> Iterator[Node]:
    """A node that listens on some port until the end."""
    thread = LoopThread()
    node = build_node(config or Config(node=ANY_PORT, journal=JournalSettings(kind="memory")))
    try:
        thread.run(node.start())
        try:
            yield node
        finally:  # a loop with open sockets can't be closed
            thread.run(node.stop())
            thread.run(asyncio.sleep(0))
    finally:
        thread.stop()


def run(program: Coroutine[Any, Any, None]) -> None:
    """A client's program, on a loop of its own, for half a minute at most."""

    async def limited() -> None:
        async with asyncio.timeout(150):
            await program

    asyncio.run(limited())
