"""Runs the node of `reknit up`."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from reknit import environment
from reknit.cli.output import duration, events, fail, say
from reknit.cli.running import node_url, run
from reknit.cli.settings import parsed
from reknit.config import Config, load
from reknit.server import Node, build_node
from reknit.transport.file_limits import raise_files_max
from reknit.transport.tls import ServerTls, refusal, server_tls

STOPPED_EARLY = "stopped while starting: nothing was served"


def run_node(
    file: Path | None,
    *,
    settings: Sequence[str],
    flags: Mapping[str, Path | str | Sequence[str] | None],
    metrics: str | None,
) -> None:
    """Run a node until a signal. A flag that is given, by the name of its setting, overrides `--set` and the file."""
    raise_files_max()
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the node runs: then it reloads its certificates
    for number in (signal.SIGINT, signal.SIGTERM):  # until the event loop runs
        signal.signal(number, lambda number, frame: _stop_early())
    config = load(file, overrides={**parsed(settings), **_given(flags)})
    run(_serve(config, metrics))


def _given(flags: Mapping[str, Path | str | Sequence[str] | None]) -> dict[str, object]:
    """The settings of those flags that were given."""
    given = {name: value for name, value in flags.items() if value is not None and value != []}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _stop_early() -> None:
    say(STOPPED_EARLY)
    raise SystemExit(0)


async def _serve(config: Config, metrics: str | None) -> None:
    node = build_node(config)
    try:
        await node.start()
    except asyncio.CancelledError:
        say(STOPPED_EARLY)
        return
    try:
        await _run(node, metrics)
    finally:
        await node.stop()
    if node.is_broken.is_set():
        fail(f"{node.journal.problem}; the node exits to be restarted, as journal.failed_sync says")


async def _run(node: Node, metrics: str | None) -> None:
    """Serve until a signal, or until the node has to be restarted."""
    if metrics:
        from reknit.node.admin.metrics import (
            serve_metrics,
        )  # few nodes need Prometheus, which loads slowly

        serve_metrics(node.figures, metrics, node.gate, _metrics_tls(node))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, node.reloader.reload)
    typer.echo(_greeting(node))
    gc.freeze()  # these objects stay: a garbage collection that visits them all would delay every event
    try:
        await node.is_broken.wait()
    except asyncio.CancelledError:
        stored = events(node.journal.status().events)
        say(f"stopping after {duration(environment.monotonic() - node.started_at)}: {stored} stored")


def _metrics_tls(node: Node) -> ServerTls | None:
    """TLS for metrics: that of `[http]`."""
    config = node.config
    tls = server_tls(config.http, lambda name, why: refusal(config, f"http.{name}", why))
    node.reloader.add("the certificate for metrics", tls)
    return tls


def _greeting(node: Node) -> str:
    """One line: where the node listens, where its journal is, and what to try next."""
    config = node.config
    count = node.journal.status().events
    held = f" ({events(count)})" if count else ""
    place = "in memory" if config.journal.kind == "memory" else f"in {config.node.data_dir}{held}"
    address = "" if node.urls[0] == node_url("") else f" --node {node.urls[0]}"
    urls = ", ".join([*node.urls, *(door.url for door in node.doors.values())])
    return f"{node.name} listens on {urls}, journal {place}; try: reknit sub '**'{address}"
