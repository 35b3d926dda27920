"""The processes of one measurement. All of them are ended with it, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from bench.job import Job
from bench.peers.base import Server

ROOT = Path(__file__).resolve().parents[1]
JOIN_S_MAX = 30.0
STOP_S_MAX = 5.0
LINE_BYTES_MAX = 16 << 20
STDERR_CHARS = 300
PR_SET_PDEATHSIG = 1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):
    """A measurement gave no figure, for this reason."""


def die_with_parent() -> None:
    """End this process with its parent, even if the benchmark is killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


class Process:
    """A child process: its messages, CPU time and memory."""

    def __init__(self, child: asyncio.subprocess.Process, errors: Path) -> None:
        self._child = child
        self._errors = errors
        self._proc = Path(f"/proc/{child.pid}")

    async def expect(self, what: str, timeout_s: float) -> dict[str, Any]:
        """The next message of this kind. Raises `Failed` if the process fails, exits or sends nothing in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._hear(what)
        except TimeoutError:
            raise Failed(f"no '{what}' within {timeout_s:.0f} s {self.last_words()}") from None

    async def _hear(self, what: str) -> dict[str, Any]:
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            if not line.startswith(b'{"what"'):
                continue
            word: dict[str, Any] = json.loads(line)
            if word["what"] == "failed":
                raise Failed(str(word["why"]))
            if word["what"] == what:
                return word
        raise Failed(f"exited before '{what}' {self.last_words()}")

    def last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").split("\n")
        return next((f"({line[-STDERR_CHARS:]})" for line in reversed(lines) if line.strip()), "")

    def go(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(b"go\n")

    @property
    def has_left(self) -> bool:
        return self._child.returncode is not None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal. The child's own method would reap the process before asyncio's watcher does."""
        with contextlib.suppress(ProcessLookupError):
            if not self.has_left:
                os.kill(self._child.pid, number)

    def cpu_s(self) -> float:
        """User and system time of all its threads: fields 14 and 15 of stat, counted from 1."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def rss_bytes(self) -> int:
        return int((self._proc / "statm").read_text().split()[1]) * PAGE_BYTES

    async def end(self) -> None:
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            self.send_signal(number)
            if number is not signal.SIGCONT and await self._is_gone():
                return

    async def _is_gone(self) -> bool:
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await self._child.wait()
        except TimeoutError:
            return False
        return True


class Stage:
    """The directory and processes of one measurement, all of which are gone on exit."""

    def __init__(self, data: Path | None) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="reknit-bench-", dir=data))
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await asyncio.gather(*(process.end() for process in self._processes), return_exceptions=True)
        finally:  # also if this is cancelled
            for process in self._processes:
                process.send_signal(signal.SIGKILL)
            shutil.rmtree(self.place, ignore_errors=True)

    async def worker(self, job: Job) -> Process:
        return await self._start(sys.executable, "-m", "bench.worker", msgspec.json.encode(job).decode())

    async def server(self, server: Server) -> Process:
        process = await self._start(*server.argv)
        async with asyncio.timeout(JOIN_S_MAX):
            while not await accepts(server.port):
                if process.has_left:
                    raise Failed(f"the server exited {process.last_words()}")
                await asyncio.sleep(0.02)
        return process

    async def _start(self, *argv: str) -> Process:
        errors = self.place / f"stderr-{len(self._processes)}"
        with errors.open("wb") as sink:
            child = await asyncio.create_subprocess_exec(
                *argv,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                limit=LINE_BYTES_MAX,
                preexec_fn=die_with_parent,
                start_new_session=True,
            )
        process = Process(child, errors)
        self._processes.append(process)
        return process


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
