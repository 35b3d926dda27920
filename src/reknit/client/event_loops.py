"""Which event loop to run on, and how a signal ends a program on it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's if it is installed, otherwise asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run_until_signal(program: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. Ctrl-C and SIGTERM cancel it, so that it can clean up.

    Then `CancelledError` is raised.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_stoppable(program))


async def _stoppable(program: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(program)
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, task.cancel)
    return await task
