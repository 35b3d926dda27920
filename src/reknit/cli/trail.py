"""`reknit trail`: every attempt to deliver an event, across nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import fail, plain, print_json

if TYPE_CHECKING:
    from reknit.cli.event_search import EventSearch

FOUND_MAX: Final = 20
"""How many events one command follows."""


def trail(
    event: Annotated[str, typer.Argument(metavar="SOURCE:SEQ", help="The event's id.")] = "",
    message_id: Annotated[
        str,
        typer.Option(
            "--message-id", metavar="ID", help="Find events by their message-id, or uProtocol's id."
        ),
    ] = "",
    correlation: Annotated[
        str,
        typer.Option(
            "--correlation", metavar="ID", help="Find events by their correlation-id, or their request's id."
        ),
    ] = "",
    topic: Annotated[
        str, typer.Option("--topic", metavar="PATTERN", help="Find events on these topics only.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Find events from this time on: 15m, 2h or 7d ago, or an ISO time.",
        ),
    ] = "",
    node: NodeUrl = "",
    json: AsJson = False,
) -> None:
    """Show every attempt to deliver an event: its node, path, time and outcome.

    Nodes remember their newest attempts (anycast.trail_attempts_max). Name the node on which the event was published:
    the trail is followed from there to other nodes. With --message-id or --correlation, its journal is searched for
    the event; that reads all of it, so say --since if it is long. Each event is shown with its outcome for every
    durable subscriber.
    """
    from reknit.cli.running import run

    if bool(event) == bool(message_id or correlation):
        fail("name an event: SOURCE:SEQ, --message-id ID or --correlation ID")
    if event:
        source, seq = _parsed(event)
        rows = run(_follow(node, source, seq))
        if json:
            print_json(rows)
        elif not rows:
            typer.echo("the node remembers no attempt to deliver this event")
        else:
            _print(rows)
        return
    from reknit.cli.dead_letters.selection import time_us
    from reknit.cli.event_search import EventSearch
    from reknit.topic import Pattern

    pattern = Pattern(topic) if topic else None
    found = run(_search(node, EventSearch(message_id, correlation, pattern, time_us(since))))
    if json:
        print_json(found)
        return
    for one in found:
        typer.echo(f"{plain(one['topic'])}  {one['event']}")
        for row in one["subscribers"]:
            typer.echo(f"  {plain(row['subscriber'])}: {row['outcome'].replace('_', '-')}")
        if one["attempts"]:
            _print(one["attempts"])
    if not found:
        typer.echo("no event in the node's journal has this id")
    elif len(found) == FOUND_MAX:
        typer.echo(f"these are the first {FOUND_MAX}: --since or --topic finds others")


def _parsed(event: str) -> tuple[str, int]:
    source, _, seq = event.rpartition(":")
    is_hex = len(source) == 32 and set(source) <= set("0123456789abcdef")
    if not (is_hex and seq.isascii() and seq.isdigit()):
        fail(f"invalid event id {event!r}: write SOURCE:SEQ, where SOURCE is 32 hexadecimal digits")
    return source, int(seq)


def _print(rows: list[dict[str, Any]]) -> None:
    from reknit.cli.tables import cell, console, table

    made = table(("time", "node", "path", "outcome"), ("ms",), ("text",))
    for row in rows:
        made.add_row(*map(cell, _cells(row)))
    console().print(made)


def _cells(row: dict[str, Any]) -> list[str]:
    from reknit.cli.events.event_output import iso

    took = f"{(row['ended_us'] - row['sent_us']) / 1000:.1f}" if row["ended_us"] else "-"
    return [iso(row["sent_us"]), row["node"], row["path"], row["outcome"] or "in flight", took, row["text"]]


async def _search(url: str, wanted: EventSearch) -> list[dict[str, Any]]:
    """The events that match, each with its outcomes for subscribers and its attempts."""
    from reknit.cli.event_search import find_events
    from reknit.cli.running import connected

    found = []
    async with connected(url) as session:
        for event in await find_events(session, wanted, FOUND_MAX):
            source = event.source.hex()
            fate = await session.ask("fate", topic=event.batch.topic, source=source, seq=event.seq)
            found.append({"topic": event.topic, "event": event.id, "subscribers": fate})
    for row in found:
        source, seq = _parsed(row["event"])
        row["attempts"] = await _follow(url, source, seq)
    return found


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
