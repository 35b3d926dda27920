"""The reference names a test for every sentence of the specification: each of these tests exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_reference_names_exists() -> None:
    page = (ROOT / "docs" / "reference" / "tunnels.md").read_text("utf-8")
    named = set(re.findall(r"\b(test_\w+)`", page))
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    assert len(named) > 25
    assert named <= known, f"not there: {sorted(named - known)}"
