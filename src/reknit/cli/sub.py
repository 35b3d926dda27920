"""`reknit sub`: print events as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.options import AsForm, NodeUrl
from reknit.cli.output import log_to_stderr, say

if TYPE_CHECKING:
    from reknit.checkpoint import Checkpoint
    from reknit.cli.event_output import Printer


def sub(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN", help="What to print: `*` is one segment of a topic, `**` any number."
        ),
    ],
    history: Annotated[
        bool, typer.Option("--history", help="Begin with everything that the node holds.")
    ] = False,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="CHECKPOINT", help="Go on after a checkpoint.")
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Subscribe durably: the node keeps what this name has not had yet."
        ),
    ] = "",
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after so many events.")] = None,
    json: Annotated[bool, typer.Option("--json", help="An event is a line of JSON.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="An event is its payload and a line's end.")] = False,
    form: AsForm = None,
    node: NodeUrl = "",
) -> None:
    """Print events as they come, until Ctrl-C.

    At the end it says, on stderr, how to go on: from a checkpoint, or under its name.
    """
    import sys

    from reknit.checkpoint import Checkpoint
    from reknit.cli.event_output import CloudEventLines, JsonLines, Lines, RawLines
    from reknit.cli.running import run

    if json + raw + (form is not None) > 1:
        raise typer.BadParameter("use one of --json, --raw and --format")
    log_to_stderr("info")
    start = Checkpoint.from_text(from_) if from_ is not None else None
    out = sys.stdout.buffer
    printer: Printer = Lines(out, sys.stdout.isatty())
    if json or raw or form is not None:
        printer = (JsonLines if json else RawLines if raw else CloudEventLines)(out)
    try:
        run(_receive(node, pattern, name, history, start, count, printer))
    finally:
        if printer.checkpoint is not None:
            say(f"go on with --name {name}" if name else f"go on with --from {printer.checkpoint}")


async def _receive(
    node: str,
    pattern: str,
    name: str,
    history: bool,
    start: Checkpoint | None,
    count: int | None,
    printer: Printer,
) -> None:
    from reknit.checkpoint import Checkpoint
    from reknit.cli.running import connected
    from reknit.outcome import Outcome

    async with connected(node) as session:
        if start is None and not history and not name:
            before = Checkpoint.from_json(await session.ask("checkpoint", pattern=pattern))
        else:
            before = start or Checkpoint()
        subscription = session.subscribe(pattern, name=name, history=history, start=start, auto_accept=False)
        async with subscription as events:
            printer.checkpoint = before
            async for batch in events.batches():
                part = batch if count is None else batch.cut(batch.first, batch.first + count)
                printer.write(part)
                assert batch.settle is not None
                await batch.settle(part.first, part.stop, Outcome.ACCEPTED)
                if count is not None and (count := count - part.count) == 0:
                    return
