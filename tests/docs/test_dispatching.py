"""The reference names the tests that show each line of the specification: they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/dispatching.md"


def test_every_test_that_the_reference_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    written = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert named - written == set()


def test_every_demand_of_the_specification_has_a_test() -> None:
    rows = re.findall(r"^\| (MUST|MUST NOT|SHALL|SHOULD|MAY) \|.*$", PAGE.read_text(), re.MULTILINE)
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (MUST|SHALL|SHOULD|MAY)", line)]
    assert [line for line in lines if "`test_" not in line] == []
    assert {kind: rows.count(kind) for kind in sorted(set(rows))} == {
        "MAY": 2,
        "MUST": 8,
        "MUST NOT": 1,
        "SHALL": 1,
        "SHOULD": 2,
    }
