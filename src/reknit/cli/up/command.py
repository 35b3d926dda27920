"""The command `reknit up`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reknit.cli.options import ConfigFile, SetSettings
from reknit.cli.output import log_to_stderr


class JournalKind(StrEnum):
    """Where the journal is stored."""

    DISK = "disk"
    MEMORY = "memory"


class LogFormat(StrEnum):
    """How a line of the log is written."""

    TEXT = "text"
    JSON = "json"


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
Format = Annotated[
    LogFormat, typer.Option("--log-format", help="Lines of text with date and time, or JSON objects.")
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
    log_format: Format = LogFormat.TEXT,
) -> None:
    """Run a node with its journal until Ctrl-C.

    Without options it listens on tcp://127.0.0.1:7440 and stores its journal in ./reknit-data.
    """
    from reknit.cli.running import node_url
    from reknit.cli.up.run import run_node

    log_to_stderr(log.value, with_time=True, as_json=log_format is LogFormat.JSON)
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
    run_node(config, settings=set_ or (), flags=flags, metrics=metrics)
