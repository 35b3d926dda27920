"""Simulated machines: each has an address, a clock, a disk, and one life after the other.

A life is what runs from a start to a crash. It is the environment of the host's code: its tasks and callbacks inherit
it, so that a crash ends all of them at once and a freeze delays them, without a line of the code noticing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar, cast

from reknit.environment import Environment, Process, Worker
from reknit.testing.fabric.virtual.disk import VirtualDisk
from reknit.testing.fabric.virtual.loop import VirtualLoop

T = TypeVar("T")

START_US: Final = 1_700_000_000_000_000
"""The time of day at which a simulation starts."""


class Host:
    """A machine. Its disk outlasts its lives."""

    def __init__(self, name: str, address: str, loop: VirtualLoop, rng: Random, folder: Path) -> None:
        self.name, self.address, self.folder = name, address, folder
        self.loop = loop
        self.rng = rng
        self.disk = VirtualDisk(Random(f"disk {rng.random()}"), self._stall)
        self.is_powered = True
        self.life: Life | None = None
        self.lives = 0
        self._ahead_us = 0
        self._drift = 0.0

    # -- life

    def start(self) -> Life:
        """A new life. The one before has ended."""
        assert self.life is None or not self.life.is_alive, "one life at a time"
        self.lives += 1
        self.is_powered = True
        self.life = Life(self, self.lives)
        return self.life

    def crash(self, *, is_power_lost: bool) -> None:
        """End everything that runs, in the middle. Without power, writes that were not synced may be lost."""
        life = self.life
        if life is None or not life.is_alive:
            return
        life.end(is_torn=self.rng.random() < 0.5)
        self.is_powered = not is_power_lost
        self.disk.crash(is_power_lost)

    @property
    def is_alive(self) -> bool:
        return self.life is not None and self.life.is_alive

    async def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run something on this host, and wait for its result."""
        assert self.life is not None
        return await self.life.create_task(coro)

    def _stall(self, seconds: float) -> None:
        if self.life is not None:
            self.life.stall(seconds)

    # -- the clock

    def time_us(self) -> int:
        """The time of day, as this host's clock has it."""
        return START_US + self._ahead_us + int(self.loop.now * (1.0 + self._drift) * 1e6)

    def drift_clock(self, drift: float) -> None:
        """Let the clock go faster from now on by this share, or slower."""
        self._ahead_us += int(self.loop.now * (self._drift - drift) * 1e6)
        self._drift = drift

    def step_clock(self, seconds: float) -> None:
        """Set the clock forward, or back."""
        self._ahead_us += int(seconds * 1e6)


class Life(Environment):
    """The environment of everything that runs on a host between a start and a crash."""

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.files = host.disk
        self.is_alive = self.is_running = True
        self._loop = host.loop
        self._tokens = Random(f"tokens {number} {host.rng.random()}")
        self._process_id = Random(f"process {number} {host.name}").randbytes(8)
        self._ahead_s = 0.0
        self._frozen_to = 0.0
        self._postponed: list[asyncio.Handle] = []
        self._workers: list[VirtualWorker] = []
        self.context: Context = self.run(copy_context)

    # -- as an environment

    def time_us(self) -> int:
        return self.host.time_us()

    def monotonic(self) -> float:
        return self._loop.now + self._ahead_s

    def elapsed(self) -> float:
        return self.monotonic()

    def random(self) -> Random:
        return Random(self._tokens.random())

    def token_bytes(self, size: int) -> bytes:
        return self._tokens.randbytes(size)

    def open_datagram_socket(self) -> socket.socket:
        assert self._loop.network is not None, "a network"
        return cast(socket.socket, self._loop.network.open_socket(self))

    def process(self) -> Process:
        return Process(self.host.lives, 0.0, 0)

    def process_id(self) -> bytes:
        return self._process_id

    def start_worker(self, name: str) -> Worker:
        worker = VirtualWorker(self)
        self._workers.append(worker)
        return worker

    # -- life

    def create_task(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something on this host."""
        return self._loop.create_task(coro, context=self.context.copy())

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function on this host."""
        return self.context.copy().run(function, *args)

    def freeze(self, seconds: float) -> None:
        """Stop as a whole for a while: nothing runs, and everything that comes waits."""
        self._frozen_to = max(self._frozen_to, self._loop.now + seconds)
        if self.is_running:
            self.is_running = False
            self._loop.call_at(self._frozen_to, self._thaw, context=Context())

    @property
    def frozen_to(self) -> float:
        """When it runs again, or ran again last."""
        return self._frozen_to

    def stall(self, seconds: float) -> None:
        """The running callback waits for the disk, and so does everything else."""
        if not VirtualWorker.is_working and self.is_alive:
            self._ahead_s += seconds
            self.freeze(self._ahead_s)

    def _thaw(self) -> None:
        if not self.is_alive:
            return
        if self._loop.now < self._frozen_to:
            self._loop.call_at(self._frozen_to, self._thaw, context=Context())
            return
        self._ahead_s, self.is_running = 0.0, True
        postponed, self._postponed = self._postponed, []
        for handle in postponed:
            self._loop.run_late(handle)

    def postpone(self, handle: asyncio.Handle) -> None:
        if self.is_alive:
            self._postponed.append(handle)

    def end(self, is_torn: bool) -> None:
        """Nothing runs any more. With `is_torn`, work beside the event loop is interrupted in the middle."""
        self.is_alive = self.is_running = False
        self._postponed.clear()
        for worker in self._workers:
            worker.interrupt(is_torn)


class VirtualWorker:
    """Does work in order, each after the time that the disk takes."""

    is_working = False
    """Whether work is done at this moment: it does not block the event loop."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._queue: list[Callable[[], None]] = []
        self._idle: list[asyncio.Future[None]] = []

    def put(self, work: Callable[[], None]) -> None:
        self._queue.append(work)
        if len(self._queue) == 1:
            self._begin()

    def _begin(self) -> None:
        host = self._life.host
        host.loop.call_later(host.disk.work_s(), self._do, context=self._life.context)

    def _do(self) -> None:
        work = self._queue[0]
        try:
            self._work(work)
        finally:
            del self._queue[0]
            if self._queue:
                self._begin()
            else:
                for future in self._idle:
                    if not future.done():
                        future.set_result(None)

    def _work(self, work: Callable[[], None]) -> None:
        VirtualWorker.is_working = True
        try:
            work()
        finally:
            VirtualWorker.is_working = False

    def interrupt(self, is_torn: bool) -> None:
        """The host crashed. What was being done may have reached the disk, but was not synced."""
        if self._queue and is_torn:
            with self._life.host.disk.interrupted():
                self._life.call(self._work, self._queue[0])

    async def stop(self) -> None:
        if self._queue:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future
