"""Mutants: a planted fault is found, a harmless change is not, and a fault that is out of date is refused."""

import json
from pathlib import Path

import pytest

from reknit.testing.mutants import runner
from reknit.testing.mutants.__main__ import main
from reknit.testing.mutants.catalogue import MUTANTS, chosen
from reknit.testing.mutants.mutant import Mutant, UnknownMutant
from reknit.testing.mutants.report import CHECKS, as_line, as_promises, summary, write_page
from reknit.testing.mutants.report import MUTANTS as MUTANT_MARKS
from reknit.testing.mutants.runner import MutantResult, run_mutant

HARMLESS = Mutant(
    name="harmless",
    module="reknit.protocol.publish.intake",
    old="        self.duplicates += head.count\n",
    new="        self.duplicates += 2 * head.count\n",
    breaks="nothing: no promise is about this count",
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_text_of_a_mutant_is_in_its_module_once(mutant: Mutant) -> None:
    mutant.check()


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("name", ["ack-before-sync", "retry-never-scheduled", "outcomes-not-repeated"])
def test_planted_fault_is_found(name: str) -> None:
    [mutant] = chosen([name])
    assert run_mutant(mutant, seeds=60).is_found


def test_harmless_change_survives() -> None:
    assert not run_mutant(HARMLESS, seeds=10).is_found


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant(name="gone", module=HARMLESS.module, old="no such text", new="", breaks=""),
        Mutant(name="twice", module=HARMLESS.module, old="self", new="", breaks=""),
        Mutant(name="no module", module="reknit.nowhere", old="a", new="b", breaks=""),
        Mutant(name="syntax", module=HARMLESS.module, old="class Intake:", new="class", breaks=""),
    ],
    ids=lambda mutant: mutant.name,
)
def test_mutant_that_can_not_be_planted_is_refused(mutant: Mutant) -> None:
    with pytest.raises(UnknownMutant, match=mutant.name):
        mutant.check()


def test_module_that_the_simulation_does_not_import_is_refused() -> None:
    mutant = Mutant(
        name="elsewhere",
        module="reknit.processes.workers",
        old="from __future__ import annotations",
        new="",
        breaks="",
    )
    with pytest.raises(UnknownMutant, match="does not import"):
        run_mutant(mutant, seeds=1)


def test_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "ack-before-sync", "--json", "--seeds", "60"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["capability"] == "protocol/publish"
    assert 1 <= row["seeds"] <= 60


def test_command_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "no-such-fault"]) == 2
    assert "no-such-fault" in capsys.readouterr().err


def _page(path: Path, *between: str) -> Path:
    path.write_text("\n".join([*CHECKS, "between", MUTANT_MARKS[0], *between, MUTANT_MARKS[1], "after\n"]))
    return path


def _rows(page: Path) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    return {row[1]: row for row in rows}


def test_table_has_a_row_for_every_mutant_and_keeps_those_that_were_not_run(tmp_path: Path) -> None:
    first, second, third = MUTANTS[:3]
    page = _page(tmp_path / "proof.md", "| old | gone-by-now | a promise | core | 7 | 500 |")
    write_page(page, [MutantResult(first, 3, "lost"), MutantResult(second, None)], 500)
    write_page(page, [MutantResult(third, 12, "lost")], 60)
    rows = _rows(page)
    assert [rows[one.name][-2:] for one in (first, second, third)] == [
        ["3", "500"],
        ["survived", "500"],
        ["12", "60"],
    ]
    assert rows[MUTANTS[3].name][-1] == "not run"
    assert "gone-by-now" not in rows
    assert {one.name for one in MUTANTS} < set(rows)
    text = page.read_text()
    assert f"2 of {len(MUTANTS)} mutants found, 1 survived, {len(MUTANTS) - 3} not run." in text
    assert "| `no_event_comes_twice` | A process gets no event twice" in text
    assert text.endswith("\nafter\n")


def test_results_are_told_in_a_line_each() -> None:
    results = [MutantResult(HARMLESS, 3, "lost"), MutantResult(HARMLESS, None)]
    assert summary(results, 500) == "1 of 2 mutants found within 500 seeds"
    assert as_line(results[1]).endswith("survived")


def test_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="no place"):
        write_page(page, [], 500)


def test_documentation_has_all_checks() -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/proof.md").read_text()
    assert as_promises() in page, "make mutants WRITE=1 writes it"


def test_seed_that_fails_without_the_fault_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def failure(mutant: Mutant, start: int, seeds: int) -> tuple[int, str] | None:
        bad = (3, 7) if mutant.module else (3,)
        return next(((seed, "lost") for seed in bad if start <= seed < start + seeds), None)

    monkeypatch.setattr(runner, "_first_failure", failure)
    assert run_mutant(HARMLESS, start=1, seeds=10).seeds == 7
    assert not run_mutant(HARMLESS, start=1, seeds=3).is_found
