"""The command `reknit pub`: publish one event, many, or one per line of stdin."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from reknit.cli.options import AsForm, AsJson, NodeUrl, complete_topics
from reknit.cli.output import log_to_stderr, say

Topic = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="The topic to publish on, such as plant/line1/temp.",
        autocompletion=complete_topics,
    ),
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
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="A header of each event; may be repeated."),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY", help="The key of each event: on a topic ordered by key, only equal keys wait."
    ),
]
Priority = Annotated[
    int, typer.Option(min=0, max=6, metavar="N", help="From 0 (bulk) to 6; events of a higher one overtake.")
]
At = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="Publish at this time, such as 2030-01-31T08:00+01:00; here without a zone."
    ),
]
Delay = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="Publish so much later. See `reknit scheduled`."),
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
    header: Headers = None,
    key: Key = None,
    priority: Priority = 1,
    at: At = "",
    delay: Delay = None,
    name: Name = "",
    form: AsForm = None,
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Publish events, and return when they are stored.

    Without PAYLOAD, every line of stdin is an event. A CloudEvent names its own topic, so it needs no TOPIC.
    """
    from reknit.cli.events.payload_input import copies, lines, paced
    from reknit.cli.events.publish import publish
    from reknit.client.publish.event_fields import EventFields

    if (topic is None) != (form is not None):
        raise typer.BadParameter("give a TOPIC, or --format cloudevents and no TOPIC")
    if form is not None and (header or key or priority != 1):
        raise typer.BadParameter(
            "a CloudEvent has its own attributes: leave --header, --key and --priority away"
        )
    due_us = _due_us(at, delay)
    if form is not None and due_us is not None:
        raise typer.BadParameter("a CloudEvent is published at once: leave --at and --delay away")
    fields = EventFields(key, _parsed(header), None, due_us)
    log_to_stderr("info")
    if payload is None and sys.stdin.isatty():
        say("every line is an event; press Ctrl-D to end")
    source = lines(sys.stdin.fileno(), count) if payload is None else copies(payload.encode(), count or 1)
    publish(
        paced(source, rate),
        topic=topic,
        node=node,
        name=name,
        ttl_ms=ttl,
        priority=priority,
        fields=fields,
        as_json=json,
    )


def _due_us(at: str, delay: float | None) -> int | None:
    """When the events are to be published; None: now."""
    from datetime import datetime

    from reknit import environment
    from reknit.client.publish.scheduling import due_us
    from reknit.errors import LocalError

    if not at and delay is None:
        return None
    try:
        when = datetime.fromisoformat(at).astimezone() if at else None
    except ValueError:
        raise typer.BadParameter(f"{at!r} is no time; write 2030-01-31T08:00+01:00") from None
    try:
        return due_us(when, delay, environment.time_us())
    except LocalError as error:
        raise typer.BadParameter(str(error)) from None


def _parsed(headers: list[str] | None) -> dict[str, str] | None:
    """The headers of `--header NAME=VALUE`.

    >>> _parsed(["trace=a=b"])
    {'trace': 'a=b'}
    """
    if not headers:
        return None
    parsed: dict[str, str] = {}
    for one in headers:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{one!r} is no header; write NAME=VALUE")
        parsed[name] = value
    return parsed
