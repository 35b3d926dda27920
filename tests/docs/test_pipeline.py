"""The examples that read tables with other tools print what the page says, with the tools that are installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.lakes import write_events

PAGE = Path(__file__).parents[2] / "docs/how-to/pipeline.md"
BLOCK = re.compile(r"^```python\n# counts.py\nimport (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = {found[1]: f"import {found[1]}\n{found[2]}" for found in BLOCK.finditer(PAGE.read_text())}


@pytest.mark.parametrize("tool", sorted(EXAMPLES))
def test_tool_reads_the_table(tool: str, tmp_path: Path) -> None:
    pytest.importorskip(tool)
    write_events(tmp_path / "lake", {"plant/temp": 10_000, "plant/hum": 20})
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[tool]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = re.search(r"`(\[\('plant/hum'.*?\])`", PAGE.read_text())
    assert printed is not None
    assert done.stdout.strip() == printed[1]


def test_page_has_an_example_for_each() -> None:
    assert sorted(EXAMPLES) == ["duckdb", "pandas", "polars"]
