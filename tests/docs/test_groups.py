"""The reference names tests; every one of them must be there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_reference_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reference/groups.md").read_text()))
    there = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        there |= set(re.findall(r"def (test_\w+)\(", path.read_text()))
    assert named - there == set()
