"""`reknit ledger`: the outcome of every event."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reknit.cli.options import AsJson, NodeUrl, complete_topics
from reknit.cli.output import FAILED, NOT_ASKED, explained, fail, log_to_stderr, print_json

COLUMNS = ("published", "accepted", "dead_lettered", "lost", "in_flight")


def ledger(
    topic: Annotated[
        str,
        typer.Option(
            "--topic", metavar="PATTERN", help="Only topics that match.", autocompletion=complete_topics
        ),
    ] = "",
    unbalanced: Annotated[bool, typer.Option("--unbalanced", help="Only rows that do not balance.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Rows to show, those with the most in flight first; 0: all.")
    ] = 100,
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Show the outcome of every event, and whether the ledger balances.

    It balances if published = accepted + dead-lettered + lost + in flight, for every durable subscriber and topic. The
    exit code is 1 if it does not, and 2 if the node could not be asked. With more rows than the limit, those with the
    most in flight are shown, and a line for each subscriber with the sums over all its topics.
    """
    from reknit.cli.running import asked_ledger, run
    from reknit.errors import ReknitError

    log_to_stderr()
    try:
        rows: list[dict[str, Any]] = run(asked_ledger(node, topic, unbalanced))
    except (ReknitError, OSError) as error:
        fail(explained(error), NOT_ASKED)
    if json:
        print_json(rows)
    else:
        print_ledger(rows, limit, unbalanced)
    if not all(row["balanced"] for row in rows):
        raise typer.Exit(FAILED)


def select(rows: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The rows to show: all of them, or those that do not balance and those with the most in flight.

    >>> rows = [{"balanced": True, "in_flight": count} for count in (1, 5, 3)]
    >>> [row["in_flight"] for row in select(rows, 2)]
    [5, 3]
    """
    if not limit or len(rows) <= limit:
        return rows
    return sorted(rows, key=lambda row: (row["balanced"], -row["in_flight"]))[:limit]


def sums(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each subscriber, with the sums over its topics."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        new = {"subscriber": row["subscriber"], "topics": 0, "balanced": True, **dict.fromkeys(COLUMNS, 0)}
        total = found.setdefault(row["subscriber"], new)
        total["topics"] += 1
        total["balanced"] = total["balanced"] and row["balanced"]
        for column in COLUMNS:
            total[column] += row[column]
    for total in found.values():
        total["topic"] = f"({total['topics']:,} topics)"
    return list(found.values())


def print_ledger(rows: list[dict[str, Any]], limit: int = 0, unbalanced: bool = False) -> None:
    """Print the ledger as a table, with the problems that were found."""
    from reknit.cli.tables import cell, console, table

    screen = console()
    if not rows:
        nothing = "no durable subscriber has been owed an event yet; try: reknit sub '**' --name audit"
        screen.print("every row balances" if unbalanced else nothing)
        return
    shown = select(rows, limit)
    made = table(("subscriber", "topic"), ("published", "accepted", "dead", "lost", "in flight"), ("",))
    for row in [*shown, *(sums(rows) if len(shown) < len(rows) else ())]:
        verdict = "[green]ok[/]" if row["balanced"] else "[red]WRONG[/]"
        counts = (f"{row[column]:,}" for column in COLUMNS)
        made.add_row(cell(row["subscriber"]), cell(row["topic"]), *counts, verdict)
    screen.print(made)
    if len(shown) < len(rows):
        screen.print(f"[dim]{len(shown):,} of {len(rows):,} rows; --limit 0 shows all, --json prints all[/]")
    for row in shown:
        for problem in row["problems"]:
            screen.print(f"[red]{cell(row['subscriber'])} on {cell(row['topic'])}: {cell(problem)}[/]")
    if all(row["balanced"] for row in rows):
        screen.print("[dim]balanced: published = accepted + dead-lettered + lost + in flight[/]")
    else:
        screen.print("[red]the ledger does not balance[/]")
