"""`reknit route`: what a node passes on from one authority to another."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reknit.cli.options import AsJson, NodeUrl

app = typer.Typer(help="Pass events on from one node to another, for good.", no_args_is_help=True)
In = Annotated[str, typer.Argument(metavar="IN", help="Where from: here, or tcp://HOST:PORT.")]
Out = Annotated[str, typer.Argument(metavar="OUT", help="Where to: here, or tcp://HOST:PORT.")]
PatternOf = Annotated[str, typer.Option("--pattern", help="The topics that are passed on.")]


@app.command()
def add(source: In, target: Out, pattern: PatternOf = "**", node: NodeUrl = "") -> None:
    """Pass on what is published from now on, and what one end misses while it is away."""
    _ask("route_add", source, target, pattern, node)


@app.command()
def delete(source: In, target: Out, pattern: PatternOf = "**", node: NodeUrl = "") -> None:
    """Pass on no more, and keep nothing for it."""
    _ask("route_delete", source, target, pattern, node)


@app.command("list")
def list_(node: NodeUrl = "", json: AsJson = False) -> None:
    """The routes of a node, and how they are."""
    from rich.console import Console

    from reknit.cli.output import cell, print_json, table
    from reknit.cli.running import asked, run

    rows: list[dict[str, Any]] = run(asked(node, "routes"))
    if json:
        print_json(rows)
        return
    made = table(("in", "out", "pattern"), ("events", "waiting_bytes"), ("problem",))
    for row in rows:
        made.add_row(
            *(cell(str(row[name])) for name in ("in", "out", "pattern", "events", "waiting_bytes", "problem"))
        )
    Console().print(made)


def _ask(what: str, source: str, target: str, pattern: str, node: str) -> None:
    from reknit.cli.running import asked, run

    run(asked(node, what, **{"in": source, "out": target, "pattern": pattern}))
