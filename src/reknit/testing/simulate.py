"""The simulator as a command.

python -m reknit.testing.simulate --seed 7                   replay one run and print every step
python -m reknit.testing.simulate --seeds 20000 --start 0    run many, stop at the first that fails
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reknit.testing.simulation import Verdict, run

CHUNK_SEEDS = 25
"""The number of seeds in one task of a process."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one seed or many. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.seed is not None:
        return replay(arguments.seed, arguments.quiet)
    return run_many(arguments.start, arguments.seeds, arguments.processes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reknit.testing.simulate",
        description="Run fabrics with faults in virtual time, and account for every event.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="replay one seed and print every step")
    which.add_argument("--seeds", type=int, help="the number of seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--processes",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="the number of processes (default: %(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="with --seed: print only the verdict")
    return parser


def replay(seed: int, quiet: bool = False) -> int:
    """Run one seed and print its steps, its plan and its verdict."""
    verdict = run(seed, is_traced=not quiet)
    for line in verdict.trace:
        print(line)
    print(f"\n{verdict.plan}\n{describe(verdict)}")
    return 0 if verdict.is_good else 1


def run_many(start: int, count: int, processes: int) -> int:
    """Run seeds `[start, start + count)`. Prints the first that fails, with the command that replays it."""
    began = time.monotonic()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=count)
        bad = first_bad(start, count, processes, lambda done: progress.update(task, advance=done))
    if bad is None:
        seconds = time.monotonic() - began
        rate = count / max(seconds, 1e-9)
        print(f"seeds {start} to {start + count - 1}: all good, {seconds:.0f} s ({rate:.0f} seeds/s)")
        return 0
    print(describe(run(bad)))
    return 1


def first_bad(start: int, count: int, processes: int, advance: Callable[[int], object]) -> int | None:
    """The lowest seed that fails, or None."""
    chunks = list(_chunks(start, start + count))
    if processes <= 1:
        for chunk in chunks:
            if (bad := first_bad_of(chunk)) is not None:
                return bad
            advance(len(chunk))
        return None
    with ProcessPoolExecutor(processes) as pool:
        for chunk, bad in zip(chunks, pool.map(first_bad_of, chunks), strict=True):
            if bad is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                return bad
            advance(len(chunk))
    return None


def _chunks(start: int, stop: int) -> Iterator[range]:
    for low in range(start, stop, CHUNK_SEEDS):
        yield range(low, min(low + CHUNK_SEEDS, stop))


def first_bad_of(seeds: range) -> int | None:
    """The first of these seeds that fails, or None."""
    return next((seed for seed in seeds if not run(seed).is_good), None)


def describe(verdict: Verdict) -> str:
    """A verdict as text. A bad one ends with the command that replays it."""
    facts = f"seed {verdict.plan.seed}: {verdict.events} events confirmed, {verdict.steps} steps"
    if verdict.is_good:
        return f"{facts}: every one of them is accounted for"
    problems = "\n".join(f"  {problem}" for problem in verdict.problems[:10])
    more = len(verdict.problems) - 10
    return f"{facts}\n{problems}{f'{chr(10)}  and {more} more' if more > 0 else ''}\nreplay it: {verdict.command}"


if __name__ == "__main__":
    sys.exit(main())
