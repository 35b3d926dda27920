"""A fabric in virtual time: hosts, a network, and real nodes and sessions on them.

>>> from reknit.testing.fabric.fabric import Fabric
>>> async def main(fabric: Fabric) -> bytes:
...     node = await fabric.start_node("a")
...     host = fabric.host("pump")
...     async def talk() -> bytes:
...         async with fabric.session(node.url) as session, session.subscribe("plant/*") as events:
...             await session.publish("plant/temp", b"21.5")
...             return (await anext(events)).payload
...     return await host.run(talk())
>>> with Fabric(seed=7) as fabric:
...     fabric.run(main(fabric))
b'21.5'
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, Self, TypeVar

from reknit.client.session import Session
from reknit.config import Config
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.virtual.hosts import Host
from reknit.testing.fabric.virtual.loop import VirtualLoop
from reknit.testing.fabric.virtual.network import FabricNetwork

T = TypeVar("T")

SHARED_MEMORY = Path("/dev/shm")
"""The folders of simulated disks are here, if the system has it: they are small, and needed for a second."""


class Fabric:
    """Hosts and nodes of one simulation, while in its `with`."""

    def __init__(self, seed: int = 0, *, is_traced: bool = False) -> None:
        self.seed = seed
        self.loop = VirtualLoop()
        self.network = FabricNetwork(self.loop, self.rng("network"), self.rng("datagrams"))
        self.network.lines = [] if is_traced else None
        self.loop.network = self.network
        self.errors: list[str] = []
        """Errors that nobody handled, from any host."""
        self.logged: list[str] = []
        """Records with a traceback that any host logged."""
        self.loop.set_exception_handler(self._on_error)
        self.nodes: dict[str, FabricNode] = {}
        self.folder = Path(tempfile.mkdtemp(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
        """Has the disks of all hosts, and files that no fault touches."""
        self.network.folder = str(self.folder).encode()
        self._hosts: dict[str, Host] = {}

    def rng(self, name: str) -> Random:
        """A random generator for a name, independent of all others."""
        return Random(f"{name} {self.seed}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.network.close()
        for node in self.nodes.values():
            node.release()
        for host in self._hosts.values():
            host.disk.close()
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        self.loop.close()
        logging.disable(disabled)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run the simulation from the outside: this coroutine runs on no host, and nothing stops it."""
        asyncio.set_event_loop(None)
        return self.loop.run_until_complete(coro)

    def _on_error(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"at {self.loop.now:.4f}: {context.get('message')}: {error!r}")
        if error is not None:
            logging.getLogger("reknit.testing").debug("unhandled", exc_info=error)

    # -- hosts and nodes

    def host(self, name: str) -> Host:
        """The host of this name; it is running."""
        found = self._hosts.get(name)
        if found is None:
            address = f"10.0.{len(self._hosts) // 250}.{len(self._hosts) % 250 + 1}"
            folder = self.folder / name
            found = self._hosts[name] = Host(name, address, self.loop, self.rng(f"host {name}"), folder)
            self.network.hosts[address] = found
        if not found.is_alive:
            found.start()
        return found

    def node(self, name: str, config: Config | None = None) -> FabricNode:
        """A node on a host of its own, to be started."""
        node = self.nodes[name] = FabricNode(name, self.host(name), config or Config(), self.network)
        return node

    async def start_node(self, name: str, config: Config | None = None) -> FabricNode:
        """A node that runs."""
        node = self.node(name, config)
        await node.start()
        return node

    def session(self, url: str, name: str = "", **more: Any) -> Session:
        """A session with a node, for code that runs on a host."""
        return Session(url, name, **more)
