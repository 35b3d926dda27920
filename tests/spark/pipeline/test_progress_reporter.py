"""A pipeline's progress in the status of the nodes that it reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from reknit.cli.status.screen import screen
from reknit.errors import LocalError
from reknit.node.admin.pipelines import PIPELINES_MAX, Pipelines
from reknit.spark.blocking_connection import BlockingConnection
from reknit.spark.pipeline.progress import PipelineProgress
from reknit.spark.pipeline.progress_reporter import ProgressReporter
from tests.spark.running_node import RunningNode


def told(node: RunningNode) -> list[dict[str, Any]]:
    with BlockingConnection(node.url) as link:
        rows: list[dict[str, Any]] = link.ask("status")["pipelines"]
    return rows


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 150
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_status_has_the_last_word_of_each_pipeline(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reknit.spark.pipeline.progress_reporter.INTERVAL_S", 0.02)
    progress = PipelineProgress()
    progress.put(stage="running", lag_bytes=4096, lost=3)
    with ProgressReporter(progress, "7", "/data/lake", [node.url, "tcp://127.0.0.1:1"]):
        wait_for(lambda: bool(told(node)))
        progress.add(settled=500)
        wait_for(lambda: told(node)[0]["settled"] == 500)
        node.stop()
        node.start()  # it has forgotten, and is told again
        wait_for(lambda: bool(told(node)))
        progress.put(stage="stopped")
    [row] = told(node)
    assert (row["lake"], row["stage"], row["lag_bytes"], row["lost"]) == ("/data/lake", "stopped", 4096, 3)
    assert row["events_s"] > 0


def test_status_screen_shows_pipelines(node: RunningNode) -> None:
    word = {
        "id": "1",
        "lake": "/data/[red]lake",
        "stage": "running",
        "lag_bytes": 2048,
        "settled": 12345,
        "lost": 2,
    }
    with BlockingConnection(node.url) as link:
        link.ask("pipeline", **word)
        body = link.ask("status")
    console = Console(width=160, record=True, file=StringIO())
    console.print(screen(body))
    text = console.export_text()
    assert "/data/[red]lake" in text
    assert "12,345" in text
    assert "2.0 KiB" in text
    body["pipelines"][0]["age_s"] = 90.0
    console.print(screen(body))
    assert "silent for 1 min 30 s" in console.export_text()


def test_metrics_show_pipelines_even_of_the_same_name(node: RunningNode) -> None:
    figures = {"lag_bytes": 2048, "settled": 12345, "lost": 2, "held": 7, "gaps": 1}
    with BlockingConnection(node.url) as link:
        link.ask("pipeline", id="1", lake="/lake", stage="settle", **figures)
        link.ask("pipeline", id="2", lake="/lake", stage="stopped")
    text = node.metrics()
    one, two = 'lake="/lake",pipeline="1"', 'lake="/lake",pipeline="2"'
    for line in (
        f"reknit_pipeline_lag_bytes{{{one}}} 2048.0",
        f"reknit_pipeline_lag_bytes{{{two}}} 0.0",
        f"reknit_pipeline_held_events{{{one}}} 7.0",
        f"reknit_pipeline_gaps{{{one}}} 1.0",
        f"reknit_pipeline_running{{{one}}} 1.0",
        f"reknit_pipeline_running{{{two}}} 0.0",
        f'reknit_pipeline_events_total{{{one},what="settled"}} 12345.0',
        f'reknit_pipeline_events_total{{{one},what="lost"}} 2.0',
    ):
        assert line in text.splitlines()
    [silent] = [
        line for line in text.splitlines() if line.startswith(f"reknit_pipeline_silent_seconds{{{one}}}")
    ]
    assert float(silent.split()[-1]) >= 0


def test_what_is_no_progress_is_refused() -> None:
    pipelines = Pipelines()
    for args in (
        {},
        {"id": "1", "lake": "x", "stage": 5},
        {"id": "1", "lake": "x" * 2000, "stage": "running"},
    ):
        with pytest.raises(LocalError):
            pipelines.note(args)
    assert pipelines.rows() == []


def test_the_longest_silent_pipeline_makes_room() -> None:
    pipelines = Pipelines()
    for number in [*range(PIPELINES_MAX), 0, PIPELINES_MAX]:
        pipelines.note({"id": str(number), "lake": "x", "stage": "running"})
    ids = [row["id"] for row in pipelines.rows()]
    assert len(ids) == PIPELINES_MAX
    assert "1" not in ids
    assert ids[-2:] == ["0", str(PIPELINES_MAX)]
