"""`python -m bench`: reknit beside its peers, on this machine, in one run."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench import report
from bench.cases import CASES, Case, choose
from bench.harness import measure
from bench.machine import describe, versions_of
from bench.peers import SUBJECTS, TITLES, find_peers
from bench.results import RESULTS, Results, gather_results, keep_parts, read, write
from bench.rounds import Turn, plan, run

ROUNDS = 3
SECONDS, SECONDS_QUICK = 2.0, 0.8


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="only the main cases, with shorter runs: about two minutes"
    )
    parser.add_argument("--cases", default="", metavar="A,B*", help="only these cases (--list shows them)")
    parser.add_argument(
        "--peers", default="", metavar="A,B", help="only these peers beside reknit, or 'none'"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"the number of rounds (default: {ROUNDS})")
    parser.add_argument(
        "--seconds", type=float, metavar="S", help=f"the length of a run in seconds (default: {SECONDS:g})"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="the directory for journals while measuring")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write the results to this file, also those of a partial run",
    )
    parser.add_argument("--list", action="store_true", help="show cases and subjects, and exit")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the last results as a Markdown table")
    parser.add_argument("--plot", action="store_true", help="draw the picture of the last results again")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console(stderr=options.json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return act(options, console)
    except (ValueError, FileNotFoundError) as error:
        console.print(f"[red]{escape(str(error))}[/]")
        return 2
    except KeyboardInterrupt:
        console.print("Stopped. No process is left running.")
        return 130


def act(options: argparse.Namespace, console: Console) -> int:
    if options.list:
        show_list(console)
    elif options.markdown:
        print(report.markdown(read(options.output or RESULTS), TITLES))
    elif options.plot:
        draw_picture(read(options.output or RESULTS), console)
    else:
        show_measured(options, console)
    return 0


def show_list(console: Console) -> None:
    peers, missing = find_peers(SUBJECTS)
    for case in CASES:
        console.print(f"{case.name:22} {case.title} [dim]({case.unit})[/]")
    for name, title in TITLES.items():
        state = f"stores {peers[name].keeps}" if name in peers else f"cannot run here: {missing[name]}"
        console.print(f"{name:22} {title} [dim]({escape(state)})[/]")


def show_measured(options: argparse.Namespace, console: Console) -> None:
    cases = choose(split(options.cases), options.quick)
    measured = asyncio.run(measure_cases(cases, options, console))
    report.show(measured, TITLES, console)
    if options.json:
        print(msgspec.json.encode(measured).decode())
    keep(measured, options, console)


def keep(measured: Results, options: argparse.Namespace, console: Console) -> None:
    """Write the results. Only a complete run replaces the figures of the README."""
    is_whole = not (options.quick or options.cases or options.peers)
    path = options.output or (RESULTS if is_whole else None)
    if path is None:
        console.print(
            "[dim]A partial run: bench/results.json is not changed. Write the results with --output FILE.[/]"
        )
        return
    write(keep_parts(measured, path), path)
    console.print(f"Written: {path}")
    if is_whole:
        draw_picture(measured, console)


def draw_picture(measured: Results, console: Console) -> None:
    from bench.plot import (
        PICTURE,
        draw,
    )  # matplotlib takes a second to import, and measuring does not need it

    draw(measured, TITLES, PICTURE)
    console.print(
        f"Drawn: {PICTURE.relative_to(Path.cwd()) if PICTURE.is_relative_to(Path.cwd()) else PICTURE}"
    )


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def wanted_subjects(text: str) -> list[str]:
    names = [] if text == "none" else split(text) or list(SUBJECTS)
    if unknown := [name for name in names if name not in SUBJECTS]:
        raise ValueError(f"unknown peer: {', '.join(unknown)}; --list shows all")
    return list(dict.fromkeys(["reknit", *names]))


async def measure_cases(cases: list[Case], options: argparse.Namespace, console: Console) -> Results:
    peers, missing = find_peers(wanted_subjects(options.peers))
    for name, why in missing.items():
        console.print(f"[yellow]Without {TITLES[name]}: {escape(why)}[/]")
    rounds = options.rounds or ROUNDS
    seconds = options.seconds or (SECONDS_QUICK if options.quick else SECONDS)
    data = options.data or Path(tempfile.gettempdir())
    turns = plan(cases, peers, rounds)
    measure_one = partial(measure, seconds=seconds, data=data)
    with progress(console) as bar:
        taken = await run(turns, peers, measure_one, teller(bar, bar.add_task("", total=len(turns))))
    settings = {"rounds": str(rounds), "seconds": f"{seconds:g}", "quick": str(options.quick).lower()}
    about = (describe(data), versions_of(peers.values()), settings)
    return gather_results(cases, taken, peers, missing, about)


def progress(console: Console) -> Progress:
    columns = (BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console)


def teller(bar: Progress, task: TaskID) -> Callable[[Turn, str], None]:
    def tell(turn: Turn, news: str) -> None:
        load = turn.load
        what = f"{TITLES[turn.subject]}, {load.size} B {load.mode} {load.shape}, round {turn.round + 1}"
        bar.update(task, advance=1, description=what)
        if news.startswith("failed") or not bar.console.is_terminal:
            bar.console.print(f"{what}: {news}", highlight=False, markup=False)

    return tell


if __name__ == "__main__":
    sys.exit(main())
