"""The demo from start to end: the fabric, the faults, the result, and the pipeline's audit."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import typer
from rich.console import Console

from reknit.cli.demo.fabric import DemoFabric, DemoResult
from reknit.cli.demo.screen import DemoScreen
from reknit.cli.ledger import print_ledger
from reknit.cli.output import events


def run_demo(count: int, kills: int, seed: int, report: Path) -> bool:
    """Run the demo and print its result. True if every event is accounted for."""
    logging.getLogger("reknit").setLevel(logging.CRITICAL)  # broken connections are expected here
    with TemporaryDirectory(prefix="reknit-demo-") as folder, DemoFabric(Path(folder), count, seed) as fabric:
        with DemoScreen(fabric) as screen:
            fabric.start(screen)
            fabric.inject_faults(kills, screen)
            fabric.settle(screen)
            result = fabric.result()
        _print_result(fabric, result)
        is_audited = _run_pipeline(fabric.node.url, Path(folder) / "lake", report)
        if sys.stdout.isatty() and fabric.console:
            _stay(fabric)
    return is_audited and not result.problems


def _stay(fabric: DemoFabric) -> None:
    """Keep the fabric running with faults, for somebody who watches it in a browser."""
    typer.echo(f"\nThe fabric goes on. Watch it survive in a browser: {fabric.console}")
    typer.echo("Ctrl-C ends it.\n")
    with suppress(KeyboardInterrupt), DemoScreen(fabric) as screen:
        fabric.go_on(screen)


def _print_result(fabric: DemoFabric, result: DemoResult) -> None:
    console = Console(highlight=False)
    console.print()
    print_ledger(result.rows)
    console.print()
    console.print(
        f"{events(result.published)} published, and delivered to every subscriber that is owed them"
    )
    console.print(f"{fabric.kills} times kill -9: {fabric.kills_text()}")
    console.print(f"{events(fabric.duplicates)} reached the node twice and were dropped")
    console.print(
        f"{events(result.repeated)} redelivered, because a subscriber was killed before it had settled them"
    )
    console.print(f"{events(result.dead_letters)} ended as dead letters, because a subscriber rejected them")
    for problem in result.problems:
        console.print(f"[red]{problem}[/]")
    if not result.problems:
        console.print("[bold green]Nothing is missing, and the ledger balances.[/]")


def _run_pipeline(url: str, lake: Path, report: Path) -> bool:
    """Run the pipeline over the node's journal as a user would. False if it fails or finds something missing."""
    if find_spec("pyspark") is None:
        typer.echo("The Spark pipeline is skipped: install it with pip install 'reknit[spark]'")
        return True
    for arguments in (
        ["run", "--once", "--nodes", url, "--lake", str(lake)],
        ["audit", "--lake", str(lake), "--report", str(report)],
    ):
        typer.echo(f"\n$ reknit pipeline {' '.join(arguments)}")
        if subprocess.run([sys.executable, "-m", "reknit", "pipeline", *arguments], check=False).returncode:
            return False
    return True
