"""`reknit topic`: stop and start handing out, topic by topic."""

from __future__ import annotations

from typing import Annotated

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import fail, log_to_stderr, plain, print_json

app = typer.Typer(help="Stop and start handing out topics.", no_args_is_help=True)
Pattern = Annotated[str, typer.Argument(metavar="PATTERN", help="Topics, such as plant/line1 or plant/**.")]


@app.command()
def pause(pattern: Pattern, json: AsJson = False, node: NodeUrl = "") -> None:
    """Hand out nothing of what the pattern matches, until it is resumed; events are kept, and their ttl runs."""
    _switch("pause", pattern, json, node)


@app.command()
def resume(pattern: Pattern, json: AsJson = False, node: NodeUrl = "") -> None:
    """Hand out again what was paused by the same pattern."""
    if not _switch("resume", pattern, json, node):
        fail(f"{pattern!r} was not paused: `reknit topic paused` lists what is")


@app.command()
def paused(json: AsJson = False, node: NodeUrl = "") -> None:
    """List the patterns that are paused."""
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
        typer.echo(f"{plain(pattern)} is {'paused' if what == 'pause' else 'handed out again'}")
    return bool(body["changed"]) or what == "pause"
