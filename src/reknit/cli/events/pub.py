"""The command `reknit pub`: publish one event, many, or one per line of stdin."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from reknit.cli.options import AsForm, NodeUrl
from reknit.cli.output import log_to_stderr, say

Topic = Annotated[
    str | None, typer.Argument(metavar="TOPIC", help="The topic to publish on, such as plant/line1/temp.")
]
Payload = Annotated[
    str | None,
    typer.Argument(metavar="PAYLOAD", help="The event's payload.  [default: stdin, one event per line]"),
]
Count = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Publish the payload N times, or at most N lines if stdin is read."
    ),
]
Rate = Annotated[float | None, typer.Option(min=0.001, metavar="N", help="At most N events per second.")]
Ttl = Annotated[
    int,
    typer.Option(
        min=0, metavar="MS", help="Dead-letter an event that is not delivered within this time; 0: never."
    ),
]
Name = Annotated[
    str,
    typer.Option(metavar="NAME", help="Publish under a name: a later run continues its numbering."),
]


def pub(
    topic: Topic = None,
    payload: Payload = None,
    count: Count = None,
    rate: Rate = None,
    ttl: Ttl = 0,
    name: Name = "",
    form: AsForm = None,
    node: NodeUrl = "",
) -> None:
    """Publish events, and return when they are stored.

    Without PAYLOAD, every line of stdin is an event. A CloudEvent names its own topic, so it needs no TOPIC.
    """
    from reknit.cli.events.payload_input import copies, lines, paced
    from reknit.cli.events.publish import publish

    if (topic is None) != (form is not None):
        raise typer.BadParameter("give a TOPIC, or --format cloudevents and no TOPIC")
    log_to_stderr("info")
    if payload is None and sys.stdin.isatty():
        say("every line is an event; press Ctrl-D to end")
    source = lines(sys.stdin.fileno(), count) if payload is None else copies(payload.encode(), count or 1)
    publish(paced(source, rate), topic=topic, node=node, name=name, ttl_ms=ttl)
