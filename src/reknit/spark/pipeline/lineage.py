"""Tells a catalog of data what a run read and wrote, by OpenLineage. The pipeline never fails because of it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

from reknit.spark.lake.lake import Lake
from reknit.spark.lake.tables import TABLES
from reknit.version import __version__

__all__ = ["told_lineage"]

log = logging.getLogger("reknit.spark")

TIMEOUT_S: Final = 5.0
PATH: Final = "/api/v1/lineage"
PRODUCER: Final = f"urn:reknit:{__version__}"
_SPEC: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS: Final = "https://openlineage.io/spec/facets/1-0-0/"


@contextmanager
def told_lineage(target: str, lake: Lake, nodes: Sequence[str]) -> Iterator[None]:
    """Tell of a run: START before the block, COMPLETE or FAIL after it.

    `target` is the URL of a server for OpenLineage, or a file that gets a line for each event; empty: nobody is told.
    """
    if not target:
        yield
        return
    told = _Run(target, lake, nodes)
    told.tell("START")
    try:
        yield
    except BaseException as error:
        told.tell("FAIL", str(error) or type(error).__name__)
        raise
    told.tell("COMPLETE")


class _Run:
    def __init__(self, target: str, lake: Lake, nodes: Sequence[str]) -> None:
        self._target, self._lake = target, lake
        self._id = str(uuid4())
        self._inputs = [{"namespace": url, "name": "journal"} for url in nodes]
        self._before = self._rows()

    def tell(self, kind: str, error: str = "") -> None:
        """Send an event. A server that does not take it is a warning in the log."""
        try:
            self._send(json.dumps(self._event(kind, error)).encode())
        except OSError as failed:
            log.warning("the lineage of this run could not be told to %s: %s", self._target, failed)

    def _send(self, data: bytes) -> None:
        if urlsplit(self._target).scheme not in ("http", "https"):
            with open(self._target, "ab") as file:
                file.write(data + b"\n")
            return
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = Request(self._target.rstrip("/") + PATH, data, headers, method="POST")
        with urlopen(request, timeout=TIMEOUT_S):
            pass

    def _event(self, kind: str, error: str) -> dict[str, Any]:
        facets = {}
        if error:
            facets["errorMessage"] = _facet(
                "ErrorMessageRunFacet", message=error, programmingLanguage="Python"
            )
        return {
            "eventType": kind,
            "eventTime": datetime.now(UTC).isoformat(),
            "producer": PRODUCER,
            "schemaURL": _SPEC,
            "run": {"runId": self._id, "facets": facets},
            "job": {"namespace": "reknit", "name": f"pipeline {self._lake.storage.root}"},
            "inputs": self._inputs,
            "outputs": [] if kind == "START" else list(self._outputs()),
        }

    def _outputs(self) -> Iterator[dict[str, Any]]:
        """The tables that this run added rows to."""
        for name, rows in self._rows().items():
            if rows > self._before[name]:
                added = _facet("OutputStatisticsOutputDatasetFacet", rowCount=rows - self._before[name])
                yield {**self._dataset(name), "outputFacets": {"outputStatistics": added}}

    def _dataset(self, table: str) -> dict[str, str]:
        storage = self._lake.storage
        parts = urlsplit(storage.url(table))
        if storage.is_local:
            return {"namespace": "file", "name": storage.url(table)}
        return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.lstrip("/")}

    def _rows(self) -> dict[str, int]:
        """The rows of each table that grows."""
        grown = [table.name for table in TABLES if not table.is_state]
        return {name: sum(file.rows for file in self._lake.files(name)) for name in grown}


def _facet(kind: str, **values: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{_FACETS}{kind}.json#/$defs/{kind}", **values}
