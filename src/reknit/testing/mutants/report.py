"""The results of mutants: as text, as JSON, and as the table of a documentation page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

from reknit.testing import checks
from reknit.testing.checks.promise import PROMISES
from reknit.testing.fabric.checks.events import CHECKS as FABRIC_CHECKS
from reknit.testing.mutants.catalogue import MUTANTS as CATALOGUE
from reknit.testing.mutants.mutant import Mutant
from reknit.testing.mutants.runner import MutantResult
from reknit.testing.tables import table_of, with_table

CHECKS: Final = ("<!-- checks: begin -->", "<!-- checks: end -->")
MUTANTS: Final = ("<!-- mutants: begin -->", "<!-- mutants: end -->")
COLUMNS: Final = 6
"""Of the table of mutants."""


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


Found = tuple[str, str]
"""What a row says of a mutant: after how many seeds it was found, and within how many it was looked for."""
NOT_RUN: Final[Found] = ("not run", "")


def as_table(mutants: Sequence[Mutant], found: Mapping[str, Found]) -> str:
    """The table of a documentation page: a row for each of these mutants, and what was found, by name."""
    rows = [
        f"| {one.capability} | {one.name} | {one.breaks} | {one.simulation} "
        f"| {' | '.join(found.get(one.name, NOT_RUN))} |"
        for one in mutants
    ]
    head = [
        "| package | fault | the promise that it breaks | simulation | found after seeds | of |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    ends = [found.get(one.name, NOT_RUN)[0] for one in mutants]
    count = sum(end.isdigit() for end in ends)
    left = [f"{ends.count(end)} {end}" for end in ("survived", "not run") if end in ends]
    return "\n".join([f"{', '.join([f'{count} of {len(ends)} mutants found', *left])}.", "", *head, *rows])


def _found_before(text: str) -> dict[str, Found]:
    """What the rows of a table say, by the name of the mutant."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line[:2] == "| "
    ]
    return {row[1]: (row[-2], row[-1]) for row in rows if len(row) == COLUMNS}


def as_promises() -> str:
    """The table of all checks."""
    for module in iter_modules(checks.__path__):  # each enters its promises when it is imported
        import_module(f"{checks.__name__}.{module.name}")
    rows = [f"| core | `{name}` | {sentence} |" for name, sentence in sorted(PROMISES.items())]
    whole = {check.__name__: (check.__doc__ or "").splitlines()[0] for check in FABRIC_CHECKS}
    rows += [f"| fabric | `{name}` | {sentence} |" for name, sentence in sorted(whole.items())]
    return "\n".join(["| simulation | check | promise |", "| --- | --- | --- |", *rows])


def write_page(page: Path, results: Sequence[MutantResult], seeds: int) -> None:
    """Write the tables of checks and mutants between the marks of a page.

    There is one row for each mutant of the catalogue. Those that were not run now keep what their rows say.
    """
    text = page.read_text(encoding="utf-8")
    text = with_table(text, CHECKS, as_promises(), page)
    found = _found_before(table_of(text, MUTANTS))
    found |= {result.mutant.name: (_seeds(result), str(seeds)) for result in results}
    page.write_text(with_table(text, MUTANTS, as_table(CATALOGUE, found), page), encoding="utf-8")


def _seeds(result: MutantResult) -> str:
    return "survived" if result.seeds is None else str(result.seeds)


def _first_line(result: MutantResult) -> str:
    lines = result.problem.strip().splitlines()
    line = lines[-1] if lines and lines[0].endswith("(most recent call last):") else next(iter(lines), "")
    return line if len(line) <= 100 else f"{line[:100]}…"
