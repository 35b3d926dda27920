"""The pages on anycast: the example runs, and the tests that the reference names are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reknit.processes.process import NodeProcess, ending

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_reference_names_exists() -> None:
    page = (ROOT / "docs/reference/anycast.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    written = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert len(named) > 15
    assert named - written == set()


@pytest.mark.real
def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/anycast.md").read_text()
    rules, script, output = (
        re.search(pattern, page, re.DOTALL | re.MULTILINE)
        for pattern in (r"^```toml\n(.*?)^```", r"^```python\n(.*?)^```", r"^\$ python orders.py\n(.*?)^```")
    )
    assert rules and script and output  # noqa: PT018 - for the type checker, too
    (tmp_path / "reknit.toml").write_text(rules[1])
    node = NodeProcess(tmp_path)
    with ending(node):
        node.start()
        (tmp_path / "orders.py").write_text(script[1].replace("tcp://127.0.0.1:7440", node.url))
        command = [sys.executable, "orders.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == output[1]
        film, printed = (
            re.search(pattern, page, re.DOTALL | re.MULTILINE)
            for pattern in (r"^```python\n(# film.py.*?)^```", r"^\$ python film.py\n(.*?)^```")
        )
        assert film and printed  # noqa: PT018
        (tmp_path / "film.py").write_text(film[1].replace("tcp://127.0.0.1:7440", node.url))
        command = [sys.executable, "film.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert sorted(done.stdout.splitlines()) == sorted(printed[1].splitlines())
        trail = [sys.executable, "-m", "reknit", "trail", f"{'0' * 32}:1", "--node", node.url]
        done = subprocess.run(trail, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout in page
