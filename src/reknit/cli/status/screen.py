"""Shows a node's status as tables, once or refreshed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reknit.cli import running
from reknit.cli.output import duration, size
from reknit.cli.tables import cell, console, table
from reknit.errors import NotConnected, Refused, TlsFailed

INTERVAL_S = 1.0
NARROW = 64
"""A terminal with fewer columns gets tables with the most important columns."""
STYLES = {"good": "bold green", "lost": "bold red"}
TOPICS_SHOWN_MAX = 30
SILENT_S = 30.0
"""A pipeline reports every few seconds. After this long without a report it is shown as silent."""


async def look(node: str) -> dict[str, Any]:
    """A node's status, with the sums of its ledger."""
    return await _ask(partial(running.asked, node))


async def _ask(ask: Callable[..., Awaitable[Any]]) -> dict[str, Any]:
    body: dict[str, Any] = await ask("status")
    try:
        return {**body, "ledger": await ask("ledger_page", limit=0)}
    except Refused:  # a node of an older version
        return body


def print_status(body: dict[str, Any]) -> None:
    """Print a node's status."""
    terminal = console()
    terminal.print(screen(body, terminal.width))


async def watch_status(node: str) -> None:
    """Show a node's status, refreshed until cancelled."""
    terminal = console()
    async with running.connected(node) as session:
        with Live(console=terminal, screen=True, auto_refresh=False) as live:
            while True:
                try:
                    live.update(screen(await _ask(session.ask), terminal.width), refresh=True)
                except NotConnected as error:
                    live.update(Text(_away(error), style="red"), refresh=True)
                await asyncio.sleep(INTERVAL_S)


def _away(error: NotConnected) -> str:
    return str(error) if isinstance(error, TlsFailed) else f"no node at {error.url}: waiting for one"


def screen(body: dict[str, Any], width: int = 80) -> RenderableType:
    """A node's status as tables. On a narrow terminal they have fewer columns."""
    is_narrow = width < NARROW
    parts: list[RenderableType] = [*_verdict(body.get("ledger")), _head(body), Text()]
    parts.append(_topics(body["topics"], is_narrow))
    if body["subscribers"]:
        parts += [Text(), _subscribers(body["subscribers"], is_narrow)]
    else:
        parts += [Text(), Text("no subscribers", style="dim")]
    if body.get("pipelines"):
        parts += [Text(), _pipelines(body["pipelines"], is_narrow)]
    return Group(*parts)


def _verdict(ledger: dict[str, Any] | None) -> list[RenderableType]:
    """The ledger in a sentence, and the numbers behind it."""
    if ledger is None:
        return []
    totals, style = ledger["totals"], STYLES.get(ledger["mood"], "bold")
    columns = ("published", "accepted", "dead_lettered", "lost", "in_flight")
    numbers = Text()
    for number, name in enumerate(columns if totals["published"] else ()):
        colour = "red" if name == "lost" and totals[name] else "dim"
        numbers.append(", " if number else "", "dim")
        # a space that does not break keeps a number and its name in one line
        numbers.append(f"{totals[name]:,}\u00a0{name.replace('_', chr(0xA0))}", colour)
    return [Text(ledger["sentence"], style=style), *([numbers] if numbers else []), Text()]


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


def _topics(rows: list[dict[str, Any]], is_narrow: bool) -> RenderableType:
    if not rows:
        return Text("no events yet; try: reknit pub plant/line1/temp 21.5", style="dim")
    made = table(
        ("topic",), ("events", "per second") if is_narrow else ("events", "per second", "sources", "gaps")
    )
    rows = sorted(rows, key=lambda row: (-row["rate"], row["topic"]))
    for row in rows[:TOPICS_SHOWN_MAX]:
        gaps = f"[red]{row['gaps']:,}[/]" if row["gaps"] else "0"
        more = () if is_narrow else (f"{row['sources']:,}", gaps)
        made.add_row(cell(row["topic"], 60), f"{row['events']:,}", f"{row['rate']:,.0f}", *more)
    if len(rows) > TOPICS_SHOWN_MAX:
        made.add_row(f"[dim]and {len(rows) - TOPICS_SHOWN_MAX:,} more; --json shows all[/]")
    return made


def _subscribers(rows: list[dict[str, Any]], is_narrow: bool) -> Table:
    if is_narrow:
        made = table(("subscriber", "state"), ("owed",))
    else:
        made = table(("subscriber", "pattern", "state"), ("owed", "unsettled"), ("peer",))
    colours = {"live": "green", "behind": "yellow", "away": "red"}
    for row in rows:
        colour = colours.get(row["state"], "default")
        name, state = cell(row["name"], 40) or "[dim]-[/]", f"[{colour}]{row['state']}[/]"
        if is_narrow:
            made.add_row(name, state, _owed(row))
            continue
        made.add_row(
            name,
            cell(row["pattern"], 40),
            state,
            _owed(row),
            f"{row['unsettled']:,}",
            cell(row["peer"], 60),
        )
    return made


def _owed(row: dict[str, Any]) -> str:
    """How many events a subscriber has still to get or to settle; how far it is behind where counting takes long."""
    owed = row.get("owed")
    return f"≤ {size(row['waiting_bytes'])}" if owed is None else f"{owed:,}"


def _pipelines(rows: list[dict[str, Any]], is_narrow: bool) -> Table:
    numbers = ("behind", "events/s", "settled", "lost", "dead letters")
    if is_narrow:
        made = table(("pipeline into", "state"), ("lost",))
    else:
        made = table(("pipeline into", "state"), numbers, ("away",))
    for row in rows:
        is_silent = row["age_s"] > SILENT_S and row["stage"] not in ("done", "stopped")
        state = f"[red]silent for {duration(row['age_s'])}[/]" if is_silent else cell(row["stage"], 40)
        lost = f"[red]{row['lost']:,}[/]" if row["lost"] else "0"
        if is_narrow:
            made.add_row(cell(row["lake"], 60), state, lost)
            continue
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
