"""`reknit up`: a node with its journal, until Ctrl-C."""

from __future__ import annotations

import gc
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.output import duration, events, log_to_stderr, say

if TYPE_CHECKING:
    from reknit.config import Config
    from reknit.node.node import Node


class Journal(StrEnum):
    """Where the journal is kept."""

    DISK = "disk"
    MEMORY = "memory"


class Level(StrEnum):
    """What is logged: this and everything worse."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def up(
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the journal is kept.")] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An address to listen on, tcp://HOST:PORT; may be repeated."),
    ] = None,
    journal: Annotated[Journal | None, typer.Option(help="Keep events on disk, or until it stops.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings.  [default: ./reknit.toml if there is one]")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="One setting; may be repeated."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The node's name.  [default: the host's]")] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve metrics for Prometheus there.")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve tunnels there: /kn, /sse and /ws.")
    ] = None,
    amqp: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve AMQP 1.0 clients there.")
    ] = None,
    relay: Annotated[
        list[str] | None,
        typer.Option(metavar="URL[=PATTERN]", help="Keep what that node keeps, too; may be repeated."),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="URL[=COST]", help="Be one fabric with that node; may be repeated."),
    ] = None,
    zenoh_listen: Annotated[
        list[str] | None,
        typer.Option(metavar="ENDPOINT", help="Let Zenoh peers connect here; may be repeated."),
    ] = None,
    zenoh_connect: Annotated[
        list[str] | None,
        typer.Option(metavar="ENDPOINT", help="Join the Zenoh network there; may be repeated."),
    ] = None,
    log: Annotated[Level, typer.Option("--log", help="What is logged, on stderr.")] = Level.WARNING,
) -> None:
    """Run a node with its journal until Ctrl-C.

    Without options it listens on tcp://127.0.0.1:7440 and keeps its journal in ./reknit-data.
    """
    from reknit.cli.running import node_url, run
    from reknit.cli.settings import parsed
    from reknit.config import load
    from reknit.transport.file_limits import raise_files_max

    raise_files_max()
    given = {
        "node.data_dir": data,
        "node.listen": tuple(node_url(url) for url in listen) if listen else None,
        "journal.kind": journal.value if journal else None,
        "node.name": name,
        "http.listen": http,
        "amqp.listen": amqp,
        "recovery.relays": tuple(relay) if relay else None,
        "links.to": tuple(node_url(url) for url in link) if link else None,
        "recovery.zenoh_listen": tuple(zenoh_listen) if zenoh_listen else None,
        "recovery.zenoh_connect": tuple(zenoh_connect) if zenoh_connect else None,
    }
    log_to_stderr(log.value, with_time=True)
    flags = {setting: value for setting, value in given.items() if value is not None}
    run(_serve(load(config, overrides={**parsed(set_ or []), **flags}), metrics))


async def _serve(config: Config, metrics: str | None) -> None:
    import asyncio

    from reknit.server import build_node

    async with build_node(config) as node:
        if metrics:
            from reknit.node.admin.metrics import serve_metrics

            serve_metrics(node.figures, metrics)
        typer.echo(_greeting(node))
        gc.freeze()  # what is there by now stays: a collection that looked at all of it would hold up every event
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say(
                f"stopping after {duration(time.time() - node.started_at)}: {events(node.journal.status().events)} kept"
            )


def _greeting(node: Node) -> str:
    """One line: where it listens, where it keeps, what to do next."""
    from reknit.cli.running import node_url

    config = node.config
    count = node.journal.status().events
    held = f" ({events(count)})" if count else ""
    place = "in memory" if config.journal.kind == "memory" else f"in {config.node.data_dir}{held}"
    address = "" if node.urls[0] == node_url("") else f" --node {node.urls[0]}"
    urls = ", ".join([*node.urls, *(door.url for door in node.doors.values())])
    return f"{node.name} listens on {urls}, journal {place}; try: reknit sub '**'{address}"
