"""`reknit pub`: publish one event, many, or a line an event from stdin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.options import AsForm, NodeUrl
from reknit.cli.output import Progress, events, log_to_stderr, say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def pub(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Where to, for instance plant/line1/temp.")
    ] = None,
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="The event.  [default: stdin, a line an event]")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Publish the payload so often; of stdin, so many lines at most."
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="At most so many events a second.")
    ] = None,
    ttl: Annotated[int, typer.Option(min=0, metavar="MS", help="Dead-letter it after that; 0: never.")] = 0,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Publish under a name: its seqs go on in a later run.")
    ] = "",
    form: AsForm = None,
    node: NodeUrl = "",
) -> None:
    """Publish events, and return when they are kept.

    Without PAYLOAD every line of stdin is an event. A CloudEvent says itself where to, and needs no TOPIC.
    """
    from reknit.cli.payload_input import copies, lines, paced
    from reknit.cli.running import run

    if (topic is None) != (form is not None):
        raise typer.BadParameter("give a TOPIC, or --format cloudevents and no TOPIC")
    log_to_stderr("info")
    if payload is None and sys.stdin.isatty():
        say("every line is an event; Ctrl-D ends")
    source = lines(sys.stdin.fileno(), count) if payload is None else copies(payload.encode(), count or 1)
    tally = Tally(topic or "their topics")
    feed = paced(source, rate)
    try:
        if topic is None:
            run(_publish_events(node, name, feed, tally))
        else:
            run(_publish(node, name, topic, ttl, feed, tally))
    except typer.Exit:
        rest = tally.sent - tally.kept
        say(f"interrupted: {tally}" + (f"; {events(rest)} may be kept too" if rest else ""))
        raise
    typer.echo(tally)


class Tally:
    """How many events were sent, and how many of them are known to be kept."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.sent = self.kept = 0

    def __str__(self) -> str:
        return f"{events(self.kept)} kept on {self.topic}"


async def _publish(
    node: str, name: str, topic: str, ttl_ms: int, source: AsyncIterator[list[bytes]], tally: Tally
) -> None:
    from reknit.cli.running import connected

    async with connected(node, name) as session:
        publisher = session.publisher(topic, ttl_ms=ttl_ms)
        try:
            with Progress() as progress:
                async for payloads in source:
                    for payload in payloads:
                        tally.sent += 1
                        await publisher.send(payload)
                    progress.show(tally.sent - publisher.unkept)
        finally:
            try:
                await publisher.flush()
            finally:
                tally.kept = tally.sent - publisher.unkept


async def _publish_events(node: str, name: str, source: AsyncIterator[list[bytes]], tally: Tally) -> None:
    """Every payload is a CloudEvent. Raises at the first that is none; those before it are kept."""
    import asyncio

    from reknit.cli.running import connected
    from reknit.envelope.cloudevents import from_json

    async with connected(node, name) as session:
        async for payloads in source:
            kept = []
            try:
                for payload in payloads:
                    kept.append(session.publish_event(*from_json(payload)))
                    tally.sent += 1
            finally:
                await asyncio.gather(*kept)
                tally.kept = tally.sent
