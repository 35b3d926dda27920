"""The examples in docs/how-to/amqp.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reknit.processes.process import free_port
from tests.docs.test_examples import ROOT, Terminal, commands, comparable, save

pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
pytestmark = pytest.mark.real

PAGE = ROOT / "docs" / "how-to" / "amqp.md"
BLOCK = re.compile(r"^```(python|console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:5672"


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    terminal = Terminal(tmp_path, free_port())
    try:
        for language, text in BLOCK.findall(PAGE.read_text().replace(ADDRESS, address)):
            if language == "toml" and text.startswith("# reknit.toml\n"):
                (tmp_path / "reknit.toml").write_text(text)
            elif language == "python":
                save(text, terminal)
            elif language == "console":
                follow(text, terminal)
        assert terminal.run("python orders.py").count("free order") == 4
    finally:
        terminal.close()


def follow(text: str, terminal: Terminal) -> None:
    for command, output in commands(text):
        got = terminal.run(command)
        if not command.startswith("reknit up"):
            assert comparable(got, terminal.url) == comparable(output, terminal.url), command
