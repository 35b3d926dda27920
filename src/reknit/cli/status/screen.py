"""Shows a node's status as tables, once or refreshed."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reknit.cli.output import duration, size
from reknit.cli.running import connected
from reknit.cli.tables import cell, console, table
from reknit.errors import NotConnected, TlsFailed

INTERVAL_S = 1.0
TOPICS_SHOWN_MAX = 30
SILENT_S = 30.0
"""A pipeline reports every few seconds. After this long without a report it is shown as silent."""


def print_status(body: dict[str, Any]) -> None:
    """Print a node's status."""
    console().print(screen(body))


async def watch_status(node: str) -> None:
    """Show a node's status, refreshed until cancelled."""
    async with connected(node) as session:
        with Live(console=console(), screen=True, auto_refresh=False) as live:
            while True:
                try:
                    live.update(screen(await session.status()), refresh=True)
                except NotConnected as error:
                    live.update(Text(_away(error), style="red"), refresh=True)
                await asyncio.sleep(INTERVAL_S)


def _away(error: NotConnected) -> str:
    return str(error) if isinstance(error, TlsFailed) else f"no node at {error.url}: waiting for one"


def screen(body: dict[str, Any]) -> RenderableType:
    """A node's status as tables."""
    parts: list[RenderableType] = [_head(body), Text(), _topics(body["topics"])]
    if body["subscribers"]:
        parts += [Text(), _subscribers(body["subscribers"])]
    else:
        parts += [Text(), Text("no subscribers", style="dim")]
    if body.get("pipelines"):
        parts += [Text(), _pipelines(body["pipelines"])]
    return Group(*parts)


def _head(body: dict[str, Any]) -> RenderableType:
    journal, intake = body["journal"], body["intake"]
    rate = sum(row["rate"] for row in body["topics"])
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    listens = ", ".join(body["listen"])
    grid.add_row("node", f"[bold]{cell(body['node'])}[/] on {listens}, version {body['version']}")
    grid.add_row("up", f"{duration(body['uptime_s'])}, {len(body['peers'])} connections")
    grid.add_row("uses", f"{size(body['rss_bytes'])} of memory, {body['cpu_s']:.1f} s of CPU")
    place = body["data_dir"] or "memory"
    grid.add_row("journal", f"{journal['events']:,} events, {size(journal['bytes'])} in {place}")
    grid.add_row("intake", f"{rate:,.0f} events/s, {intake['duplicates']:,} duplicates dropped")
    if body.get("http"):
        grid.add_row("http", _http(body["http"]))
    if body.get("amqp"):
        grid.add_row("amqp", _amqp(body["amqp"]))
    if waiting := {name: row["waits"] for name, row in body.get("quotas", {}).items() if row.get("waits")}:
        grid.add_row(
            "quotas", ", ".join(f"{cell(name)} waited {waits:,} times" for name, waits in waiting.items())
        )
    for name, why in body.get("dead_letters", {}).get("stopped", {}).items():
        grid.add_row("[red]stopped[/]", f"[red]publishers of {cell(name)} wait: {cell(why)}[/]")
    if journal.get("problem"):
        text = f"{cell(journal['problem'])}: publishers wait until the node is restarted"
        grid.add_row("[red]broken[/]", f"[red]{text}[/]")
    elif intake["is_full"]:
        grid.add_row("[red]full[/]", f"[red]publishers wait: {cell(intake['why'])}[/]")
    return grid


def _http(http: dict[str, Any]) -> str:
    states = ("live", "behind", "blocked")
    tunnels = ", ".join(f"{http[f'tunnels_{state}']:,} {state}" for state in states)
    room = f"room for {http['tunnels_max']:,}"
    return f"{http['url']}, {http['connections']:,} connections, tunnels: {tunnels}, {room}"


def _amqp(amqp: dict[str, Any]) -> str:
    numbers = [
        [amqp[f"{what}_{way}"] for what in ("deliveries", "links", "unsettled")] for way in ("in", "out")
    ]
    form = "{:,} over {:,} links, {:,} unsettled"
    ways = f"in: {form.format(*numbers[0])}; out: {form.format(*numbers[1])}"
    return f"{amqp['url']}, {amqp['connections']:,} connections, messages {ways}"


def _topics(rows: list[dict[str, Any]]) -> RenderableType:
    if not rows:
        return Text("no events yet; try: reknit pub plant/line1/temp 21.5", style="dim")
    made = table(("topic",), ("events", "per second", "sources", "gaps"))
    rows = sorted(rows, key=lambda row: (-row["rate"], row["topic"]))
    for row in rows[:TOPICS_SHOWN_MAX]:
        gaps = f"[red]{row['gaps']:,}[/]" if row["gaps"] else "0"
        made.add_row(
            cell(row["topic"], 60), f"{row['events']:,}", f"{row['rate']:,.0f}", f"{row['sources']:,}", gaps
        )
    if len(rows) > TOPICS_SHOWN_MAX:
        made.add_row(f"[dim]and {len(rows) - TOPICS_SHOWN_MAX:,} more; --json shows all[/]")
    return made


def _subscribers(rows: list[dict[str, Any]]) -> Table:
    made = table(("subscriber", "pattern", "state"), ("owed", "unsettled"), ("peer",))
    colours = {"live": "green", "behind": "yellow", "away": "red"}
    for row in rows:
        colour = colours.get(row["state"], "default")
        made.add_row(
            cell(row["name"], 40) or "[dim]-[/]",
            cell(row["pattern"], 40),
            f"[{colour}]{row['state']}[/]",
            _owed(row),
            f"{row['unsettled']:,}",
            cell(row["peer"], 60),
        )
    return made


def _owed(row: dict[str, Any]) -> str:
    """How many events a subscriber has still to get or to settle; how far it is behind where counting takes long."""
    owed = row.get("owed")
    return f"≤ {size(row['waiting_bytes'])}" if owed is None else f"{owed:,}"


def _pipelines(rows: list[dict[str, Any]]) -> Table:
    numbers = ("behind", "events/s", "settled", "lost", "dead letters")
    made = table(("pipeline into", "state"), numbers, ("away",))
    for row in rows:
        is_silent = row["age_s"] > SILENT_S and row["stage"] not in ("done", "stopped")
        state = f"[red]silent for {duration(row['age_s'])}[/]" if is_silent else cell(row["stage"], 40)
        lost = f"[red]{row['lost']:,}[/]" if row["lost"] else "0"
        made.add_row(
            cell(row["lake"], 60),
            state,
            size(row["lag_bytes"]),
            f"{row['events_s']:,.0f}",
            f"{row['settled']:,}",
            lost,
            f"{row['dead_letters']:,}",
            cell("; ".join(row["away"]), 120),
        )
    return made
