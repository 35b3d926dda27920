"""Reports a pipeline's progress to the nodes that it reads, for their status. The pipeline never waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from reknit.errors import Refused, ReknitError
from reknit.spark.blocking_connection import BlockingConnection
from reknit.spark.pipeline.lake_report import last_audit, table_sizes
from reknit.spark.pipeline.progress import PipelineProgress
from reknit.transport.tls import NO_FILES, TlsFiles

__all__ = ["ProgressReporter"]

log = logging.getLogger("reknit.spark")

INTERVAL_S: Final = 2.0
TIMEOUT_S: Final = 3.0
_FIGURES: Final = (
    "stage",
    "lag_bytes",
    "batches",
    "settled",
    "lost",
    "late",
    "held",
    "gaps",
    "dead_letters",
    "away",
    "positions",
)
LAKE_S: Final = 30.0
"""How often the lake's files are looked at."""


class ProgressReporter:
    """Reports from a thread of its own, in a `with` block. A node that does not answer is tried again."""

    def __init__(
        self,
        progress: PipelineProgress,
        id: str,
        lake: str,
        urls: Sequence[str],
        token: str = "",
        tls: TlsFiles = NO_FILES,
    ) -> None:
        self._progress, self._id, self._lake = progress, id, lake
        self._urls, self._token, self._tls = urls, token, tls
        self._connections: dict[str, BlockingConnection] = {}
        self._refusing: set[str] = set()
        """Nodes that refused the report: they are not asked again."""
        self._found: dict[str, Any] = {}
        self._look_at = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reknit-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S * (1 + len(self._urls)))

    def _run(self) -> None:
        while not self._is_over.wait(INTERVAL_S):
            self._report_to_all()
        self._look_at = 0.0
        self._report_to_all()
        for connection in self._connections.values():
            connection.close()

    def _report_to_all(self) -> None:
        report = self._report()
        for url in self._urls:
            if url not in self._refusing:
                self._send(url, report)

    def _report(self) -> dict[str, Any]:
        figures = msgspec.to_builtins(self._progress.figures)
        batches_s, events_s = self._progress.rates()
        named = {name: figures[name] for name in _FIGURES}
        rates = {"batches_s": batches_s, "events_s": events_s}
        return {"id": self._id, "lake": self._lake, **rates, **named, **self._of_lake()}

    def _of_lake(self) -> dict[str, Any]:
        """Its tables and its last audit, as they were a while ago."""
        if time.monotonic() >= self._look_at:
            root = Path(self._lake)
            self._found = {"tables": table_sizes(root), "audit": last_audit(root)}
            self._look_at = time.monotonic() + LAKE_S
        return self._found

    def _send(self, url: str, report: dict[str, Any]) -> None:
        connection = self._connections.pop(url, None)
        try:
            connection = connection or BlockingConnection(url, self._token, TIMEOUT_S, self._tls)
            connection.ask("pipeline", **report)
            self._connections[url] = connection
        except (ReknitError, OSError) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, Refused):
                self._refusing.add(url)
                log.warning("%s refuses the pipeline's progress: %s", url, error)
