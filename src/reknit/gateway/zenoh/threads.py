"""Calls into Zenoh, which may block: each on a daemon thread of its own, with a time limit.

Zenoh's calls can wait for its own threads, and those for Python's lock. So no call is made on the event loop's thread,
and none on the loop's thread pool, for which a program waits when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, ParamSpec, TypeVar

import zenoh

from reknit import environment

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

NAME: Final = "reknit-zenoh"
CALL_S: Final = 30.0
"""How long a call may take."""

log = logging.getLogger("reknit.zenoh")


class ZenohPanicked(zenoh.ZError):  # type: ignore[misc]
    """Zenoh's library met what it does not expect. Its own error for that would end whatever waits for the call."""


async def call(function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """Call the function on a thread of its own, and return its result. Raises `TimeoutError` after `CALL_S`.

    >>> asyncio.run(call(sorted, "ba"))
    ['a', 'b']
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def finish(settle: Callable[[Any], None], value: object) -> None:
        if not done.done():
            settle(value)

    def work() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (done.set_result, function(*args, **options))
        except Exception as error:
            outcome = (done.set_exception, error)
        except BaseException as error:
            outcome = (done.set_exception, ZenohPanicked(f"Zenoh panicked: {error}"))
        with suppress(RuntimeError):  # the event loop is closed: nobody waits for the result
            loop.call_soon_threadsafe(finish, *outcome)

    threading.Thread(target=work, name=NAME, daemon=True).start()
    async with asyncio.timeout(CALL_S):
        return await done


def start(function: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
    """Call the function on a thread of its own, and do not wait for it."""
    threading.Thread(target=function, args=args, kwargs=options, name=NAME, daemon=True).start()


def each(taken: Iterable[T], handle: Callable[[T], object]) -> threading.Thread:
    """Handle everything that a declared subscriber or queryable takes, on a thread of its own, until it is undeclared.

    Threads of Zenoh's own would call Python. The process can't end while such a call waits. An error in handling one
    thing is logged: the others are handled, as the thread is the only one that does.
    """

    def read() -> None:
        with suppress(zenoh.ZError):  # it is undeclared
            for one in taken:
                try:
                    handle(one)
                except Exception:
                    log.exception("internal error: something that came from Zenoh is left out")

    thread = threading.Thread(target=read, name=f"{NAME}-reader", daemon=True)
    thread.start()
    return thread


def join(readers: Iterable[threading.Thread], limit_s: float = CALL_S / 2) -> None:
    """Blocking: wait until readers and calls have ended."""
    calls = [one for one in threading.enumerate() if one.name == NAME]
    stop = environment.monotonic() + limit_s
    for thread in [*readers, *calls]:
        if thread is not threading.current_thread():
            thread.join(max(stop - environment.monotonic(), 0.0))


def leave(session: Any, declared: list[Any]) -> None:
    """Blocking: undeclare everything, the last first, and close a Zenoh session."""
    while declared:
        with suppress(Exception):  # it may be gone with its peer
            declared.pop().undeclare()
    session.close()
