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
