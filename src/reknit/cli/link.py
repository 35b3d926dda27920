"""`reknit link`: the links between a running node and others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import print_json

app = typer.Typer(help="Link nodes into one fabric.", no_args_is_help=True)
To = Annotated[str, typer.Argument(metavar="URL[=COST]", help="The other node, as tcp://HOST:PORT.")]


@app.command()
def add(to: To, json: AsJson = False, node: NodeUrl = "") -> None:
    """Link a running node to another one. The link is restored after a restart."""
    from reknit.cli.running import asked, node_url, run

    rows = run(asked(node, "link_add", to=node_url(to)))
    if json:
        print_json(rows)


@app.command()
def remove(to: To, json: AsJson = False, node: NodeUrl = "") -> None:
    """Remove a link that the node opened."""
    from reknit.cli.running import asked, node_url, run

    rows = run(asked(node, "link_remove", to=node_url(to)))
    if json:
        print_json(rows)


@app.command("list")
def list_(node: NodeUrl = "", json: AsJson = False) -> None:
    """List the nodes that a node knows, and how it reaches them."""
    from reknit.cli.running import asked, run
    from reknit.cli.tables import print_rows

    rows: list[dict[str, Any]] = run(asked(node, "links"))
    if json:
        print_json(rows)
    else:
        numbers = ("cost", "subscriptions", "unsettled", "sent", "received")
        print_rows(rows, ("node", "state", "via"), numbers, ("url", "problem"), shown=_shown)


def _shown(value: object) -> str:
    return "-" if value in (None, "") else str(value)
