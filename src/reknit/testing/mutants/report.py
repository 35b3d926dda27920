"""The results of mutants: as text, as JSON, and as the table of a documentation page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

from reknit.testing import checks
from reknit.testing.checks.promise import PROMISES
from reknit.testing.fabric.checks import CHECKS as FABRIC_CHECKS
from reknit.testing.mutants.runner import MutantResult

CHECKS: Final = ("<!-- checks: begin -->", "<!-- checks: end -->")
MUTANTS: Final = ("<!-- mutants: begin -->", "<!-- mutants: end -->")


def as_line(result: MutantResult) -> str:
    """A result as a line of text."""
    mutant = result.mutant
    return f"{mutant.name:<42} {mutant.capability:<20} {_seeds(result):>8}  {_first_line(result)}".rstrip()


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


def as_promises() -> str:
    """The table of all checks."""
    for module in iter_modules(checks.__path__):  # each enters its promises when it is imported
        import_module(f"{checks.__name__}.{module.name}")
    rows = [f"| core | `{name}` | {sentence} |" for name, sentence in sorted(PROMISES.items())]
    whole = {check.__name__: (check.__doc__ or "").splitlines()[0] for check in FABRIC_CHECKS}
    rows += [f"| fabric | `{name}` | {sentence} |" for name, sentence in sorted(whole.items())]
    return "\n".join(["| simulation | check | promise |", "| --- | --- | --- |", *rows])


def write_page(page: Path, results: Sequence[MutantResult], seeds: int) -> None:
    """Write the tables of checks and mutants between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    text = _between(text, CHECKS, as_promises(), page)
    page.write_text(_between(text, MUTANTS, as_table(results, seeds), page), encoding="utf-8")


def _between(text: str, marks: tuple[str, str], table: str, page: Path) -> str:
    """A page's text with a table between two marks."""
    before, begin, rest = text.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: add {marks[0]} and {marks[1]}")
    return f"{before}{begin}\n{table}\n{end}{after}"


def _seeds(result: MutantResult) -> str:
    return "survived" if result.seeds is None else str(result.seeds)


def _first_line(result: MutantResult) -> str:
    lines = result.problem.strip().splitlines()
    line = lines[-1] if lines and lines[0].endswith("(most recent call last):") else next(iter(lines), "")
    return line if len(line) <= 100 else f"{line[:100]}…"
