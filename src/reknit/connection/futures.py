"""Futures whose waiter may have given up: they are resolved or failed only if they are still open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


def resolve(future: asyncio.Future[None] | None) -> None:
    """Wake the waiter, if there is one and it still waits."""
    if future is not None and not future.done():
        future.set_result(None)


def resolve_all(futures: Iterable[asyncio.Future[None]]) -> None:
    """Wake every waiter that still waits."""
    for future in futures:
        if not future.done():
            future.set_result(None)


def fail_all(futures: Iterable[asyncio.Future[Any]], error: Exception) -> None:
    """Raise the error in every waiter. asyncio logs nothing for a future that nobody awaits."""
    for future in futures:
        if not future.done():
            future.set_exception(error)
            future.exception()  # marks the exception as retrieved


class FailedFutures:
    """Futures that failed, and whether anybody has heard of it: then nobody else has to be told again."""

    def __init__(self) -> None:
        self._is_heard = False
        self._futures: list[asyncio.Future[Any]] = []

    def fail(self, futures: Iterable[asyncio.Future[Any]], error: Exception) -> None:
        """Raise the error in every waiter."""
        for future in futures:
            if not future.done():
                future.set_exception(error)
                self._futures.append(future)

    def heard(self) -> None:
        """The error was raised to a caller."""
        self._is_heard = True

    def close(self) -> bool:
        """Whether a caller has got the error. asyncio logs nothing for futures that nobody awaited."""
        for future in self._futures:
            # asyncio's own mark of an exception that nobody retrieved
            self._is_heard |= not getattr(future, "_log_traceback", False)
            future.exception()
        self._futures.clear()
        return self._is_heard
