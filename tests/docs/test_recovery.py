"""The reference names the tests that show each case: they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_reference_names_exists() -> None:
    page = (ROOT / "docs/reference/recovery.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    written = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert named - written == set()
    assert {f"test_case_{number:02}" for number in range(1, 17)} <= {name[:12] for name in named}
