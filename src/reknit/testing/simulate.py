"""The simulator as a command.

python -m reknit.testing.simulate --seed 7                   replay one run and print every step
python -m reknit.testing.simulate --seed 7 --set cut_rate=0  the same with a changed plan
python -m reknit.testing.simulate --seeds 20000 --start 0    run many, stop at the first that fails and shrink it
python -m reknit.testing.simulate --fabric --seeds 200       the same with real nodes, links, gateways and clients
python -m reknit.testing.simulate --large --seeds 50         these with all kinds of programs at once
python -m reknit.testing.simulate --group --seeds 20000      groups that send to each other by multicast
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import FabricVerdict
from reknit.testing.fabric.run import run as run_fabric
from reknit.testing.faults import FaultPlan
from reknit.testing.group.plan import GroupPlan
from reknit.testing.group.simulation import GroupVerdict
from reknit.testing.group.simulation import run_plan as run_group
from reknit.testing.shrink import shrunk, with_settings
from reknit.testing.simulation import Verdict
from reknit.testing.simulation import run_plan as run_core

CHUNK_SEEDS = 25
"""The number of seeds in one task of a process."""
CHUNK_FABRICS = 4
"""The same for whole fabrics, which take longer."""

Failure = tuple[int, str]
"""A seed that fails, and its first problem."""
Plan = FaultPlan | FabricPlan | GroupPlan
AnyVerdict = Verdict | FabricVerdict | GroupVerdict
Kind = Literal["core", "fabric", "large", "group"]
PLANS: Final[dict[Kind, Callable[[int], Plan]]] = {
    "core": FaultPlan.from_seed,
    "fabric": FabricPlan.from_seed,
    "large": FabricPlan.large,
    "group": GroupPlan.from_seed,
}
"""By what is simulated: the plan of a seed."""


def make_plan(seed: int, settings: Sequence[str], kind: Kind) -> Plan:
    """The plan of a seed, changed by settings such as `cut_rate=0`. Raises `ValueError`."""
    return with_settings(PLANS[kind](seed), settings)


def run_plan(plan: Plan, is_traced: bool = False) -> AnyVerdict:
    """Run the core, the fabric or the group that a plan is for."""
    if isinstance(plan, GroupPlan):
        return run_group(plan, is_traced=is_traced)
    if isinstance(plan, FabricPlan):
        return run_fabric(plan.seed, plan=plan, is_traced=is_traced)
    return run_core(plan, is_traced=is_traced)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one seed or many. Returns the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        make_plan(0, arguments.set, _kind(arguments))
    except ValueError as error:
        parser.error(str(error))
    if arguments.seed is not None:
        return replay(arguments.seed, arguments.set, arguments.quiet, _kind(arguments))
    return ManySeeds(arguments).run()


def _kind(arguments: argparse.Namespace) -> Kind:
    kinds: list[Kind] = ["large", "fabric", "group"]
    return next((kind for kind in kinds if getattr(arguments, kind)), "core")


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
        "--fabric",
        action="store_true",
        help="simulate real nodes, links, gateways and clients, not only cores",
    )
    parser.add_argument(
        "--large",
        action="store_true",
        help="whole fabrics with all kinds of programs at once, and more events",
    )
    parser.add_argument(
        "--group", action="store_true", help="groups of programs on a network that loses datagrams"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of every plan"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="the number of processes (default: %(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="with --seed: print only the verdict")
    parser.add_argument(
        "--keep-going", action="store_true", help="with --seeds: go on past a failure, and list all of them"
    )
    parser.add_argument(
        "--no-shrink", action="store_true", help="with --seeds: do not look for a smaller plan that fails"
    )
    return parser


def replay(seed: int, settings: Sequence[str] = (), quiet: bool = False, kind: Kind = "core") -> int:
    """Run one seed and print its steps, its plan and its verdict."""
    verdict = run_plan(make_plan(seed, settings, kind), is_traced=not quiet)
    for line in verdict.trace:
        print(line)
    print(f"\n{verdict.plan}\n{describe(verdict)}")
    return 0 if verdict.is_good else 1


class ManySeeds:
    """Runs the seeds that the arguments name, and prints those that fail."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._start, self._count = arguments.start, arguments.seeds
        self._settings: list[str] = arguments.set
        self._processes, self._keeps_going = arguments.processes, arguments.keep_going
        self._shrinks, self._kind = not arguments.no_shrink, _kind(arguments)

    def run(self) -> int:
        """Run the seeds. Returns the exit code."""
        began = time.monotonic()
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        failures: list[Failure] = []
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("seeds", total=self._count)
            for chunk, bad in self._chunks():
                progress.update(task, advance=len(chunk))
                failures += bad
                self._list(bad)
                if failures and not self._keeps_going:
                    break
        seconds = time.monotonic() - began
        last, rate = self._start + self._count - 1, self._count / max(seconds, 1e-9)
        if not failures:
            speed = f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"
            print(f"seeds {self._start} to {last}: all good, {seconds:.0f} s ({speed} seeds/s)")
            return 0
        if self._keeps_going:
            seeds = " ".join(str(seed) for seed, _ in failures)
            print(f"{len(failures)} of {self._count} seeds fail: {seeds}\n")
        self._explain(failures[0][0])
        return 1

    def _chunks(self) -> Iterator[tuple[range, list[Failure]]]:
        """The seeds that fail, chunk by chunk, in order."""
        size = CHUNK_SEEDS if self._kind in ("core", "group") else CHUNK_FABRICS
        chunks = list(_chunks(self._start, self._start + self._count, size))
        tasks = [(chunk, self._settings, self._keeps_going, self._kind) for chunk in chunks]
        if self._processes <= 1:
            yield from zip(chunks, map(failures_of, tasks), strict=True)
            return
        with ProcessPoolExecutor(self._processes) as pool:
            try:
                yield from zip(chunks, pool.map(failures_of, tasks), strict=True)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _list(self, failures: list[Failure]) -> None:
        for seed, problem in failures if self._keeps_going else ():
            lines = problem.strip().splitlines()
            print(f"seed {seed}: {lines[0] if len(lines) == 1 else lines[-1]}", flush=True)

    def _explain(self, seed: int) -> None:
        verdict = run_plan(make_plan(seed, self._settings, self._kind))
        print(describe(verdict))
        if self._shrinks:
            smaller = run_plan(shrunk(verdict.plan, lambda plan: not run_plan(plan).is_good))
            print(f"\na smaller plan that fails: {smaller.plan}\n{describe(smaller)}")


def _chunks(start: int, stop: int, size: int) -> Iterator[range]:
    for low in range(start, stop, size):
        yield range(low, min(low + size, stop))


def failures_of(task: tuple[range, list[str], bool, Kind]) -> list[Failure]:
    """Those of some seeds that fail: all of them, or the first."""
    seeds, settings, keeps_going, kind = task
    failures: list[Failure] = []
    for seed in seeds:
        verdict = run_plan(make_plan(seed, settings, kind))
        if not verdict.is_good:
            failures.append((seed, verdict.problems[0]))
            if not keeps_going:
                break
    return failures


def describe(verdict: AnyVerdict) -> str:
    """A verdict as text. A bad one ends with the command that replays it."""
    facts = f"seed {verdict.plan.seed}: {verdict.events} events confirmed, {verdict.steps} steps"
    if verdict.is_good:
        return f"{facts}: every one of them is accounted for"
    problems = "\n".join(f"  {problem}" for problem in verdict.problems[:10])
    more = len(verdict.problems) - 10
    return f"{facts}\n{problems}{f'{chr(10)}  and {more} more' if more > 0 else ''}\nreplay it: {verdict.command}"


if __name__ == "__main__":
    sys.exit(main())
