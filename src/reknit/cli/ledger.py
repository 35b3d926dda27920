"""`reknit ledger`: the outcome of every event."""

from __future__ import annotations

from typing import Any

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import FAILED, log_to_stderr, print_json

COLUMNS = ("published", "accepted", "dead_lettered", "lost", "in_flight")


def ledger(json: AsJson = False, node: NodeUrl = "") -> None:
    """Show the outcome of every event, and whether the ledger balances.

    It balances if published = accepted + dead-lettered + lost + in flight, for every durable subscriber and topic. The
    exit code is 1 if it does not.
    """
    from reknit.cli.running import asked, run

    log_to_stderr()
    rows: list[dict[str, Any]] = run(asked(node, "ledger"))
    if json:
        print_json(rows)
    else:
        print_ledger(rows)
    if not all(row["balanced"] for row in rows):
        raise typer.Exit(FAILED)


def print_ledger(rows: list[dict[str, Any]]) -> None:
    """Print the ledger as a table, with the problems that were found."""
    from rich.console import Console

    from reknit.cli.tables import cell, table

    console = Console(highlight=False)
    if not rows:
        console.print("no durable subscriber has been owed an event yet; try: reknit sub '**' --name audit")
        return
    made = table(("subscriber", "topic"), ("published", "accepted", "dead", "lost", "in flight"), ("",))
    for row in rows:
        verdict = "[green]ok[/]" if row["balanced"] else "[red]WRONG[/]"
        counts = (f"{row[column]:,}" for column in COLUMNS)
        made.add_row(cell(row["subscriber"]), cell(row["topic"]), *counts, verdict)
    console.print(made)
    for row in rows:
        for problem in row["problems"]:
            console.print(f"[red]{cell(row['subscriber'])} on {cell(row['topic'])}: {cell(problem)}[/]")
    if all(row["balanced"] for row in rows):
        console.print("[dim]balanced: published = accepted + dead-lettered + lost + in flight[/]")
    else:
        console.print("[red]the ledger does not balance[/]")
