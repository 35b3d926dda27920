"""`reknit owners`: who owns which source and which durable subscriber."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reknit.cli.options import AsJson, NodeUrl, complete_subscribers
from reknit.cli.output import fail, log_to_stderr, plain, print_json

app = typer.Typer(help="Show and change who owns sources and durable subscribers.", no_args_is_help=True)


@app.command("list")
def list_(json: AsJson = False, node: NodeUrl = "") -> None:
    """List the owners. Only the owner may publish as a source, or use the name of a durable subscriber."""
    from reknit.cli.running import run

    log_to_stderr()
    rows = run(_all(node))
    if json:
        print_json(rows)
    elif not rows["sources"] and not rows["subscribers"]:
        typer.echo("nothing has an owner: a node records owners where there are rules (security.allow)")
    else:
        from reknit.cli.tables import cell, console, table

        made = table(("owner", "owns", "topics"), ())
        for row in rows["subscribers"]:
            made.add_row(*map(cell, (row["owner"], f"subscriber {row['subscriber']}", row["pattern"])))
        for row in rows["sources"]:
            made.add_row(*map(cell, (row["owner"], f"source {row['source']}", row["topic"])))
        console().print(made)


@app.command()
def give(
    owner: Annotated[str, typer.Argument(metavar="NAME", help="The new owner; '' for nobody.")],
    source: Annotated[str, typer.Option("--source", metavar="HEX", help="The source to give.")] = "",
    subscriber: Annotated[
        str,
        typer.Option(
            "--subscriber",
            metavar="SUBSCRIBER",
            help="The durable subscriber to give.",
            autocompletion=complete_subscribers,
        ),
    ] = "",
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Give a source or a durable subscriber to another identity.

    A subscriber that is connected stays connected until it leaves.
    """
    from reknit.cli.running import asked, run

    log_to_stderr()
    if bool(source) == bool(subscriber):
        fail("name what to give: either --source or --subscriber")
    what = {"source": source} if source else {"subscriber": subscriber}
    body = run(asked(node, "own", owner=owner, **what))
    if json:
        print_json(body)
    else:
        typer.echo(f"{source or plain(subscriber)} belongs to {plain(owner) or 'nobody'}")


async def _all(url: str) -> dict[str, list[dict[str, Any]]]:
    from reknit.cli.running import connected

    async with connected(url) as session:
        rows: dict[str, list[dict[str, Any]]] = await session.ask("owners")
        page = rows["sources"]
        while page:
            page = (await session.ask("owners", after=page[-1]["source"]))["sources"]
            rows["sources"] += page
        return rows
