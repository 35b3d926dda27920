"""The requests that the commands about dead letters send to a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from reknit.cli.dead_letters.output import print_line
from reknit.cli.running import connected
from reknit.client import dead_letters as client
from reknit.client.session import Session
from reknit.dead_letter import DeadLetterContent, DeadLetterFilter


async def newest(
    node: str, wanted: DeadLetterFilter, limit: int
) -> tuple[list[tuple[int, DeadLetterContent]], int]:
    """The newest dead letters with their numbers, oldest first, and how many are waiting in total."""
    found: list[tuple[int, DeadLetterContent]] = []
    async with connected(node) as session:
        async for one in client.letters(session, wanted, newest_first=True):
            found.append(one)
            if len(found) == limit:
                break
        return found[::-1], await client.waiting(session)


async def print_all(node: str, wanted: DeadLetterFilter, json: bool) -> None:
    """Print every dead letter as it arrives, one per line."""
    async with connected(node) as session:
        async for number, letter in client.letters(session, wanted):
            print_line(number, letter, json)


async def find(node: str, number: int) -> DeadLetterContent | None:
    """The dead letter with a number, or None."""
    async with connected(node) as session:
        async for found, letter in client.letters(session, after=number - 1):
            return letter if found == number else None
    return None


async def redrive(
    node: str,
    wanted: DeadLetterFilter,
    *,
    rate: float,
    clears_ttl: bool,
    to_subscriber: bool,
    is_dry: bool,
) -> dict[str, Any]:
    """Redrive dead letters, page by page. Returns the totals."""
    total: dict[str, Any] = {"count": 0, "without_payload": 0, "without_subscriber": 0, "topics": {}}
    async with connected(node) as session:
        pages = client.redrive(
            session, wanted, rate=rate, clears_ttl=clears_ttl, to_subscriber=to_subscriber, is_dry=is_dry
        )
        async for page in _with_progress(session, "redriving", pages):
            total["count"] += page["count"]
            total["without_payload"] += page["without_payload"]
            total["without_subscriber"] += page.get("without_subscriber", 0)
            for name, count in page["topics"].items():
                total["topics"][name] = total["topics"].get(name, 0) + count
    return total


async def drop(node: str, wanted: DeadLetterFilter, *, is_dry: bool) -> int:
    """Drop dead letters, page by page. Returns how many."""
    count = 0
    async with connected(node) as session:
        pages = client.drop(session, wanted, is_dry=is_dry)
        async for page in _with_progress(session, "dropping", pages):
            count += page["count"]
    return count


async def _with_progress(
    session: Session, what: str, pages: AsyncIterator[dict[str, Any]]
) -> AsyncIterator[dict[str, Any]]:
    """The pages, with a progress bar on a terminal: how many are done of those that were waiting at the start."""
    console = Console(stderr=True)
    last = int((await session.ask("dead_letters", limit=0))["last"])
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[done]:,}"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=max(last, 1), done=0)
        done = 0
        async for page in pages:
            done += page["count"]
            bar.update(task, completed=min(page["next"], last), done=done)
            yield page
