"""`reknit scheduled`: events that are to be published later."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import events, fail, log_to_stderr, print_json

app = typer.Typer(help="List and cancel events that are to be published later.", no_args_is_help=True)

Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]…", help="The ids of the events, as `list` prints them.")
]


@app.command("list")
def list_(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="The topics.  [default: **]")] = "**",
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """List events that wait for the time at which they are published. Publish some with `reknit pub --delay`."""
    from reknit.cli.running import run

    log_to_stderr()
    rows = run(_listed(node, pattern))
    if json:
        print_json(rows)
    elif not rows:
        typer.echo("nothing is scheduled; try: reknit pub --delay 60 TOPIC PAYLOAD")
    else:
        from reknit.cli.tables import cell, console, table

        made = table(("at", "topic", "id"), ())
        for row in rows:
            made.add_row(*map(cell, (row["at"], row["topic"], row["id"])))
        console().print(made)


@app.command()
def cancel(
    ids: Ids = None,
    topics: Annotated[
        str, typer.Option("--topics", metavar="PATTERN", help="Only events for these topics.")
    ] = "",
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Cancel events that are to be published later: by id, or all for the topics that match --topics.

    Exits with 1 if an event was published or cancelled before.
    """
    from reknit.cli.running import run

    log_to_stderr()
    if not ids and not topics:
        fail("name what to cancel: ids, or --topics PATTERN")
    cancelled = run(_cancelled(node, topics or "**", ids or None))
    if json:
        print_json({"cancelled": cancelled})
    else:
        typer.echo(f"{events(len(cancelled))} cancelled")
    missing = [one for one in ids or () if one not in cancelled]
    if missing:
        fail(f"published or cancelled before, or never scheduled here: {', '.join(missing)}")


async def _listed(url: str, pattern: str) -> list[dict[str, Any]]:
    from reknit.cli.running import connected

    async with connected(url) as session:
        found = await session.scheduled(pattern)
    return [{"id": one.id, "topic": one.topic, "at": one.at.isoformat()} for one in found]


async def _cancelled(url: str, pattern: str, ids: list[str] | None) -> list[str]:
    from reknit.cli.running import connected

    async with connected(url) as session:
        return await session.cancel_scheduled(pattern, ids)
