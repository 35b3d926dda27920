"""The attack as a command.

python -m reknit.testing.attack                 everything, with a report
python -m reknit.testing.attack --json          a report for programs
python -m reknit.testing.attack --write PAGE    also write the matrix of doors and credentials into a page
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from reknit.testing.attack.matrix import Cell, try_all, write_table
from reknit.testing.attack.raw_peer import Closed
from reknit.testing.attack.target import Target, target
from reknit.testing.attack.ways import WAYS, Way


class Report(NamedTuple):
    """What was tried, and what came of it."""

    cells: list[Cell]
    ways: dict[str, str]
    """What each way found; empty is nothing."""

    @property
    def findings(self) -> list[str]:
        """Everything that should not have happened."""
        found = [f"{name}: {what}" for name, what in self.ways.items() if what]
        return [cell.problem for cell in self.cells if cell.problem] + found


async def _try_way(node: Target, one: Way) -> str:
    try:
        return await one.find(node)
    except (TimeoutError, Closed) as error:
        return f"the node did not answer as it should: {error!r}"


async def attack(console: Console | None = None) -> Report:
    """Attack a node of our own, in every way that is known."""
    shown = console or Console(quiet=True)
    async with target() as node:
        with shown.status("trying every door") as status:
            cells = await try_all(node, advance=status.update)
            ways: dict[str, str] = {}
            for one in WAYS:
                status.update(one.name.replace("_", " "))
                ways[one.name] = await _try_way(node, one)
        return Report(cells, ways)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it. Returns the exit code: 1 if anything was found."""
    parser = argparse.ArgumentParser(
        prog="python -m reknit.testing.attack", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the matrix into this page, too")
    arguments = parser.parse_args(argv)
    logging.getLogger("reknit").setLevel(logging.CRITICAL)  # refusals are expected here
    report = asyncio.run(attack(Console(stderr=True)))
    if arguments.write is not None:
        write_table(arguments.write, report.cells)
    if arguments.json:
        cells = [{**cell._asdict(), "credential": cell.credential.value} for cell in report.cells]
        print(json.dumps({"cells": cells, "ways": report.ways, "findings": report.findings}, indent=2))
    else:
        for finding in report.findings:
            print(f"FOUND {finding}")
        tried = f"{len(report.cells)} requests at {len({cell.door for cell in report.cells})} doors"
        print(f"{tried}, {len(report.ways)} ways around the rules: {len(report.findings)} findings")
    return 1 if report.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
