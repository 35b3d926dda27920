"""A short campaign of real processes: every event is accounted for. `make chaos` runs a long one, with Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_event_of_a_short_campaign_is_accounted_for(tmp_path: Path) -> None:
    options = ("--seed", "12", "--minutes", "0.4", "--nodes", "3", "--every", "2", "--without", "spark")
    command = [sys.executable, "-m", "reknit.testing.chaos", *options, "--folder", str(tmp_path), "--json"]
    done = subprocess.run(
        [*command, "--report", str(tmp_path / "chaos.html")], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    found = json.loads(done.stdout)
    assert found["findings"] == []
    assert found["faults"] > 3
    assert found["delivered"] > found["published"] > 100
    assert "every event is accounted for" in (tmp_path / "chaos.html").read_text()
