"""The results as they are written: rows, goals, skipped cases, and the machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from bench.cases import CASES, Case, load_for
from bench.goals import GOALS, Verdict, judge
from bench.peers.base import Peer
from bench.rounds import Taken, ratio_of

RESULTS = Path(__file__).with_name("results.json")


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One subject in one case: the median of its rounds; `ratio` is reknit's figure over this peer's."""

    case: str
    subject: str
    value: float
    unit: str
    ratio: float | None = None
    rounds: tuple[float, ...] = ()


class LeftOut(msgspec.Struct, frozen=True):
    case: str
    subject: str
    why: str


class Results(msgspec.Struct, frozen=True):
    rows: tuple[Row, ...]
    goals: tuple[Verdict, ...]
    left_out: tuple[LeftOut, ...]
    machine: dict[str, str]
    versions: dict[str, str]
    settings: dict[str, str]

    def value(self, case: str, subject: str) -> Row | None:
        return next((row for row in self.rows if (row.case, row.subject) == (case, subject)), None)

    @property
    def cases(self) -> list[Case]:
        present = {row.case for row in self.rows}
        return [case for case in CASES if case.name in present]


def rows_of(cases: Iterable[Case], taken: Taken) -> Iterable[Row]:
    for case in cases:
        mine = taken.by_round(case, "reknit")
        for subject in case.subjects:
            values = taken.by_round(case, subject)
            if values:
                ratio = None if subject == "reknit" else ratio_of(mine, values)
                median = statistics.median(values.values())
                rounds = tuple(map(short, values.values()))
                yield Row(case.name, subject, short(median), case.unit, ratio and short(ratio), rounds)


def short(value: float) -> float:
    """A figure with four digits: no run is more precise."""
    return float(f"{value:.4g}")


def left_out_of(
    cases: Iterable[Case], taken: Taken, peers: Mapping[str, Peer], missing: Mapping[str, str]
) -> Iterable[LeftOut]:
    for case in cases:
        for subject in case.subjects:
            why = missing.get(subject)
            if subject in peers:
                why = peers[subject].refuses(case.load)
                why = why or taken.failures.get((subject, load_for(subject, case.load)))
            if why:
                yield LeftOut(case.name, subject, why)


def gather_results(
    cases: list[Case],
    taken: Taken,
    peers: Mapping[str, Peer],
    missing: Mapping[str, str],
    about: tuple[dict[str, str], dict[str, str], dict[str, str]],
) -> Results:
    machine, versions, settings = about
    return Results(
        rows=tuple(rows_of(cases, taken)),
        goals=tuple(verdict for goal in GOALS if (verdict := judge(goal, taken))),
        left_out=tuple(left_out_of(cases, taken, peers, missing)),
        machine=machine,
        versions=versions,
        settings=settings,
    )


def write(results: Results, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def merge(rows: Iterable[Row], goals: Iterable[Verdict], path: Path = RESULTS) -> None:
    """Write the rows and verdicts of a part, in place of those of its last run.

    The subject of a verdict is the text before the colon of its title; the goal after it may have changed.
    """
    rows, goals = tuple(rows), tuple(goals)
    cases, about = {row.case for row in rows}, {_about(goal) for goal in goals}
    old = read(path) if path.exists() else Results((), (), (), {}, {}, {})
    kept = tuple(row for row in old.rows if row.case not in cases)
    judged = tuple(goal for goal in old.goals if _about(goal) not in about)
    write(msgspec.structs.replace(old, rows=kept + rows, goals=judged + goals), path)


def _about(goal: Verdict) -> str:
    return goal.title.partition(":")[0]


def keep_parts(results: Results, path: Path = RESULTS) -> Results:
    """The results, with the rows and verdicts that other parts have written to the file."""
    if not path.exists():
        return results
    known = {case.name for case in CASES}
    old, ours = read(path), {goal.title for goal in GOALS}
    rows = tuple(row for row in old.rows if row.case not in known)
    goals = tuple(goal for goal in old.goals if goal.title not in ours)
    return msgspec.structs.replace(results, rows=results.rows + rows, goals=results.goals + goals)


def read(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)
