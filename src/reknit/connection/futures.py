"""Futures that somebody may wait for, and may have stopped waiting for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


def resolve(future: asyncio.Future[None] | None) -> None:
    """What was waited for is so, if anyone still waits."""
    if future is not None and not future.done():
        future.set_result(None)


def resolve_all(futures: Iterable[asyncio.Future[None]]) -> None:
    """As `resolve`, for many."""
    for future in futures:
        if not future.done():
            future.set_result(None)


def fail_all(futures: Iterable[asyncio.Future[Any]], error: Exception) -> None:
    """What was waited for will never be so; a caller that never waits is not nagged by asyncio."""
    for future in futures:
        if not future.done():
            future.set_exception(error)
            future.exception()  # which makes it a retrieved one
