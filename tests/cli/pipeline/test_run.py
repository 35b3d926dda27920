"""`reknit pipeline run` before Spark starts: what is wrong is said at once, and nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from reknit.cli.main import app
from reknit.cli.pipeline import pipeline_run
from reknit.spark.lake.commits import Commit
from reknit.spark.lake.lake import Lake
from reknit.spark.pipeline.pipeline import Pipeline, PipelineFailed
from tests.spark.running_node import RunningNode
from tests.tokens import write_tokens

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The command handles signals: afterwards they are handled as before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., RunningNode]]:
    started: list[RunningNode] = []

    def make(name: str = "line1", **settings: Any) -> RunningNode:
        started.append(RunningNode(tmp_path / name, name, **settings))
        return started[-1]

    yield make
    for node in started:
        node.close()


def run(lake: Path, *args: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", "run", "--lake", str(lake), *args])


def test_run_without_its_node_fails_and_names_it(tmp_path: Path) -> None:
    result = run(tmp_path / "lake", "--once", "--nodes", "tcp://127.0.0.1:1")
    assert result.exit_code == 1
    assert "tcp://127.0.0.1:1" in result.output
    assert "--allow-missing" in result.output
    assert not (tmp_path / "lake").exists()


def test_node_that_refuses_leaves_no_lake(tmp_path: Path, make_node: Callable[..., RunningNode]) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"tables": "oak"})
    node = make_node(security__tokens_file=tokens, security__allow=["tables subscribe **"])
    for mode in ([], ["--once"], ["--once", "--allow-missing"]):
        result = run(tmp_path / "lake", "--nodes", node.url, *mode)
        assert result.exit_code == 1, result.output
        assert not (tmp_path / "lake").exists()


def test_lake_that_another_process_writes_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path / "lake")
    with lake.locked():
        monkeypatch.setattr(pipeline_run, "spark_session", lambda on: pytest.fail("Spark was started"))
        result = run(lake.root, "--once", "--allow-missing", "--nodes", "tcp://127.0.0.1:1")
    assert result.exit_code == 1
    assert "another process writes this lake" in result.output


def test_signal_while_spark_starts_is_answered(tmp_path: Path) -> None:
    code = """
import contextlib, os, signal, sys
from reknit.cli.main import main
from reknit.cli.pipeline import pipeline_run

@contextlib.contextmanager
def starting(on):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.sigtimedwait([], 60)
    except Exception:
        os._exit(99)
    yield None

pipeline_run.spark_session = starting
main()
"""
    args = ["pipeline", "run", "--allow-missing", "--nodes", "tcp://127.0.0.1:1", "--lake", str(tmp_path)]
    for mode, expected in (([], 0), (["--once"], 130)):
        done = subprocess.run([sys.executable, "-c", code, *args, *mode], capture_output=True, text=True)
        assert done.returncode == expected, done.stderr
        assert "stopped before Spark had started" in done.stderr


def test_error_of_the_source_is_told_in_words_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Pipeline) -> None:
        raise PipelineFailed("capture batches", "it was removed; set failOnDataLoss=false to continue")

    class Session:
        def __enter__(self) -> None: ...

        def __exit__(self, *args: object) -> None: ...

    monkeypatch.setattr(Pipeline, "run", fail)
    monkeypatch.setattr(pipeline_run, "spark_session", lambda on: Session())
    result = run(tmp_path / "lake", "--once", "--allow-missing", "--nodes", "tcp://127.0.0.1:1")
    assert result.exit_code == 1
    assert "run with --data-loss go-on to continue" in result.output
    assert "failOnDataLoss" not in result.output


def refused(lake: Path, monkeypatch: pytest.MonkeyPatch, *args: str) -> str:
    """Run on a lake that can't be used; returns what is said before Spark starts."""
    monkeypatch.setattr(pipeline_run, "spark_session", lambda on: pytest.fail("Spark was started"))
    result = run(lake, "--once", "--allow-missing", "--nodes", "tcp://127.0.0.1:1", *args)
    assert result.exit_code == 1
    return result.output


def test_lake_that_can_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    told = refused(tmp_path / "file" / "lake", monkeypatch)
    assert "file/lake: can't be written (Not a directory); use a folder that can be written" in told


def test_lake_of_an_older_format_is_refused_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake.json").write_text('{"format":1,"id":"x"}')
    told = refused(tmp_path, monkeypatch)
    assert f"it has format 1; bring it over with reknit pipeline migrate --lake {tmp_path}" in told


def test_deleted_or_foreign_checkpoint_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path / "lake")
    lake.commit(Commit("capture_batches", 0, 0, meta={"query": "q1"}))
    assert "the checkpoint of batches is missing" in refused(lake.root, monkeypatch)
    (lake.root / "_checkpoints/batches").mkdir(parents=True)
    (lake.root / "_checkpoints/batches/metadata").write_text('{"id":"q2"}')
    told = refused(lake.root, monkeypatch)
    assert "batches was written with other checkpoints" in told
    assert "restore the lake's own checkpoints, or start a new lake" in told


def test_archive_that_is_no_lake_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refused(tmp_path / "lake", monkeypatch, "--archive", str(tmp_path / "old"))
    assert "old: there is no such folder" in told
    assert not (tmp_path / "lake").exists()
