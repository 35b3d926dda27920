"""The Spark pipeline of a campaign: it runs beside the faults, and audits everything at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from reknit.errors import LocalError
from reknit.processes.process import Process, start_tied
from reknit.seqset import SeqSet
from reknit.testing.chaos.fabric import Fabric
from reknit.testing.chaos.record import parse

FINISH_S = 600.0
SPARK = ("--master", "local[2]", "--memory", "1g")


class ChaosPipeline(Process):
    """`reknit pipeline run` over the journals of all nodes."""

    def __init__(self, fabric: Fabric) -> None:
        self.lake = fabric.folder / "lake"
        self._nodes = ",".join(node.url for node in fabric.nodes.values())
        command = [
            *(sys.executable, "-m", "reknit", "pipeline", "run", "--lake", str(self.lake)),
            *("--nodes", self._nodes, "--data-loss", "go-on", "--grace", "600", *SPARK),
        ]
        super().__init__("pipeline", command, fabric.folder)

    def finish(self) -> None:
        """Capture what is left. Raises `LocalError`."""
        if self.is_running:
            self.stop_gently()
        self._run(*self.command[3:], "--once", "--grace", "0")

    def stop_gently(self) -> None:
        """SIGTERM, and time for the last commit."""
        assert self._running is not None
        self._running.terminate()
        try:
            self._running.wait(FINISH_S / 4)
        except subprocess.TimeoutExpired:
            self.kill()

    def audit(self) -> dict[str, Any]:
        """The audit of the tables, as `reknit pipeline audit --json` prints it."""
        command = ("pipeline", "audit", "--lake", str(self.lake), "--json", *SPARK)
        found: dict[str, Any] = json.loads(self._run(*command, good=(0, 1)))
        return found

    def _run(self, *words: str, good: Collection[int] = (0,)) -> str:
        """Run a command of reknit to its end, and return what it printed."""
        with self.log.open("ab") as log:
            process = start_tied(
                [sys.executable, "-m", "reknit", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.log.parent,
            )
        printed, _ = process.communicate(timeout=FINISH_S)
        if process.returncode not in good:
            raise LocalError(
                f"reknit {' '.join(words[:2])} ended with {process.returncode}: {self.output()[-2000:]}"
            )
        return str(printed.decode())

    def numbers(self) -> dict[str, SeqSet]:
        """The events in table `events`, by publisher. Read without Spark."""
        return events_in(self.lake)


def events_in(lake: Path) -> dict[str, SeqSet]:
    """The events in table `events` of a lake, by publisher and number."""
    import pyarrow.parquet as parquet

    from reknit.spark.lake.lake import Lake

    opened = Lake(lake)
    found: dict[str, SeqSet] = {}
    for path in opened.paths(opened.files("events")):
        table = parquet.ParquetFile(path).read(columns=["topic", "payload"])
        for topic, data in zip(table["topic"].to_pylist(), table["payload"].to_pylist(), strict=True):
            if topic.startswith("chaos/"):
                publisher, number = parse(data)
                found.setdefault(publisher, SeqSet()).add(number, number + 1)
    return found
