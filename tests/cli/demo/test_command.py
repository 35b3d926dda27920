"""`reknit demo`, as a user runs it, with fewer events and kills."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reknit.processes.process import tied
from tests.spark.quick import quick_environ

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]


def test_the_demo_shows_that_nothing_is_lost(tmp_path: Path) -> None:
    report, environ = tmp_path / "audit.html", {**os.environ, **quick_environ(), "COLUMNS": "100"}
    options = ["--events", "20000", "--kills", "3", "--report", str(report)]
    command = tied([sys.executable, "-m", "reknit", "demo", *options])
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environ, text=True, timeout=590.0)
    assert done.returncode == 0, done
    assert "Traceback" not in done.stderr, done.stderr
    assert "3 times kill -9" in done.stdout
    assert "Nothing is missing, and the ledger balances." in done.stdout
    assert done.stdout.rstrip().endswith("balanced")
    assert "The ledger balances" in report.read_text()
