"""An asyncio event loop in virtual time: it never waits, and the same program takes the same steps every time.

Time passes only when nothing is ready: the loop then jumps to the next timer. Timers that are due at the same moment run
in the order in which they were set. Every callback belongs to the host in whose environment it was scheduled: those of
a crashed host never run, and those of a frozen one wait until it thaws.

>>> async def main() -> float:
...     await asyncio.sleep(3600)
...     return asyncio.get_running_loop().time()
>>> loop = VirtualLoop()
>>> loop.run_until_complete(main())
3600.0
>>> loop.close()
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from asyncio import base_events
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol, cast

from reknit import environment

WORK_S = 0.0002
"""How long work beside the event loop takes, as in a thread."""

CANCELS_MAX = 20
"""How often a task is cancelled at the end, if its clean-up waits for what will never come."""
CANCEL_S = 5.0
TURNS_MAX = 100_000
"""How often callbacks may call each other at one time: a deadline that is due and does nothing would stop the time."""


class Deadlock(RuntimeError):
    """Nothing is ready and nothing is scheduled, or time does not pass, and the program has not ended."""


class HostEnvironment(Protocol):
    """The environment of a simulated host, as the loop sees it."""

    is_running: bool
    """False while the host is frozen, and after a crash."""

    def postpone(self, handle: asyncio.Handle) -> None:
        """A callback was due while the host was not running."""


class VirtualNetwork(Protocol):
    """Opens servers and connections; see `reknit.testing.fabric.virtual.network`."""

    async def create_server(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        """Accept connections."""

    async def create_connection(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        """Open a connection: its transport and protocol."""

    def open_socket(self, life: Any) -> Any:
        """A socket for datagrams, on a host."""

    def socket(self, number: int) -> Any:
        """The socket for datagrams with this descriptor."""


class VirtualLoop(base_events.BaseEventLoop):
    """Runs one simulation. `network` may be set once; without it there are no connections."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        """How many callbacks ran."""
        self.network: VirtualNetwork | None = None
        self.fabric: object = None
        """The simulation that a test runs in, for `simulated_fabric`."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._turns = 0
        """How often callbacks ran since the time moved."""
        self._is_ending = False
        self.tasks: list[asyncio.Task[Any]] = []
        """Every task, because one that never ends may only be collected at the end of the simulation."""
        self.threads: list[Any] = []
        """The threads of blocking programs: see `reknit.testing.fabric.virtual.threads`."""
        self.set_task_factory(self._make_task)

    def _make_task(self, loop: Any, coro: Any, **more: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **more)
        self.tasks.append(task)
        if len(self.tasks) > 4096:
            self.tasks = [one for one in self.tasks if not one.done()]
        return task

    # -- time

    def time(self) -> float:
        return self.now

    def call_at(  # type: ignore[override]  # its types are those of asyncio, said more simply
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def _run_once(self) -> None:
        """Run everything that is ready; if nothing is, go to the next timer first."""
        ready: Any = cast(Any, self)._ready
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready and not cast(Any, self)._stopping:
            if not timers:
                raise Deadlock("nothing is ready and nothing is scheduled")
            if timers[0][0] > self.now:
                self.now, self._turns = timers[0][0], 0
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise Deadlock(f"time stands still at {self.now:.4f}: {list(ready)[:1]} again and again")
        while timers and timers[0][0] <= self.now:
            ready.append(heapq.heappop(timers)[2])
        host_of, is_ending = environment.of, self._is_ending
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            host: Any = host_of(handle._context)
            if is_ending or getattr(host, "is_running", True):
                self.steps += 1
                handle._run()
            else:
                host.postpone(handle)

    def run_late(self, handle: asyncio.Handle) -> None:
        """Run a callback that was postponed, after everything that is ready."""
        cast(Any, self)._ready.append(handle)

    # -- what would need threads, sockets or the system

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(WORK_S, work)
        return future

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        assert self.network is not None, "a network"
        return await self.network.create_server(protocol_factory, str(host), int(port))

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        assert self.network is not None, "a network"
        return await self.network.create_connection(protocol_factory, str(host), int(port))

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        assert self.network is not None, "a network"
        self.network.socket(fd).on_readable(callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        assert self.network is not None, "a network"
        self.network.socket(fd).on_readable(None)
        return True

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        assert self.network is not None, "a network"
        self.network.socket(fd).on_writable(callback, *args)

    def remove_writer(self, fd: Any) -> bool:
        assert self.network is not None, "a network"
        self.network.socket(fd).on_writable(None)
        return True

    def _process_events(self, event_list: Any) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There are no threads that would have to wake this one."""

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """It is skipped when its time comes."""

    def _check_closed(self) -> None:
        """Objects that are collected after the end may still schedule something; it never runs."""

    def close(self) -> None:
        """End everything that never ended. Crashed hosts run once more for that, and nobody listens to them."""
        for thread in self.threads:
            thread.end()
        if not self.is_closed() and self.tasks:
            self._is_ending, self._turns = True, 0
            self.set_exception_handler(lambda loop, context: None)
            self.run_until_complete(self._cancel_tasks())
        super().close()

    async def _cancel_tasks(self) -> None:
        me = asyncio.current_task()
        for _ in range(CANCELS_MAX):
            left = [task for task in self.tasks if task is not me and not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=CANCEL_S)
        for task in self.tasks:
            cast(Any, task)._log_destroy_pending = False
            if task.done() and not task.cancelled():
                task.exception()  # it is known
            coro: Any = task.get_coro()
            if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                coro.close()  # its host crashed before it began
        self.tasks.clear()
