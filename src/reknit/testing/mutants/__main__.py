"""The mutants as a command.

python -m reknit.testing.mutants                             plant every fault, and say after how many seeds it was found
python -m reknit.testing.mutants --only ack-before-sync      plant one
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from reknit.testing.mutants.catalogue import chosen
from reknit.testing.mutants.mutant import UnknownMutant
from reknit.testing.mutants.report import as_json, as_line, summary, write_page
from reknit.testing.mutants.runner import SEEDS_MAX, MutantResult, run_all


def main(argv: Sequence[str] | None = None) -> int:
    """Run the mutants that were chosen. Returns the exit code: 1 if one survives, 2 if one can't be planted."""
    arguments = _parser().parse_args(argv)
    try:
        mutants = chosen(arguments.only)
        for mutant in mutants:
            mutant.check()
    except UnknownMutant as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.name:<42} {mutant.capability:<20} {mutant.breaks}")
        return 0
    results: list[MutantResult] = []
    for result in _shown(
        run_all(mutants, arguments.start, arguments.seeds, arguments.processes), len(mutants)
    ):
        results.append(result)
        if not arguments.json:
            print(as_line(result), flush=True)
    print(json.dumps(as_json(results), indent=2) if arguments.json else summary(results, arguments.seeds))
    if arguments.write:
        write_page(arguments.write, results, arguments.seeds)
    return 0 if all(result.is_found for result in results) else 1


def _shown(results: Iterator[MutantResult], count: int) -> Iterator[MutantResult]:
    """The same results, with a bar that shows how many there are."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("mutants", total=count)
        for result in results:
            yield result
            progress.update(task, advance=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reknit.testing.mutants",
        description="Plant faults one at a time, and say after how many seeds a simulation finds each.",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="run this mutant; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants, and run none")
    parser.add_argument(
        "--seeds", type=int, default=SEEDS_MAX, help="the most seeds for a mutant (default: %(default)s)"
    )
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--processes",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="the number of mutants at a time (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table into this page, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
