"""What a node loads only where its configuration asks for it: its gateways, which need further packages, and relays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reknit.config import Config
from reknit.errors import InvalidConfig

if TYPE_CHECKING:
    from reknit.gateway.amqp.server import AmqpServer
    from reknit.gateway.http.server import HttpServer
    from reknit.gateway.zenoh.gateway import ZenohGateway
    from reknit.node.node import Node
    from reknit.node.replication.aligner import Aligner
    from reknit.node.replication.relay import Relay


@contextmanager
def _needed_by(setting: str, extra: str, config: Config) -> Iterator[None]:
    """Say which package to install for a setting, where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = f"needs {error.name}: pip install 'reknit[{extra}]'"
        raise InvalidConfig(setting, config.origin(setting), text) from None


def http_server(node: Node) -> HttpServer:
    """The HTTP gateway, to be started. Raises `InvalidConfig`."""
    with _needed_by("http.listen", "http", node.config):
        from reknit.gateway.http.server import HttpServer
    return HttpServer(node)


def amqp_server(node: Node) -> AmqpServer:
    """The AMQP gateway, to be started. Raises `InvalidConfig`."""
    with _needed_by("amqp.listen", "amqp", node.config):
        from reknit.gateway.amqp.server import AmqpServer
    return AmqpServer(node)


def zenoh_gateway(node: Node) -> ZenohGateway:
    """The Zenoh gateway, to be started. Raises `InvalidConfig`."""
    with _needed_by("recovery.zenoh_listen", "zenoh", node.config):
        from reknit.gateway.zenoh.gateway import ZenohGateway
    return ZenohGateway(node)


def relays(node: Node) -> list[Relay | Aligner | ZenohGateway]:
    """What brings events from elsewhere, to be started. Relays and aligners are clients of other nodes."""
    settings = node.config.recovery
    found: list[Relay | Aligner | ZenohGateway] = []
    if settings.relays:
        from reknit.node.replication.relay import Relay

        found += [Relay(node, text) for text in settings.relays]
    if settings.align_s:
        from reknit.node.replication.aligner import Aligner

        found += [Aligner(node, url) for url in settings.caches]
    if settings.zenoh_listen or settings.zenoh_connect:
        found.append(zenoh_gateway(node))
    return found
