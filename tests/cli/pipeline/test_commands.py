"""The commands of `reknit pipeline` before Spark starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reknit.cli.main import app


def test_a_missing_spark_is_one_line_that_says_how_to_install_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from reknit.cli.main import main; main()"
    command = [sys.executable, "-c", code, "pipeline", "audit", "--lake", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "error: the pipeline needs Spark (pyspark is not installed): pip install 'reknit[spark]'\n"
    )


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["run", "--data-loss", "maybe"], "--data-loss 'maybe' is not valid: use fail or go-on"),
        (["latency", "--by", "topic,reason"], "--by 'reason' is not a known column"),
        (["dead-letters", "--by", "colour"], "--by 'colour' is not a known column"),
    ],
)
def test_a_wrong_option_is_refused_before_spark_starts(tmp_path: Path, args: list[str], error: str) -> None:
    result = CliRunner().invoke(app, ["pipeline", *args, "--lake", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert error in result.output
