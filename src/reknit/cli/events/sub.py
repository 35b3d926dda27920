"""The command `reknit sub`: print events as they arrive."""

from __future__ import annotations

from typing import Annotated

import typer

from reknit.cli.options import AsForm, NodeUrl, complete_topics
from reknit.cli.output import log_to_stderr
from reknit.queue_order import QueueOrder

PatternArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN",
        help="The topics to print: `*` matches one segment, `**` any number of them.",
        autocompletion=complete_topics,
    ),
]
History = Annotated[bool, typer.Option("--history", help="Begin with all events that the node holds.")]
From = Annotated[str | None, typer.Option("--from", metavar="CHECKPOINT", help="Resume after a checkpoint.")]
Name = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Subscribe durably: the node retains the events that this name has not received yet.",
    ),
]
QueueOption = Annotated[
    str,
    typer.Option(
        "--queue",
        metavar="NAME",
        help="Share the events with all others that subscribe by this queue: each event goes to one of them. Durable.",
    ),
]
OrderOption = Annotated[
    QueueOrder,
    typer.Option(
        "--order",
        metavar="key|source",
        help="What the queue keeps in order: key, or source. All members say the same.",
    ),
]
Count = Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N events.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")]
AsRawLines = Annotated[bool, typer.Option("--raw", help="Print only payloads, one per line.")]


def sub(
    pattern: PatternArgument,
    history: History = False,
    from_: From = None,
    name: Name = "",
    queue: QueueOption = "",
    order: OrderOption = "",
    count: Count = None,
    json: AsJsonLines = False,
    raw: AsRawLines = False,
    form: AsForm = None,
    node: NodeUrl = "",
) -> None:
    """Print events as they arrive, until Ctrl-C.

    At the end it prints on stderr how to resume: from a checkpoint, or under its name or queue.
    """
    from reknit.cli.events.event_output import printer_for
    from reknit.cli.events.receive import receive

    if json + raw + (form is not None) > 1:
        raise typer.BadParameter("use only one of --json, --raw and --format")
    if name and queue:
        raise typer.BadParameter("use only one of --name and --queue")
    log_to_stderr("info")
    printer = printer_for(is_json=json, is_raw=raw, is_cloudevent=form is not None)
    receive(
        pattern,
        printer,
        node=node,
        name=name,
        queue=queue,
        order=order,
        history=history,
        checkpoint=from_,
        count=count,
    )
