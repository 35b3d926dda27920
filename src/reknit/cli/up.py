"""`reknit up`: run a node with its journal until Ctrl-C."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.options import ConfigFile, SetSettings
from reknit.cli.output import duration, events, log_to_stderr, say

if TYPE_CHECKING:
    from reknit.config import Config
    from reknit.server import Node


class JournalKind(StrEnum):
    """Where the journal is stored."""

    DISK = "disk"
    MEMORY = "memory"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Data = Annotated[Path | None, typer.Option(metavar="DIR", help="The directory of the journal.")]
Listen = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="An address to listen on, tcp://HOST:PORT; may be repeated."),
]
Kind = Annotated[
    JournalKind | None, typer.Option(help="Store events on disk, or in memory until the node stops.")
]
Name = Annotated[str | None, typer.Option(help="The node's name.  [default: the host's name]")]
Metrics = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Serve metrics for Prometheus on this address.")
]
Http = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve tunnels on this address, under /kn, /sse and /ws."),
]
Amqp = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Serve AMQP 1.0 clients on this address.")
]
Relays = Annotated[
    list[str] | None,
    typer.Option(metavar="URL[=PATTERN]", help="Also store the events of this node; may be repeated."),
]
Links = Annotated[
    list[str] | None,
    typer.Option(metavar="URL[=COST]", help="Link to this node as one fabric; may be repeated."),
]
ZenohListen = Annotated[
    list[str] | None,
    typer.Option(metavar="ENDPOINT", help="Accept Zenoh peers on this endpoint; may be repeated."),
]
ZenohConnect = Annotated[
    list[str] | None,
    typer.Option(metavar="ENDPOINT", help="Join the Zenoh network at this endpoint; may be repeated."),
]
Log = Annotated[LogLevel, typer.Option("--log", help="The lowest level that is logged, on stderr.")]


def up(
    data: Data = None,
    listen: Listen = None,
    journal: Kind = None,
    config: ConfigFile = None,
    set_: SetSettings = None,
    name: Name = None,
    metrics: Metrics = None,
    http: Http = None,
    amqp: Amqp = None,
    relay: Relays = None,
    link: Links = None,
    zenoh_listen: ZenohListen = None,
    zenoh_connect: ZenohConnect = None,
    log: Log = LogLevel.WARNING,
) -> None:
    """Run a node with its journal until Ctrl-C.

    Without options it listens on tcp://127.0.0.1:7440 and stores its journal in ./reknit-data.
    """
    from reknit.cli.running import node_url, run
    from reknit.cli.settings import parsed
    from reknit.config import load
    from reknit.transport.file_limits import raise_files_max

    raise_files_max()
    flags = {
        "node.data_dir": data,
        "node.listen": [node_url(url) for url in listen or ()],
        "journal.kind": journal.value if journal else None,
        "node.name": name,
        "http.listen": http,
        "amqp.listen": amqp,
        "recovery.relays": relay,
        "links.to": [node_url(url) for url in link or ()],
        "recovery.zenoh_listen": zenoh_listen,
        "recovery.zenoh_connect": zenoh_connect,
    }
    log_to_stderr(log.value, with_time=True)
    run(_serve(load(config, overrides={**parsed(set_ or []), **_given(flags)}), metrics))


def _given(flags: Mapping[str, Path | str | list[str] | None]) -> dict[str, object]:
    """The settings of those flags that were given."""
    given = {name: value for name, value in flags.items() if value is not None and value != []}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


async def _serve(config: Config, metrics: str | None) -> None:
    import asyncio

    from reknit.server import build_node

    async with build_node(config) as node:
        if metrics:
            from reknit.node.admin.metrics import serve_metrics

            serve_metrics(node.figures, metrics)
        typer.echo(_greeting(node))
        gc.freeze()  # these objects stay: a garbage collection that visits them all would delay every event
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stored = events(node.journal.status().events)
            say(f"stopping after {duration(time.time() - node.started_at)}: {stored} stored")


def _greeting(node: Node) -> str:
    """One line: where the node listens, where its journal is, and what to try next."""
    from reknit.cli.running import node_url

    config = node.config
    count = node.journal.status().events
    held = f" ({events(count)})" if count else ""
    place = "in memory" if config.journal.kind == "memory" else f"in {config.node.data_dir}{held}"
    address = "" if node.urls[0] == node_url("") else f" --node {node.urls[0]}"
    urls = ", ".join([*node.urls, *(door.url for door in node.doors.values())])
    return f"{node.name} listens on {urls}, journal {place}; try: reknit sub '**'{address}"
