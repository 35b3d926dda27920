"""`reknit trail`: every attempt to deliver one event, across nodes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import fail, print_json


def trail(
    event: Annotated[str, typer.Argument(metavar="SOURCE:SEQ", help="The event's id.")],
    node: NodeUrl = "",
    json: AsJson = False,
) -> None:
    """Show every attempt to deliver an event: its node, path, time and outcome.

    Nodes remember their newest attempts (anycast.trail_attempts_max). Name the node on which the event was published:
    the trail is followed from there to other nodes.
    """
    from reknit.cli.running import run

    source, _, seq = event.rpartition(":")
    if (
        len(source) != 32
        or not (seq.isascii() and seq.isdigit())
        or not set(source) <= set("0123456789abcdef")
    ):
        fail(f"invalid event id {event!r}: write SOURCE:SEQ, where SOURCE is 32 hexadecimal digits")
    rows = run(_follow(node, source, int(seq)))
    if json:
        print_json(rows)
    elif not rows:
        typer.echo("the node remembers no attempt to deliver this event")
    else:
        from reknit.cli.tables import cell, console, table

        made = table(("time", "node", "path", "outcome"), ("ms",), ("text",))
        for row in rows:
            made.add_row(*map(cell, _cells(row)))
        console().print(made)


def _cells(row: dict[str, Any]) -> list[str]:
    from reknit.cli.events.event_output import iso

    took = f"{(row['ended_us'] - row['sent_us']) / 1000:.1f}" if row["ended_us"] else "-"
    return [iso(row["sent_us"]), row["node"], row["path"], row["outcome"] or "in flight", took, row["text"]]


async def _follow(url: str, source: str, seq: int) -> list[dict[str, Any]]:
    """The attempts on every node of the trail, by time. A node that does not respond gets a row with the error."""
    from reknit.cli.running import asked
    from reknit.errors import ReknitError

    rows: list[dict[str, Any]] = []
    waiting, seen = [("", url)], set[str]()
    while waiting:
        name, at = waiting.pop(0)
        try:
            answer = await asked(at, "trail", source=source, seq=seq)
        except ReknitError as error:
            if not name:
                raise
            rows.append(
                {"node": name, "path": "", "is_node": False, "topic": "", "sent_us": 0, "ended_us": 0}
                | {"outcome": "UNKNOWN", "text": str(error)}
            )
            continue
        seen.add(answer["node"])
        rows += answer["attempts"]
        waiting += [(other, at) for other, at in answer["urls"].items() if other not in seen and at]
        seen.update(answer["urls"])
    return sorted(rows, key=lambda row: row["sent_us"])
