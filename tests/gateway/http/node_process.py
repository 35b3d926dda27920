"""A node in its own process, which can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from reknit.processes.process import free_port, start_tied

STOP_S = 150


class Living:
    """`reknit up --http`, on the same port and journal every time."""

    def __init__(self, data: Path, *settings: str, limits: str = "") -> None:
        """`limits` are shell commands that run before the node starts, such as `ulimit -n 100`."""
        self.data = data
        self.greeting = ""
        self._limits = limits
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = settings
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "reknit",
            "up",
            "--data",
            str(self.data),
            "--listen",
            "tcp://127.0.0.1:0",
        ]
        command += ["--http", f"127.0.0.1:{self.port}", *(f"--set={one}" for one in self.settings)]
        if self._limits:
            command = ["sh", "-c", f'{self._limits}; exec "$0" "$@"', *command]
        self._process = start_tied(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.greeting = self._process.stdout.readline()
        assert "listens on" in self.greeting

    def kill(self) -> None:
        """kill -9."""
        self.stop(signal.SIGKILL)

    def freeze(self) -> None:
        """It does nothing any more, and its connections stay open, until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self, number: int = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # it may be frozen
            try:
                process.communicate(timeout=STOP_S)
            finally:
                process.kill()

    def __enter__(self) -> Living:
        self.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.stop()
