"""The composition root: builds a node with its gateways, relays and aligners, as its configuration says.

A gateway's packages are imported only where the configuration asks for that gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from reknit.client.session import Session
from reknit.config import Config
from reknit.errors import InvalidConfig
from reknit.node.api import Attachment, Door, GatewayNode
from reknit.node.node import Node
from reknit.node.replication.aligner import Aligner
from reknit.node.replication.relay import Relay
from reknit.node.replication.remote_session import RemoteSession
from reknit.node.watchdog import Watchdog

__all__ = ["Node", "build_node", "connect", "make_aligner", "make_relay"]


def build_node(config: Config, rng: Random | None = None) -> Node:
    """A node with everything that its configuration asks for, to be started, or used in `async with`.

    >>> from reknit.config import JournalSettings
    >>> build_node(Config(journal=JournalSettings(kind="memory"))).config.journal.kind
    'memory'
    """
    doors = {}
    if config.http.listen:
        doors["http"] = _http_server
    if config.amqp.listen:
        doors["amqp"] = _amqp_server
    return Node(config, connect=connect, doors=doors, importers=_importers, rng=rng)


def connect(url: str, *, config: Config, token: str = "", wait_s: float = 5.0) -> RemoteSession:
    """A session with another node, to be opened."""
    return Session(url, "", config, token, wait_s=wait_s)


def make_relay(node: Node, text: str) -> Relay:
    """A relay into a node, from `URL` or `URL=PATTERN`. Raises `InvalidConfig`."""
    return Relay(text, node=node, connect=connect, add_cache=node.caches.add)


def make_aligner(node: Node, url: str, pattern: str = "**") -> Aligner:
    """Keeps a node aligned with the one at `url`."""
    return Aligner(
        url,
        pattern,
        config=node.config,
        name=node.name,
        runner=node,
        connect=connect,
        make_publisher=node.local_publisher,
        aligned=node.caches.aligned,
    )


def _importers(node: Node) -> list[Attachment]:
    """What runs beside a node: relays and aligners, which are clients of other nodes, and its watchdog."""
    settings = node.config.recovery
    found: list[Attachment] = [make_relay(node, text) for text in settings.relays]
    if settings.align_s:
        found += [make_aligner(node, url) for url in settings.caches]
    if settings.zenoh_listen or settings.zenoh_connect:
        found.append(_zenoh_gateway(node))
    return [*found, Watchdog()]


@contextmanager
def _needed_by(setting: str, extra: str, config: Config) -> Iterator[None]:
    """Name the package to install for a setting, if it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = f"needs {error.name}: pip install 'reknit[{extra}]'"
        raise InvalidConfig(setting, config.origin(setting), text) from None


def _http_server(node: GatewayNode) -> Door:
    with _needed_by("http.listen", "http", node.config):
        from reknit.console.console import Console
        from reknit.gateway.http.server import HttpServer
    server = HttpServer(node)
    if node.config.http.console:
        Console(node, server)
    return server


def _amqp_server(node: GatewayNode) -> Door:
    with _needed_by("amqp.listen", "amqp", node.config):
        from reknit.gateway.amqp.server import AmqpServer
    return AmqpServer(node)


def _zenoh_gateway(node: GatewayNode) -> Attachment:
    with _needed_by("recovery.zenoh_listen", "zenoh", node.config):
        from reknit.gateway.zenoh.gateway import ZenohGateway
    return ZenohGateway(node)
