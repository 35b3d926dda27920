"""The command `reknit status`."""

from __future__ import annotations

from typing import Annotated

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import log_to_stderr, print_json


def status(
    json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second.")] = False,
    node: NodeUrl = "",
) -> None:
    """Show a node's journal, topics, rates and subscribers."""
    from reknit.cli.running import asked, run

    log_to_stderr("error" if watch else "warning")
    if json and not watch:
        print_json(run(asked(node, "status")))
        return
    from reknit.cli.status.screen import look, print_status, watch_status

    if watch:
        run(watch_status(node))
    else:
        print_status(run(look(node)))
