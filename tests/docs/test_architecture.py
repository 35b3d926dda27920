"""The pages about the source tree name files that exist, and all packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "reknit"
PAGES = ROOT / "docs" / "explanation"
PATH = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py|(?:[a-z_]+/)+)`")


@pytest.mark.parametrize("page", ["architecture.md", "where-is.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    named = PATH.findall((PAGES / page).read_text())
    assert len(named) > 20
    assert [name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()] == []


def test_the_tree_shows_every_package() -> None:
    tree = (PAGES / "architecture.md").read_text().split("```")[1]
    packages = {folder.parent.relative_to(SOURCE) for folder in SOURCE.rglob("__init__.py")} - {Path()}
    shown = [
        one
        for one in packages
        if len(one.parts) == 1 or one.parts[0] in ("protocol", "node", "client", "spark")
    ]
    assert [str(one) for one in shown if f"{one.name}/" not in tree and len(one.parts) < 3] == []


def test_twenty_questions_are_answered() -> None:
    rows = re.findall(r"^\| (\d+)\. .*\?", (PAGES / "where-is.md").read_text(), re.MULTILINE)
    assert list(map(int, rows)) == list(range(1, 21))


def test_every_package_says_what_it_is_for_and_where_to_begin() -> None:
    bare = []
    for file in sorted(SOURCE.rglob("__init__.py")):
        text = file.read_text()
        if text.count("\n") < 3 or ".py`" not in text:
            bare.append(str(file.relative_to(SOURCE)))
    assert bare == []
