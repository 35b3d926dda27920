"""Real processes on this machine: a node and its clients that can be killed and started again.

For what no simulation shows: sockets, files and the operating system's own ideas.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reknit.errors import LocalError

READY_S = 20.0
STOP_S = 15.0


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A program that may be started, killed and started again. Its output goes to a file."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.command = list(command)
        self.log = folder / f"{name}.log"
        self.kills = 0
        self._folder = folder
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._running is not None and self._running.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return None if self._running is None else self._running.poll()

    def start(self) -> None:
        """Run it (again)."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("REKNIT_")}
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, env=environ
            )

    def kill(self) -> None:
        """kill -9: it has no chance to tidy up."""
        if self._running is not None and self.is_running:
            self._running.kill()
            self._running.wait()
            self.kills += 1

    def stop(self) -> int:
        """Ask it to end, and wait; gives the exit code."""
        if self._running is None:
            return 0
        if self.is_running:
            self._running.send_signal(signal.SIGTERM)
        return self.wait(STOP_S)

    def wait(self, patience_s: float) -> int:
        """Wait for its end; gives the exit code."""
        assert self._running is not None
        try:
            return self._running.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
            raise LocalError(f"{self.name} did not end within {patience_s} s: {self.output()}") from None

    def output(self) -> str:
        """What it has written, of all its lives."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class NodeProcess(Process):
    """`reknit up` on a port of its own, with its journal in the folder."""

    def __init__(self, folder: Path, *options: str, name: str = "node") -> None:
        self.port = free_port()
        self.url = f"tcp://127.0.0.1:{self.port}"
        self.data = folder / f"{name}-data"
        command = [sys.executable, "-m", "reknit", "up", "--listen", self.url, "--data", str(self.data)]
        super().__init__(name, [*command, "--name", name, *options], folder)

    def start(self) -> None:
        """Run it, and return when it listens."""
        super().start()
        deadline = time.monotonic() + READY_S
        while not self._listens():
            if not self.is_running or time.monotonic() > deadline:
                raise LocalError(f"{self.name} does not listen: {self.output()}")
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def ending(*processes: Process) -> Iterator[None]:
    """Whatever happens, none of them is left running."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
