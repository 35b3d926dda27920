"""A run tells a catalog what it read and wrote."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from reknit.spark.lake.lake import Lake
from reknit.spark.pipeline.lineage import told_lineage
from reknit.spark.pipeline.pipeline import Pipeline, PipelineFailed, PipelineSettings
from tests.spark.lakes import write_events

NODE = "tcp://127.0.0.1:1"


def test_events_of_a_run_go_to_a_file(tmp_path: Path) -> None:
    lake, target = Lake.create(tmp_path / "lake"), tmp_path / "lineage.jsonl"
    with told_lineage(str(target), lake, [NODE]):
        write_events(lake.root, {"plant/a": 5})
    start, end = map(json.loads, target.read_text().splitlines())
    assert (start["eventType"], start["outputs"], end["eventType"]) == ("START", [], "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["inputs"] == [{"namespace": NODE, "name": "journal"}]
    [output] = end["outputs"]
    assert (output["namespace"], output["name"]) == ("file", str(lake.root / "events"))
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 5


def test_run_that_fails_is_told_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "lineage.jsonl"

    def fail(self: Pipeline) -> None:
        raise PipelineFailed("settle", "it broke")

    monkeypatch.setattr(Pipeline, "_run_despite_slow_starts", fail)
    settings = PipelineSettings((NODE,), is_once=True, allow_missing=True, lineage=str(target))
    nothing: Any = None
    with pytest.raises(PipelineFailed):
        Pipeline(nothing, Lake.create(tmp_path / "lake"), settings).run()
    end = json.loads(target.read_text().splitlines()[-1])
    assert end["eventType"] == "FAIL"
    assert end["run"]["facets"]["errorMessage"]["message"] == "stage settle: it broke"


class Catalog(BaseHTTPRequestHandler):
    got: list[tuple[str, str | None, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(201)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def catalog() -> Iterator[tuple[str, type[Catalog]]]:
    handler = type("One", (Catalog,), {"got": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def test_events_of_a_run_go_to_a_server(
    tmp_path: Path, catalog: tuple[str, type[Catalog]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = catalog
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "oak")
    with told_lineage(f"{url}/", Lake.create(tmp_path / "lake"), [NODE]):
        pass
    assert [(path, key, event["eventType"]) for path, key, event in handler.got] == [
        ("/api/v1/lineage", "Bearer oak", "START"),
        ("/api/v1/lineage", "Bearer oak", "COMPLETE"),
    ]


def test_server_that_is_away_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = False
    with (
        caplog.at_level(logging.WARNING),
        told_lineage("http://127.0.0.1:1", Lake.create(tmp_path / "lake"), [NODE]),
    ):
        done = True
    assert done
    assert "the lineage of this run could not be told to http://127.0.0.1:1" in caplog.text
