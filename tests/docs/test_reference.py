"""The reference pages that come from code say what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from reknit.config import KNOWN, describe
from reknit.node.admin.metrics import FIGURES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, object]:
    return runpy.run_path(str(ROOT / "scripts" / "reference.py"))


@pytest.mark.parametrize("name", ["cli.md", "configuration.md", "http-api.md"])
def test_a_page_is_what_the_code_says(script: dict[str, object], name: str) -> None:
    pages = script["PAGES"]
    assert isinstance(pages, dict)
    written = (ROOT / "docs" / "reference" / name).read_text()
    assert written == pages[name](), f"{name} is out of date; run: make docs"


def test_every_setting_is_on_its_page() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    assert [row.name for row in describe() if f"`{row.name.partition('.')[2]}`" not in page] == []


def test_every_limit_is_on_its_page_with_its_default() -> None:
    page = (ROOT / "docs" / "reference" / "limits.md").read_text()
    limits = {
        name: one.default
        for name, one in KNOWN.items()
        if name.startswith("limits.") or (name.endswith("_max") and not name.endswith("_s_max"))
    }
    assert [
        name for name, value in limits.items() if f"| `{name}` | {_shown(name, value)} |" not in page
    ] == []


def _shown(name: str, value: float) -> str:
    """A default as the page has it."""
    units = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)) if "bytes" in name and value else ()
    for unit, size in units:
        if value % size == 0:
            return f"{value // size:g} {unit}"
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}" if value else "none"


def test_every_metric_is_on_its_page() -> None:
    page = (ROOT / "docs" / "how-to" / "observe.md").read_text()
    assert [figure.name for figure in FIGURES if f"`{figure.name}" not in page] == []
