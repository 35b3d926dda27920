"""A real node on a simulated host: it starts, stops, crashes, freezes, and starts again on what its disk has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from reknit.config import Config
from reknit.server import Node, build_node
from reknit.store.disk import DiskJournal
from reknit.testing.fabric.virtual.hosts import Host
from reknit.testing.fabric.virtual.network import FabricNetwork

PORT: Final = 7440
HTTP_PORT: Final = 8080
AMQP_PORT: Final = 5672


class FabricNode:
    """One node. `node` is the real one; a restart makes a new one. Gateways listen where the configuration has any."""

    def __init__(self, name: str, host: Host, config: Config, network: FabricNetwork) -> None:
        self.name, self.host = name, host
        self.url = f"tcp://{host.address}:{PORT}"
        self.http_url = f"http://{host.address}:{HTTP_PORT}"
        self._network = network
        self.configure(config)
        self.node: Node
        self.is_up = False
        self.starts = 0
        self.ends: list[float] = []
        """When it stopped or crashed."""
        self._on_start: list[Callable[[], None]] = []

    def configure(self, config: Config) -> None:
        """Use this configuration from the next start on, with the name, address and disk of this node."""
        own = replace(config.node, name=self.name, listen=(self.url,), data_dir=self.host.folder)
        http = (
            replace(config.http, listen=f"{self.host.address}:{HTTP_PORT}")
            if config.http.listen
            else config.http
        )
        amqp = (
            replace(config.amqp, listen=f"{self.host.address}:{AMQP_PORT}")
            if config.amqp.listen
            else config.amqp
        )
        self.config = replace(config, node=own, http=http, amqp=amqp)

    @property
    def is_running(self) -> bool:
        """Whether its host is neither down nor frozen."""
        return self.host.life is not None and self.host.life.is_alive and self.host.life.is_running

    async def start(self) -> None:
        """Start, as the first thing in a new life of the host if it crashed."""
        life = self.host.life if self.host.is_alive else self.host.start()
        assert life is not None
        self.starts += 1
        self.node = life.call(build_node, self.config)
        await life.create_task(self.node.start())
        self.is_up = True
        for hook in self._on_start:
            hook()

    def on_start(self, hook: Callable[[], None]) -> None:
        """Call this whenever the node has started."""
        self._on_start.append(hook)

    async def stop(self) -> None:
        """Stop in order, as a service manager would ask it to."""
        self._ended()
        assert self.host.life is not None
        await self.host.life.create_task(self.node.stop())

    def crash(self, *, is_power_lost: bool) -> None:
        """End at once, as by kill -9 or a power cut."""
        self._ended()
        self.host.crash(is_power_lost=is_power_lost)
        self._network.crashed(self.host)
        self.release()

    def _ended(self) -> None:
        self.is_up = False
        self.ends.append(self.host.loop.now)

    def release(self) -> None:
        """Let go of what the system would have taken back: descriptors, maps and locks."""
        node = getattr(self, "node", None)
        caches = getattr(node, "caches", None)
        for journal in (getattr(node, "journal", None), caches.aligned.journal if caches else None):
            if isinstance(journal, DiskJournal) and not journal.state.is_closed:
                journal.state.close()
                journal.files.close()
