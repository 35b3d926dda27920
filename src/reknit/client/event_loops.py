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


class Signalled(asyncio.CancelledError):
    """A signal ended a program."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def run_until_signal(program: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. Ctrl-C and SIGTERM cancel it, so that it can clean up.

    Then `Signalled` is raised.
    """
    came: list[int] = []
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_stoppable(program, came))
    except asyncio.CancelledError:
        if came:
            raise Signalled(came[0]) from None
        raise


async def _stoppable(program: Coroutine[Any, Any, T], came: list[int]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(program)

    def end(number: int) -> None:
        came.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, end, number)
    return await task
