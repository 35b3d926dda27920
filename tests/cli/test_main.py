"""The command line starts fast, and every command has help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reknit.cli.main import app
from reknit.processes.process import start_tied

runner = CliRunner()

HEAVY = (
    "msgspec",
    "uvloop",
    "rich",
    "lmdb",
    "pyspark",
    "prometheus_client",
    "zenoh",
    "reknit.config",
)


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, reknit.cli.main as m; print([n for n in sys.argv[1:] if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command", ["up", "pub", "sub", "status", "ledger", "config", "demo", "dead-letters"]
)
def test_every_command_has_help(command: str) -> None:
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_no_command_shows_the_help() -> None:
    assert "Commands:" in runner.invoke(app, []).output


def test_the_version_is_printed() -> None:
    assert runner.invoke(app, ["--version"]).stdout.startswith("reknit ")


def test_a_setting_by_set_applies_unless_its_flag_is_given(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reknit", "up", "--journal", "memory", "--listen", "tcp://127.0.0.1:0"]
    node = start_tied(
        [*command, "--set", "node.name=by-set"], stdout=subprocess.PIPE, cwd=tmp_path, text=True
    )
    try:
        assert node.stdout is not None
        assert node.stdout.readline().startswith("by-set listens on tcp://127.0.0.1:")
    finally:
        node.terminate()
        node.communicate(timeout=150)
