"""Dead letters over a session, page by page: a million of them need no more memory than a thousand.

async for number, letter in letters(session, Wanted(reason="expired")): ...
async for step in redrive(session, Wanted(topic="plant/**"), rate=500): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

import msgspec

from reknit.dead_letter import DeadLetterContent, DeadLetterFilter

PAGE_MAX: Final = 1_000
STEP_S: Final = 0.1
"""A rate is held within steps of this length."""
NEWEST: Final = (1 << 63) - 1


class AdminSession(Protocol):
    """A session, as far as admin requests need it."""

    async def ask(self, what: str, **args: Any) -> Any:
        """Make an admin request to the node."""


async def letters(
    session: AdminSession,
    wanted: DeadLetterFilter | None = None,
    *,
    newest_first: bool = False,
    after: int = 0,
) -> AsyncIterator[tuple[int, DeadLetterContent]]:
    """The node's dead letters that match, with their numbers; the oldest come first unless `newest_first` is set."""
    place: dict[str, int] = {"before": NEWEST} if newest_first else {"after": after}
    while True:
        body = await session.ask("dead_letters", wanted=_plain(wanted), limit=PAGE_MAX, **place)
        for number, row in body["letters"]:
            yield number, msgspec.convert(row, DeadLetterContent)
        if body["is_end"]:
            return
        place = {"before": body["next"]} if newest_first else {"after": body["next"]}


async def waiting(session: AdminSession) -> int:
    """How many dead letters the node has."""
    return int((await session.ask("dead_letters", limit=0))["waiting"])


async def redrive(
    session: AdminSession,
    wanted: DeadLetterFilter | None = None,
    *,
    rate: float = 0.0,
    clears_ttl: bool = False,
    to_subscriber: bool = False,
    is_dry: bool = False,
) -> AsyncIterator[dict[str, Any]]:
    """Publish dead letters again on their topics, a page at a time, at most `rate` a second; 0: as fast as possible.

    With `to_subscriber`, each goes only to the durable subscriber or queue that it failed at.

    Yields the result of each page. A dead letter is published once, no matter how often this is run or interrupted. An
    event that ends undelivered again is a new dead letter, for the next run.
    """
    limit = min(max(int(rate * STEP_S), 1), PAGE_MAX) if rate else PAGE_MAX
    options = {"wanted": _plain(wanted), "limit": limit, "clears_ttl": clears_ttl, "is_dry": is_dry}
    options["to"] = "subscriber" if to_subscriber else "all"
    async for body in _pages(session, "redrive", rate, options):
        yield body


async def drop(
    session: AdminSession, wanted: DeadLetterFilter | None = None, *, is_dry: bool = False
) -> AsyncIterator[dict[str, Any]]:
    """Drop dead letters permanently, a page at a time."""
    options = {"wanted": _plain(wanted), "limit": PAGE_MAX, "is_dry": is_dry}
    async for body in _pages(session, "drop_dead_letters", 0.0, options):
        yield body


async def _pages(
    session: AdminSession, what: str, rate: float, options: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """Go through every dead letter that is there at the beginning."""
    stop = int((await session.ask("dead_letters", limit=0))["last"])
    place, loop = 0, asyncio.get_running_loop()
    while place < stop:
        began = loop.time()
        body = await session.ask(what, after=place, stop=stop, **options)
        yield body
        if body["is_end"]:
            return
        place = body["next"]
        if rate and body["count"]:
            await asyncio.sleep(max(0.0, body["count"] / rate - (loop.time() - began)))


def _plain(wanted: DeadLetterFilter | None) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(wanted or DeadLetterFilter())
    return plain
