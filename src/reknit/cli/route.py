"""`reknit route`: one-way copies of events from one node to another."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import print_json

app = typer.Typer(help="Copy events from one node to another, continuously.", no_args_is_help=True)
In = Annotated[str, typer.Argument(metavar="IN", help="The source of the events: here, or tcp://HOST:PORT.")]
Out = Annotated[str, typer.Argument(metavar="OUT", help="Their destination: here, or tcp://HOST:PORT.")]
PatternOf = Annotated[str, typer.Option("--pattern", help="The topics to copy.")]


@app.command()
def add(source: In, target: Out, pattern: PatternOf = "**", json: AsJson = False, node: NodeUrl = "") -> None:
    """Copy events that are published from now on. After an interruption the route resumes where it left off."""
    _ask("route_add", source, target, pattern, node, json)


@app.command()
def delete(
    source: In, target: Out, pattern: PatternOf = "**", json: AsJson = False, node: NodeUrl = ""
) -> None:
    """Stop copying, and retain nothing for the route."""
    _ask("route_delete", source, target, pattern, node, json)


@app.command("list")
def list_(node: NodeUrl = "", json: AsJson = False) -> None:
    """List the routes of a node, with their state."""
    from reknit.cli.running import asked, run
    from reknit.cli.tables import print_rows

    rows: list[dict[str, Any]] = run(asked(node, "routes"))
    if json:
        print_json(rows)
    else:
        print_rows(rows, ("in", "out", "pattern"), ("events", "waiting_bytes"), ("problem",))


def _ask(what: str, source: str, target: str, pattern: str, node: str, json: bool) -> None:
    from reknit.cli.running import asked, run

    run(asked(node, what, **{"in": source, "out": target, "pattern": pattern}))
    if json:
        print_json(run(asked(node, "routes")))
