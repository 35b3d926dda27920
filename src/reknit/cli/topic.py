"""`reknit topic`: pause and resume the delivery of topics."""

from __future__ import annotations

from typing import Annotated

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import fail, log_to_stderr, plain, print_json

app = typer.Typer(help="Pause and resume the delivery of topics.", no_args_is_help=True)
PatternArgument = Annotated[
    str, typer.Argument(metavar="PATTERN", help="The topics, such as plant/line1 or plant/**.")
]


@app.command()
def pause(pattern: PatternArgument, json: AsJson = False, node: NodeUrl = "") -> None:
    """Deliver no event on matching topics until they are resumed. Events are stored, and their ttl keeps running."""
    _switch("pause", pattern, json, node)


@app.command()
def resume(pattern: PatternArgument, json: AsJson = False, node: NodeUrl = "") -> None:
    """Resume the delivery of topics that were paused with the same pattern."""
    if not _switch("resume", pattern, json, node):
        fail(f"pattern {pattern!r} is not paused: `reknit topic paused` lists those that are")


@app.command()
def paused(json: AsJson = False, node: NodeUrl = "") -> None:
    """List the paused patterns."""
    from reknit.cli.running import asked, run

    log_to_stderr()
    patterns = run(asked(node, "paused"))
    if json:
        print_json(patterns)
    else:
        typer.echo("\n".join(map(plain, patterns)) or "nothing is paused")


def _switch(what: str, pattern: str, json: bool, node: str) -> bool:
    from reknit.cli.running import asked, run

    log_to_stderr()
    body = run(asked(node, what, pattern=pattern))
    if json:
        print_json(body)
    elif body["changed"] or what == "pause":
        typer.echo(f"{plain(pattern)} is {'paused' if what == 'pause' else 'resumed'}")
    return bool(body["changed"]) or what == "pause"
