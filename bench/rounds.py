"""Rounds: reknit and its peers alternate, and ratios are taken within a round, before the median.

The speed of a machine drifts by a factor of two within an hour without visible load, so figures from separate runs
cannot be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import groupby

import msgspec

from bench.cases import Case, load_for
from bench.harness import Measured
from bench.job import Load
from bench.peers.base import Peer
from bench.processes import Failed

Key = tuple[str, Load]
Measure = Callable[[Peer, Load], Awaitable[Measured]]


class Turn(msgspec.Struct, frozen=True):
    """One run: its subject, load and round."""

    subject: str
    load: Load
    round: int


class Taken(msgspec.Struct):
    """The measurements by subject, load and round, and the reasons for those that failed."""

    runs: dict[Key, dict[int, Measured]]
    failures: dict[Key, str]

    def by_round(self, case: Case, subject: str) -> dict[int, float]:
        """The case's figure for each round that has one."""
        runs = self.runs.get((subject, load_for(subject, case.load)), {})
        values = ((number, getattr(run, case.figure.value)) for number, run in runs.items())
        return {number: value for number, value in values if value is not None}


def plan(cases: Iterable[Case], peers: Mapping[str, Peer], rounds: int) -> list[Turn]:
    """The runs of group after group, and within one of round after round. Each round starts with another subject."""
    turns: list[Turn] = []
    for _, members in groupby(cases, key=lambda case: case.group):
        group = list(members)
        for number in range(min(rounds, max(case.rounds_max for case in group))):
            keys = keys_of(group, peers)
            shift = number % len(keys) if keys else 0
            turns += [Turn(subject, load, number) for subject, load in keys[shift:] + keys[:shift]]
    return turns


def keys_of(cases: Iterable[Case], peers: Mapping[str, Peer]) -> list[Key]:
    """The runs that these cases need, each once, those of a load next to each other."""
    wanted = ((name, load_for(name, case.load)) for case in cases for name in case.subjects if name in peers)
    return [key for key in dict.fromkeys(wanted) if peers[key[0]].refuses(key[1]) is None]


async def run(
    turns: Iterable[Turn], peers: Mapping[str, Peer], measure: Measure, tell: Callable[[Turn, str], None]
) -> Taken:
    """Run all turns. A failure is reported and not repeated; the other loads of the subject continue."""
    taken = Taken({}, {})
    for turn in turns:
        key = (turn.subject, turn.load)
        if key in taken.failures:
            tell(turn, "")
            continue
        try:
            measured = await measure(peers[turn.subject], turn.load)
        except Failed as failure:
            taken.failures[key] = str(failure)
            tell(turn, f"failed: {failure}")
            continue
        taken.runs.setdefault(key, {})[turn.round] = measured
        tell(turn, f"{measured.events_per_s:,.0f} events/s")
    return taken


def ratio_of(mine: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """The median of reknit / peer over the rounds that have both."""
    ratios = [mine[number] / theirs[number] for number in mine if theirs.get(number)]
    return statistics.median(ratios) if ratios else None
