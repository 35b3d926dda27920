"""A node with rules, attacked at every door: nothing is found, and the page shows what was tried."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reknit.testing.attack.__main__ import attack
from reknit.testing.attack.credentials import Credential
from reknit.testing.attack.doors import NEEDS
from reknit.testing.attack.matrix import MARKS, Cell, table
from reknit.testing.attack.target import has
from reknit.testing.tables import table_of

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "security.md"


@pytest.mark.real
def test_an_attack_finds_nothing_and_the_page_shows_what_was_tried() -> None:
    report = asyncio.run(attack())
    assert report.findings == []
    shown = table_of(PAGE.read_text(encoding="utf-8"), MARKS)
    tried = {cell.door for cell in report.cells}
    absent = {door for door, packages in NEEDS.items() if not all(map(has, packages))}
    rows = [row for row in shown.splitlines() if row.split("|")[1].strip() not in absent]
    assert rows == table(report.cells).splitlines(), "make attack WRITE=1"
    assert not tried & absent


@pytest.mark.parametrize(
    ("credential", "happened", "words", "problem"),
    [
        (Credential.RIGHT, True, "", ""),
        (Credential.NONE, False, "403 no", ""),
        (Credential.RIGHT, False, "403 no", "was refused: 403 no"),
        (Credential.EXPIRED, True, "200", "succeeded: 200"),
        (Credential.WRONG, False, "no answer", "was not answered"),
    ],
)
def test_only_the_right_credential_may_succeed_and_every_other_is_answered(
    credential: Credential, happened: bool, words: str, problem: str
) -> None:
    found = Cell("tcp", "publish", credential, happened, words).problem
    assert problem in found
    assert bool(problem) == bool(found)
