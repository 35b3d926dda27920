"""The results of mutants: as text, as JSON, and as the table of a documentation page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from reknit.testing.mutants.runner import MutantResult

BEGIN: Final = "<!-- mutants: begin -->"
END: Final = "<!-- mutants: end -->"


def as_text(results: Sequence[MutantResult], seeds: int) -> str:
    """A table, and a last line that says how many were found."""
    lines = [
        f"{result.mutant.name:<42} {result.mutant.capability:<20} {_seeds(result):>8}  {_first_line(result)}"
        for result in results
    ]
    return "\n".join([*lines, summary(results, seeds)])


def summary(results: Sequence[MutantResult], seeds: int) -> str:
    """How many mutants were found within how many seeds."""
    found = sum(result.is_found for result in results)
    return f"{found} of {len(results)} mutants found within {seeds} seeds"


def as_json(results: Sequence[MutantResult]) -> list[dict[str, Any]]:
    """A row for each mutant; `seeds` is null for one that survived."""
    return [
        {
            "name": result.mutant.name,
            "capability": result.mutant.capability,
            "module": result.mutant.module,
            "breaks": result.mutant.breaks,
            "simulation": result.mutant.simulation,
            "seeds": result.seeds,
            "problem": result.problem,
        }
        for result in results
    ]


def as_table(results: Sequence[MutantResult], seeds: int) -> str:
    """The table of a documentation page."""
    rows = [
        f"| {result.mutant.capability} | {result.mutant.name} | {result.mutant.breaks} "
        f"| {result.mutant.simulation} | {_seeds(result)} |"
        for result in results
    ]
    head = [
        "| package | fault | the promise that it breaks | simulation | seeds |",
        "| --- | --- | --- | --- | --- |",
    ]
    return "\n".join([f"{summary(results, seeds)}.", "", *head, *rows])


def write_page(page: Path, results: Sequence[MutantResult], seeds: int) -> None:
    """Write the table between the two marks of a page."""
    text = page.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{page} has no place for the table: add {BEGIN} and {END}")
    table = as_table(results, seeds)
    page.write_text(f"{before}{mark}\n{table}\n{end}{after}", encoding="utf-8")


def _seeds(result: MutantResult) -> str:
    return "survived" if result.seeds is None else str(result.seeds)


def _first_line(result: MutantResult) -> str:
    lines = result.problem.strip().splitlines()
    line = lines[-1] if lines and lines[0].endswith("(most recent call last):") else next(iter(lines), "")
    return line if len(line) <= 100 else f"{line[:100]}…"
