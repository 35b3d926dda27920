"""An event loop in a thread of its own, for programs without asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from reknit.client.event_loops import loop_factory
from reknit.errors import Closed, LocalError

T = TypeVar("T")

STOP_S = 10.0
"""How long closing waits for the loop."""


class LoopThread:
    """Runs coroutines for other threads on its event loop, and returns the results to them."""

    def __init__(self) -> None:
        self.loop = loop_factory()()
        self._thread = threading.Thread(target=self._work, name="reknit-loop", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, program: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop and return its result. An interrupt of the caller cancels it."""
        if threading.current_thread() is self._thread or self.loop.is_closed():
            program.close()
            if self.loop.is_closed():
                raise Closed("the session", "connect again")
            raise LocalError("a blocking call from a callback would wait for itself: use another thread")
        future = asyncio.run_coroutine_threadsafe(program, self.loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function on the loop and return its result."""

        async def program() -> T:
            return function()

        return self.run(program())

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop without waiting for it."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise Closed("the session", "connect again") from None

    def stop(self) -> None:
        """Cancel everything on the loop, and end it and its thread."""
        if self.loop.is_closed():
            return
        try:
            self.run(self._cancel_all(), STOP_S)
        except TimeoutError:
            return  # something blocks the loop; its thread ends with the process
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_S)
        self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
