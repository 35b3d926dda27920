"""The examples in README and docs run, against a real node, and print what they say.

In a ```console block, `$` starts a command and the lines after it are what it prints (times and checkpoints aside).
A ```python block whose first line is a comment with a file's name is saved under it. `reknit up` is left running.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reknit.processes.process import free_port, start_tied

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/tutorial/first-steps.md",
    "docs/how-to/publish.md",
    "docs/how-to/subscribe.md",
    "docs/how-to/schedule.md",
    "docs/how-to/handlers.md",
    "docs/how-to/queues.md",
    "docs/how-to/blocking.md",
    "docs/how-to/dead-letters.md",
    "docs/how-to/backup.md",
    "docs/how-to/fuzz.md",
    "docs/how-to/limits.md",
    "docs/how-to/retries.md",
    "docs/how-to/rpc.md",
]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIME = re.compile(r"\d\d:\d\d:\d\d\.\d\d\d")
CHECKPOINT = re.compile(r"c1\.[\w-]+")
PATIENCE_S = 30.0


class Terminal:
    """Runs a page's commands in a folder of its own, with a node on a port of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"tcp://127.0.0.1:{port}"
        scripts = str(Path(sys.executable).parent)
        self._environ = {
            **os.environ,
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "REKNIT_NODE__LISTEN": self.url,
            "COLUMNS": "100",
        }
        self.node: subprocess.Popen[str] | None = None

    def run(self, command: str) -> str:
        if command.startswith("reknit up"):
            return self._up(command)
        if self.node is None:
            self._up("reknit up")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        return done.stdout

    def _up(self, command: str) -> str:
        self.node = start_tied(
            command.split(), cwd=self.folder, env=self._environ, stdout=subprocess.PIPE, text=True
        )
        assert self.node.stdout is not None
        return self.node.stdout.readline()

    def close(self) -> None:
        if self.node is not None:
            self.node.send_signal(signal.SIGINT)
            self.node.communicate(timeout=PATIENCE_S)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path, free_port())
    yield made
    made.close()


def comparable(text: str, url: str) -> list[str]:
    text = text.replace(url, "tcp://127.0.0.1:7440")
    text = CHECKPOINT.sub("CHECKPOINT", TIME.sub("TIME", text))
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def commands(block: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints)."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page: str, terminal: Terminal) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks, "a page without an example that runs"
    for language, text in blocks:
        if language == "python":
            save(text, terminal)
            continue
        for command, output in commands(text):
            got = terminal.run(command)
            assert comparable(got, terminal.url) == comparable(output, terminal.url), command


def save(text: str, terminal: Terminal) -> None:
    name = re.match(r"# (\w+\.py)\n", text)
    assert name is not None, f"no name for a script: {text[:60]!r}"
    (terminal.folder / name[1]).write_text(text.replace("tcp://127.0.0.1:7440", terminal.url))


def test_every_link_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []
