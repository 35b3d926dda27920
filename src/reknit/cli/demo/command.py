"""`reknit demo`: a small fabric on this machine, broken on purpose, and the proof that nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.output import FAILED, events

if TYPE_CHECKING:
    from reknit.cli.demo.fabric import Fabric, Verdict


def demo(
    count: Annotated[
        int, typer.Option("--events", min=100, metavar="N", help="Events of each publisher.")
    ] = 200_000,
    kills: Annotated[int, typer.Option(min=0, metavar="N", help="How often something is killed.")] = 6,
    seed: Annotated[int, typer.Option(metavar="N", help="Which of its kind is killed, and when.")] = 7,
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the pipeline's audit is written to, as a page.")
    ] = Path("audit.html"),
) -> None:
    """Run a small fabric, break it, and show that nothing is lost.

    A node, two publishers and three subscribers, each a process of its own on this machine, are killed with kill -9
    and started again while events flow. Then, where Spark is installed, the pipeline brings the node's journal into
    tables and audits them. Everything but the audit's page is in a temporary folder that is removed at the end.
    """
    import logging
    from tempfile import TemporaryDirectory

    from reknit.cli.demo.fabric import Fabric
    from reknit.cli.demo.screen import Screen

    logging.getLogger("reknit").setLevel(logging.CRITICAL)  # broken connections are what this is about
    with TemporaryDirectory(prefix="reknit-demo-") as folder:
        fabric = Fabric(Path(folder), count, seed)
        with fabric:
            with Screen(fabric) as screen:
                fabric.start(screen)
                fabric.break_it(kills, screen)
                fabric.settle(screen)
                verdict = fabric.verdict()
            _report(fabric, verdict)
            is_proven = _audit(fabric.node.url, Path(folder) / "lake", report.absolute())
    if verdict.problems or not is_proven:
        raise typer.Exit(FAILED)


def _audit(url: str, lake: Path, report: Path) -> bool:
    """Run the pipeline over the node's journal as a user would; True unless it says that something is missing."""
    if find_spec("pyspark") is None:
        typer.echo("The Spark pipeline is left out: it comes with the extra, pip install 'reknit[spark]'")
        return True
    for arguments in (
        ["run", "--once", "--nodes", url, "--lake", str(lake)],
        ["audit", "--lake", str(lake), "--report", str(report)],
    ):
        typer.echo(f"\n$ reknit pipeline {' '.join(arguments)}")
        if subprocess.run([sys.executable, "-m", "reknit", "pipeline", *arguments], check=False).returncode:
            return False
    return True


def _report(fabric: Fabric, verdict: Verdict) -> None:
    from rich.console import Console

    from reknit.cli.ledger import print_ledger

    console = Console(highlight=False)
    console.print()
    print_ledger(verdict.rows)
    console.print()
    console.print(f"{events(verdict.published)} published, and handed to every subscriber that is owed them")
    console.print(f"{fabric.kills} times kill -9: {fabric.kills_text()}")
    console.print(f"{events(fabric.duplicates)} came to the node twice and were dropped")
    console.print(
        f"{events(verdict.repeated)} went to a subscriber again, because it was killed before it had settled them"
    )
    console.print(f"{events(verdict.dead_letters)} ended as dead letters, because a subscriber rejected them")
    for problem in verdict.problems:
        console.print(f"[red]{problem}[/]")
    if not verdict.problems:
        console.print("[bold green]Nothing is missing, and the ledger balances.[/]")
