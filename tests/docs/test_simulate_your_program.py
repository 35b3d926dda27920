"""The page about simulating your own program: its test finds the bug, and passes with its repair."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path("docs/how-to/simulate-your-program.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _run(tmp_path: Path, test: str, *more: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "conftest.py").write_text(BLOCKS[0])
    (tmp_path / "test_orders.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py", *more]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.real
def test_the_example_finds_the_bug_and_its_replay_too(tmp_path: Path) -> None:
    failed = _run(tmp_path, BLOCKS[1])
    assert failed.returncode == 1
    replay = re.search(
        r"replay it: pytest 'test_orders.py::test_every_order_counts_once' (.*)", failed.stdout
    )
    assert replay is not None
    again = _run(tmp_path, BLOCKS[1], *replay[1].split())
    assert again.returncode == 1
    assert replay[1] in again.stdout


@pytest.mark.real
def test_the_repaired_example_passes(tmp_path: Path) -> None:
    bug = '            database["total"] += int(order.payload)\n'
    loop = "        async for order in orders:\n"
    assert bug in BLOCKS[1]
    repaired = BLOCKS[1].replace(loop + bug, BLOCKS[2]).replace('{"total": 0}', '{"total": 0, "seen": set()}')
    assert repaired.count("seen") == 3
    passed = _run(tmp_path, repaired)
    assert passed.returncode == 0, passed.stdout
