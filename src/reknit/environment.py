"""The machine that code runs on: its clocks, randomness, disk operations, datagrams and background threads.

No other module of a node, a gateway or a client reads a clock, draws randomness, syncs a file, opens a socket for
datagrams or starts a thread by itself: it asks the environment in which it runs. That is the real machine, unless a
context has another one. The simulator gives each of its hosts one with virtual time, so that the code runs there
unchanged.

>>> class Frozen(Environment):
...     def time_us(self) -> int:
...         return 1_000_000
>>> Frozen().run(time_us)
1000000
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar, copy_context
from functools import cache
from queue import SimpleQueue
from random import Random
from typing import Final, NamedTuple, ParamSpec, Protocol, TypeVar

from reknit.frame import Buffer

P = ParamSpec("P")
T = TypeVar("T")

_ELAPSED_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
JOIN_S: Final = 10.0
"""How long the end of a worker may take."""


class DiskFiles:
    """The operations on open files that a disk can refuse, delay or lose. A test can make them fail."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        return os.pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def fallocate(self, fd: int, offset: int, size: int) -> None:
        os.posix_fallocate(fd, offset, size)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)


class Worker(Protocol):
    """Does work beside the event loop, in the order in which it was given."""

    def put(self, work: Callable[[], None]) -> None:
        """Do this after everything that was put before."""

    async def stop(self) -> None:
        """Finish what was put, and end."""


class Process(NamedTuple):
    """A process: its number, the time that it has computed, and the memory that it has."""

    pid: int
    cpu_s: float
    rss_bytes: int


class Environment:
    """The machine that a program runs on. The simulator overrides all of it."""

    files: DiskFiles = DiskFiles()

    def time_us(self) -> int:
        """The time of day in microseconds since 1970. It may step."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds on a clock that never steps: the one of the event loop."""
        return time.monotonic()

    def elapsed(self) -> float:
        """Seconds on a clock that never steps, and goes on while the machine is suspended."""
        return time.clock_gettime(_ELAPSED_CLOCK)

    def random(self) -> Random:
        """A new generator for decisions such as back-off, to be kept by its user."""
        return Random()

    def token_bytes(self, size: int) -> bytes:
        """Bytes that nobody can guess."""
        return secrets.token_bytes(size)

    def open_datagram_socket(self) -> socket.socket:
        """A socket for datagrams, which never blocks."""
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.setblocking(False)
        return opened

    def process(self) -> Process:
        """The process that this is, and what it uses."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Process(os.getpid(), usage.ru_utime + usage.ru_stime, _rss_bytes(usage.ru_maxrss * 1024))

    def process_id(self) -> bytes:
        """Names this process: another one has another name, also on another machine."""
        return _process_id(os.getpid())

    def start_worker(self, name: str) -> Worker:
        """A thread that does work in order."""
        return _ThreadWorker(name)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in this environment, with all tasks and callbacks that it starts."""
        context = copy_context()
        context.run(_current.set, self)
        return context.run(function, *args, **kwargs)


@cache
def _process_id(pid: int) -> bytes:
    """The name of the process with this number: a fork has another one."""
    return secrets.token_bytes(8)


def _rss_bytes(most: int) -> int:
    """The memory that this process has; the most that it had, if the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return most


_MACHINE: Final = Environment()
_current: ContextVar[Environment] = ContextVar("environment", default=_MACHINE)


def current() -> Environment:
    """The environment of the running code."""
    return _current.get()


def of(context: Context) -> Environment:
    """The environment of a context."""
    return context.get(_current, _MACHINE)


def time_us() -> int:
    """The time of day in microseconds since 1970. It may step."""
    return _current.get().time_us()


def monotonic() -> float:
    """Seconds on a clock that never steps: the one of the event loop."""
    return _current.get().monotonic()


def elapsed() -> float:
    """Seconds on a clock that never steps, and goes on while the machine is suspended."""
    return _current.get().elapsed()


def make_random() -> Random:
    """A new generator for decisions such as back-off, to be kept by its user."""
    return _current.get().random()


def token_bytes(size: int) -> bytes:
    """Bytes that nobody can guess."""
    return _current.get().token_bytes(size)


def process_id() -> bytes:
    """Names this process: another one has another name, also on another machine."""
    return _current.get().process_id()


def open_datagram_socket() -> socket.socket:
    """A socket for datagrams, which never blocks."""
    return _current.get().open_datagram_socket()


def token_hex(size: int) -> str:
    """The same number of bytes as hexadecimal digits.

    >>> len(token_hex(8))
    16
    """
    return token_bytes(size).hex()


class _ThreadWorker:
    """A thread that does work in order."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def stop(self) -> None:
        self._work.put(None)
        await asyncio.to_thread(self._thread.join, JOIN_S)
