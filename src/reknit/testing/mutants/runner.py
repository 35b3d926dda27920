"""Runs mutants, each in a process of its own, and says after how many seeds each was found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from reknit.testing.mutants import planting
from reknit.testing.mutants.mutant import SIMULATIONS, Mutant, UnknownMutant

SEEDS_MAX = 500
"""A mutant that survives this many seeds is a hole in the fault plan or in the checks."""


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What became of a mutant."""

    mutant: Mutant
    seeds: int | None
    """How many seeds it took to find it; None if it survived."""
    problem: str = ""
    """What the simulation said."""

    @property
    def is_found(self) -> bool:
        return self.seeds is not None


def run_mutant(mutant: Mutant, start: int = 0, seeds: int = SEEDS_MAX) -> MutantResult:
    """Plant a fault in a child process, and run seeds there until one fails that is good without the fault."""
    stop, at = start + seeds, start
    while at < stop and (found := _first_failure(mutant, at, stop - at)) is not None:
        seed, problem = found
        if _first_failure(replace(mutant, module=""), seed, 1) is None:
            return MutantResult(mutant, seed - start + 1, problem)
        at = seed + 1  # it shows another fault
    return MutantResult(mutant, None)


def _first_failure(mutant: Mutant, start: int, seeds: int) -> tuple[int, str] | None:
    """The first seed that fails with the fault, and its first problem; without a module there is no fault."""
    task = {
        "module": mutant.module,
        "old": mutant.old,
        "new": mutant.new,
        "simulation": SIMULATIONS[mutant.simulation],
        "start": start,
        "seeds": seeds,
    }
    # -P: the folder of the script is not searched for modules.
    command = [sys.executable, "-P", planting.__file__, json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnknownMutant(mutant.name, f"it could not be run:\n{done.stderr}")
    found = json.loads(done.stdout)
    return None if found is None else (found[0], found[1])


def run_all(mutants: Sequence[Mutant], start: int, seeds: int, processes: int) -> Iterator[MutantResult]:
    """Run mutants in several processes; yields their results in order."""
    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(lambda mutant: run_mutant(mutant, start, seeds), mutants)
