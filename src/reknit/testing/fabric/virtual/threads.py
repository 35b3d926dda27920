"""Threads in a simulation: a blocking program and the event loop take turns, so that exactly one of them runs.

The program runs in a real thread. When it waits for the event loop, the loop goes on; when the result is there, the
program runs until it waits again. Nothing happens at the same time, so a seed gives the same steps every time. A host
that crashes never wakes its thread. It ends with the simulation.

>>> from reknit.testing.fabric.fabric import Fabric
>>> async def main(fabric: Fabric) -> str:
...     host, done = fabric.host("pump"), fabric.loop.create_future()
...     thread = ProgramThread(host)
...     def program() -> None:
...         thread.run(asyncio.sleep(3600.0))
...         thread.soon(lambda: done.set_result("an hour later"))
...     thread.start(program)
...     return await done
>>> with Fabric() as fabric:
...     fabric.run(main(fabric))
'an hour later'
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from reknit.client.blocking.loop_thread import LoopThread
from reknit.testing.fabric.virtual.hosts import Host, Life

T = TypeVar("T")


class ThreadEnded(BaseException):
    """The simulation is over, and with it a thread that waits. No program catches this."""


class ProgramThread(LoopThread):
    """The thread of one blocking program, in one life of its host; and the event loop, as that program sees it."""

    def __init__(self, host: Host) -> None:
        assert host.life is not None
        self._life: Life = host.life
        self.loop = host.loop
        self._is_ended = self._is_over = False
        self._turn, self._loop_turn = threading.Semaphore(0), threading.Semaphore(0)

    def start(self, program: Callable[[], object]) -> None:
        """Run the program, from the next turn of the event loop on."""
        self._life.host.loop.threads.append(self)
        work = self._life.context.copy()
        self._thread = threading.Thread(target=work.run, args=(self._work_on, program), daemon=True)
        self._thread.start()
        self.soon(self._let_run)

    def _work_on(self, program: Callable[[], object]) -> None:
        try:
            self._wait()
            program()
        except ThreadEnded:
            pass
        finally:
            self._is_over = True
            self._loop_turn.release()

    def _let_run(self, *done: object) -> None:
        """In the loop: let the program run until it waits, or ends."""
        if not self._is_ended:
            self._pass_turn()

    def _pass_turn(self) -> None:
        self._turn.release()
        self._loop_turn.acquire()

    def _wait(self) -> None:
        self._turn.acquire()
        if self._is_ended:
            raise ThreadEnded

    @property
    def is_alive(self) -> bool:
        """Whether the program has not ended."""
        return self._thread.is_alive()

    def end(self) -> None:
        """The simulation is over: whatever the program waits for is never there."""
        self._is_ended = True
        if not self._is_over:
            self._pass_turn()
        self._thread.join()

    # -- as the program's event loop

    def run(self, program: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        if self._is_ended:
            program.close()
            raise ThreadEnded
        task = self._life.create_task(program)
        task.add_done_callback(self._let_run, context=self._life.context)
        self._loop_turn.release()
        self._wait()
        return task.result()

    def soon(self, function: Callable[[], object]) -> None:
        self.loop.call_soon(function, context=self._life.context)

    def stop(self) -> None:
        """The event loop is that of the simulation, and goes on."""

    def sleep(self, seconds: float) -> None:
        """Wait for a while."""
        self.run(asyncio.sleep(seconds))
