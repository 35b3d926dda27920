"""The page on links: every command on it runs, with addresses of this machine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from reknit.processes.process import Process, ending, free_port

pytestmark = pytest.mark.real

PAGE = Path(__file__).parents[2] / "docs/how-to/links.md"
PATIENCE_S = 60.0
ADDRESS = re.compile(r"tcp://[\d.]+:\d+")


def commands() -> list[list[str]]:
    """All of them, each address replaced by a free one of this machine."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    own = {address: f"tcp://127.0.0.1:{free_port()}" for line in lines for address in ADDRESS.findall(line)}
    north = own["tcp://127.0.0.1:7440"]
    replaced = [ADDRESS.sub(lambda found: own[found[0]], line) for line in lines]
    words = [shlex.split(line)[1:] for line in replaced]
    return [[*line, "--node", north] if line[0] == "route" else line for line in words]


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def reknit(words: list[str], folder: Path) -> None:
    command = [sys.executable, "-m", "reknit", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, (words, done.stderr)


def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    running: list[Process] = []

    def came(words: list[str]) -> bool:
        """The subscriber may only just be starting: publish until it has something."""
        reknit(words, tmp_path)
        return "21.5" in running[-1].output()

    try:
        for number, words in enumerate(commands()):
            if words[0] in ("up", "sub"):
                command = [sys.executable, "-m", "reknit", *words]
                running.append(Process(f"{words[0]}{number}", command, tmp_path))
                running[-1].start()
                wait(lambda: running[-1].name.startswith("sub") or "listens" in running[-1].output())
            elif words[0] == "pub":
                wait(partial(came, words))
            else:
                reknit(words, tmp_path)
    finally:
        with ending(*running):
            pass
