"""The command `reknit demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reknit.cli.output import FAILED


def demo(
    count: Annotated[
        int, typer.Option("--events", min=100, metavar="N", help="The number of events of each publisher.")
    ] = 200_000,
    kills: Annotated[
        int, typer.Option(min=0, metavar="N", help="The number of times that a process is killed.")
    ] = 6,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The seed that decides which publisher and subscriber is killed.")
    ] = 7,
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="The file for the pipeline's audit, as an HTML page.")
    ] = Path("audit.html"),
) -> None:
    """Run a small fabric, break it, and show that nothing is lost.

    A node, two publishers and three subscribers, each a process of its own on this machine, are killed with kill -9
    and started again while events flow. If Spark is installed, the pipeline then reads the node's journal into tables
    and audits them. Everything except the audit's page is in a temporary directory that is removed at the end.

    The node serves its console, whose address is printed. On a terminal the fabric goes on after that, with a process
    killed now and then, until Ctrl-C.
    """
    from reknit.cli.demo.run import run_demo

    if not run_demo(count, kills, seed, report.absolute()):
        raise typer.Exit(FAILED)
