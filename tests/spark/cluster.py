"""A standalone Spark cluster for tests: a master and workers on loopback, from the installed pyspark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark

from reknit.processes.process import start_tied
from tests.spark.quick import SMALL_QUERIES, quick_environ

START_S_MAX = 90.0
KILLS = int(os.environ.get("REKNIT_KILLS", "2"))
"""How many processes a test kills; set `REKNIT_KILLS=20` for more."""
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class Program:
    """A process and its children, with their output in a file. They end with the `with` block in any case."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.log = log
        environment = {**os.environ, **quick_environ(), **(env or {})}
        with log.open("ab") as out:
            self.process = start_tied(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.kill()

    def kill(self) -> None:
        """kill -9, also of its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def end(self, timeout_s: float = 120.0) -> int:
        """Ask it to stop; returns its exit code."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def end_group(self, timeout_s: float = 120.0) -> int:
        """Ask it and its children to stop, all at once, as a service manager does; returns its exit code."""
        os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait(timeout_s)

    def wait_for(self, pattern: str, timeout_s: float = START_S_MAX) -> re.Match[str]:
        """Wait until its output matches."""
        deadline = time.monotonic() + timeout_s
        while (found := re.search(pattern, self.text())) is None:
            assert self.process.poll() is None or re.search(pattern, self.text()), self.text()
            assert time.monotonic() < deadline, f"waited for {pattern!r}:\n{self.text()}"
            time.sleep(0.05)
        return found

    def text(self) -> str:
        return self.log.read_text(errors="replace")


class Cluster:
    """For a `with` block. `workers` can be killed one by one."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder, self._count = folder, workers
        self._stack = ExitStack()
        self.workers: list[Program] = []
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            master = stack.enter_context(self._program("master", MASTER, "--port", "0"))
            self.url = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
            for number in range(self._count):
                place = ["--cores", "1", "--memory", "768m", "-d", str(self._folder / f"work{number}")]
                worker = self._program(f"worker{number}", WORKER, *place, self.url)
                self.workers.append(stack.enter_context(worker))
            for worker in self.workers:
                worker.wait_for("Successfully registered with master")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *args: object) -> None:
        self._stack.close()

    def _program(self, name: str, kind: str, *options: str) -> Program:
        home = Path(pyspark.__file__).parent
        env = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [
            str(home / "bin" / "spark-class"),
            kind,
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            *options,
        ]
        return Program(command, self._folder / f"{name}.log", env)


def pipeline_command(lake: Path, nodes: str, *options: str) -> list[str]:
    """`reknit pipeline run` on a lake, with short pauses between runs of settle."""
    start = [sys.executable, "-c", "from reknit.cli.main import main; main()", "pipeline", "run"]
    paths = ["--lake", str(lake), "--nodes", nodes, "--interval", "0.2", "--memory", "1g"]
    return [*start, *paths, *options]


def start_pipeline(lake: Path, log: Path, *urls: str) -> Program:
    """`reknit pipeline run` on this machine, until it is killed or stopped."""
    options = ["--master", "local[2]", *conf(SMALL_QUERIES)]
    return Program(pipeline_command(lake, ",".join(urls), *options), log)


def conf(settings: Mapping[str, str]) -> list[str]:
    """Spark settings as options of a command."""
    return [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]


def executor_of(worker: Program) -> int | None:
    """The process that runs tasks for a worker."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == worker.process.pid and b"CoarseGrainedExecutorBackend" in command:
            return int(path.parent.name)
    return None
