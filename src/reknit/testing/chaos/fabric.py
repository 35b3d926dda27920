"""The fabric of a campaign: linked nodes in a ring, a relay, an outpost behind a bridge, gateways and their clients."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from reknit.processes.process import Process, free_port
from reknit.testing.chaos.machine import Machine, mount_small
from reknit.testing.chaos.nodes import ChaosNode
from reknit.testing.chaos.plan import Targets
from reknit.testing.chaos.preload import Control, build
from reknit.testing.chaos.proxy import Proxies, Proxy

PARTS = ("http", "amqp", "zenoh", "spark", "relay", "bridge", "anycast")
SMALL_MIB = 512
REJECT_EVERY = 97
RATE = 60.0
"""Events a second of each publisher with reknit's own protocol; the others have a tenth of it."""
ALL = "chaos/**"
ORDERS = "orders/new"


@dataclass(frozen=True)
class Publisher:
    """A client that publishes on a topic of its own."""

    name: str
    topic: str
    once: bool = False
    """Whether each of its numbers is stored once; others may repeat one whose acknowledgement they missed."""


@dataclass(frozen=True)
class Subscriber:
    """A client that is owed the events of a pattern."""

    name: str
    node: str
    pattern: str
    ledger_name: str
    """The name of the durable subscriber in its node's ledger; empty for a reader that resumes by itself."""
    has_ids: bool = True
    """Whether it records sources and seqs."""


@dataclass
class Fabric:
    """All processes, with who is owed what."""

    folder: Path
    machine: Machine
    without: Collection[str]
    nodes: dict[str, ChaosNode] = field(default_factory=dict)
    links: dict[str, Proxy] = field(default_factory=dict)
    clients: dict[str, Process] = field(default_factory=dict)
    publishers: list[Publisher] = field(default_factory=list)
    subscribers: list[Subscriber] = field(default_factory=list)
    steady: set[str] = field(default_factory=set)
    """Clients that no fault happens to, because they have no memory of their own."""

    def record(self, name: str) -> Path:
        """The file in which a client records what it did."""
        return self.folder / f"{name}.record"

    @property
    def targets(self) -> Targets:
        """What faults can happen to."""
        clients = tuple(name for name in self.clients if name not in self.steady)
        pipelines = () if "spark" in self.without else ("pipeline",)
        return Targets(tuple(self.nodes), tuple(self.links), clients, pipelines)

    def processes(self) -> list[Process]:
        return [*self.nodes.values(), *self.clients.values()]


class FabricBuilder:
    """Lays out a fabric. Nothing runs before `start`."""

    def __init__(
        self, folder: Path, machine: Machine, proxies: Proxies, *, nodes: int, without: Collection[str]
    ) -> None:
        self._folder, self._machine, self._proxies, self._count = folder, machine, proxies, nodes
        self.fabric = Fabric(folder, machine, {*without, *machine.missing})
        self._library = build(folder)
        self._ports: dict[str, int] = {}

    def build(self) -> Fabric:
        """The whole fabric."""
        self._add_nodes()
        self._add_native_clients()
        for part in PARTS:
            if part not in self.fabric.without and part != "spark":
                getattr(self, f"_add_{part}")()
        return self.fabric

    # -- nodes

    def _add_nodes(self) -> None:
        names = [f"n{number}" for number in range(1, self._count + 1)]
        for name in names:
            self._add_node(name, *self._gateway_options(name))
        pairs = (
            list(zip(names, [*names[1:], names[0]], strict=True)) if self._count > 2 else [tuple(names[:2])]
        )
        for one, other in [*pairs, *([("n2", "n4")] if self._count > 3 else [])]:
            if one != other:
                proxy = self._proxy(f"{one}-{other}", self.fabric.nodes[other])
                self.fabric.nodes[one].add_options("--link", proxy.url)

    def _gateway_options(self, name: str) -> list[str]:
        """n1 and the last node serve HTTP, n2 AMQP, the last but one Zenoh."""
        options = []
        without = self.fabric.without
        if name in ("n1", f"n{self._count}") and "http" not in without:
            options += ["--http", f"127.0.0.1:{self._port(f'http {name}')}"]
        if name == "n2" and "amqp" not in without:
            options += ["--amqp", f"127.0.0.1:{self._port('amqp')}"]
        if name == f"n{self._count - 1}" and "zenoh" not in without:
            options += ["--zenoh-listen", f"tcp/127.0.0.1:{self._port('zenoh')}"]
            options += ["--set", "recovery.zenoh_pattern=chaos/zenoh/**"]
        return options

    def _port(self, name: str) -> int:
        return self._ports.setdefault(name, free_port())

    def _add_node(self, name: str, *options: str) -> ChaosNode:
        control = Control(self._library, self._folder / f"{name}.control") if self._library else None
        node = ChaosNode(self._folder, name, *options, control=control)
        if self._machine.mounts and len(self.fabric.nodes) % 2:
            mount_small(node.data, SMALL_MIB)
            node.is_small = True
        self.fabric.nodes[name] = node
        return node

    def _proxy(self, name: str, to: ChaosNode) -> Proxy:
        self.fabric.links[name] = self._proxies.add(to.port)
        return self.fabric.links[name]

    # -- clients

    def _client(self, name: str, module: str, kind: str, *arguments: str) -> None:
        command = [sys.executable, "-m", f"reknit.testing.chaos.programs.{module}", kind, *arguments]
        self.fabric.clients[name] = Process(name, command, self._folder)

    def _publisher(
        self, name: str, module: str, kind: str, url: str, rate: float, once: bool = False
    ) -> None:
        topic = f"chaos/{name}/in" if module != "zenoh" else "chaos/zenoh/in"
        self._client(name, module, kind, url, name, topic, str(rate), str(self.fabric.record(name)))
        self.fabric.publishers.append(Publisher(name, topic, once))

    def _subscriber(self, name: str, node: str, pattern: str, *more: str) -> None:
        url = self._proxy(f"{name}-{node}", self.fabric.nodes[node]).url
        self._client(name, "native", "subscribe", url, name, pattern, str(self.fabric.record(name)), *more)
        self.fabric.subscribers.append(Subscriber(name, node, pattern, name))

    def _add_native_clients(self) -> None:
        nodes = list(self.fabric.nodes)
        self._subscriber("s1", nodes[0], ALL)
        self._subscriber("s2", nodes[len(nodes) // 2], ALL)
        self._subscriber("s3", nodes[-1], "chaos/p1/*")
        self._subscriber("strict", nodes[1], ALL, str(REJECT_EVERY))
        for number, node in enumerate(nodes, 1):
            url = self._proxy(f"p{number}-{node}", self.fabric.nodes[node]).url
            self._publisher(f"p{number}", "native", "publish", url, RATE, once=True)

    def _add_http(self) -> None:
        first, last = "n1", f"n{self._count}"
        post_url = f"http://127.0.0.1:{self._port(f'http {first}')}"
        read_url = f"http://127.0.0.1:{self._port(f'http {last}')}"
        self._publisher("post", "web", "post", post_url, RATE / 10)
        for how, pattern in (("tunnel", "chaos/post/in"), ("sse", "chaos/post/**"), ("ws", "chaos/p2/**")):
            self._client(how, "web", how, read_url, how, pattern, str(self.fabric.record(how)))
            self.fabric.subscribers.append(Subscriber(how, last, pattern, "", has_ids=False))

    def _add_amqp(self) -> None:
        url = f"127.0.0.1:{self._port('amqp')}"
        self._publisher("send", "amqp", "send", url, RATE / 10)
        self._client("receive", "amqp", "receive", url, "receive", ALL, str(self.fabric.record("receive")))
        self.fabric.subscribers.append(Subscriber("receive", "n2", ALL, "amqp/receive/in", has_ids=False))

    def _add_zenoh(self) -> None:
        self._publisher("zenoh", "zenoh", "publish", f"tcp/127.0.0.1:{self._port('zenoh')}", RATE / 10)
        self.fabric.steady.add("zenoh")

    def _add_relay(self) -> None:
        self._add_node("relay").add_options(
            "--relay", f"{self._proxy('relay-n1', self.fabric.nodes['n1']).url}={ALL}"
        )
        self._subscriber("s-relay", "relay", ALL)

    def _add_bridge(self) -> None:
        self._proxy("n1-outpost", self._add_node("outpost"))
        self._subscriber("s-outpost", "outpost", ALL)

    def _add_anycast(self) -> None:
        nodes = list(self.fabric.nodes)[: self._count]
        for number, node in enumerate((nodes[0], nodes[-1]), 1):
            name = f"work{number}"
            url = self.fabric.nodes[node].url
            self._client(name, "native", "work", url, name, ORDERS, str(self.fabric.record(name)))
        name, url = "order", self.fabric.nodes[nodes[1]].url
        self._client(
            name, "native", "order", url, name, ORDERS, str(RATE / 10), str(self.fabric.record(name))
        )
