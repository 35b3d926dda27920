"""A process that can be killed and started again, and a node as such a process.

On Linux none of them outlives the process that started it, even if that process is killed.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from reknit.errors import LocalError

READY_S = 20.0
STOP_S = 15.0

# 1 is PR_SET_PDEATHSIG. It survives execve, so the program that replaces this one keeps it. If the parent is not the
# expected one, this process was orphaned before it could make the call, and it exits.
TIE = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def tied(command: Sequence[str]) -> list[str]:
    """A command that the kernel kills when the *thread* that started it ends; see `start_tied`.

    >>> subprocess.run(tied(["echo", "hello"]), capture_output=True).stdout
    b'hello\\n'
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", TIE, str(os.getpid()), *command]


def start_tied(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """`Popen` from any thread. The new process ends with this one, even if this one is killed."""
    start: Callable[..., subprocess.Popen[Any]] = subprocess.Popen
    return _starter(os.getpid()).submit(start, tied(command), **options).result()


@cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """A thread that lives as long as the process `pid`."""
    return ThreadPoolExecutor(1, "reknit start")


PORTS: Final = range(10_000, 32_000)
"""Below the ports that the system assigns to outgoing connections."""
_given: set[int] = set()


def free_port() -> int:
    """A port that nothing listens on now, and that this process has not been given before."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


class Process:
    """A program that can be started, killed and started again. Its output goes to a file."""

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
        """Start the program, for the first time or again."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("REKNIT_")}
        with self.log.open("ab") as log:
            self._running = start_tied(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, env=environ
            )

    def kill(self) -> None:
        """Kill it with SIGKILL, so that it cannot clean up."""
        if self._running is not None and self.is_running:
            self._running.kill()
            self._running.wait()
            self.kills += 1

    def stop(self) -> int:
        """Send SIGTERM and wait for the end. Returns the exit code."""
        if self._running is None:
            return 0
        if self.is_running:
            self._running.send_signal(signal.SIGTERM)
        return self.wait(STOP_S)

    def wait(self, patience_s: float) -> int:
        """Wait for the end and return the exit code. After `patience_s` it is killed, and this raises `LocalError`."""
        assert self._running is not None
        try:
            return self._running.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
            raise LocalError(f"{self.name} did not end within {patience_s} s: {self.output()}") from None

    def output(self) -> str:
        """Everything that it has written since its first start."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class NodeProcess(Process):
    """`reknit up` on its own port, with its journal in the folder."""

    def __init__(self, folder: Path, *options: str, name: str = "node") -> None:
        self.port = free_port()
        self.url = f"tcp://127.0.0.1:{self.port}"
        self.data = folder / f"{name}-data"
        command = [sys.executable, "-m", "reknit", "up", "--listen", self.url, "--data", str(self.data)]
        super().__init__(name, [*command, "--name", name, *options], folder)

    def start(self) -> None:
        """Start the node, and return when it listens."""
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
    """Kill the processes that still run at the end of the block."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
