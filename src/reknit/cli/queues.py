"""`reknit queues`: work queues, their workers, and what waits in them."""

from __future__ import annotations

from typing import Any, Final

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import log_to_stderr, print_json

SAMPLE_S: Final = 1.0
"""The rate is that of so many seconds."""
NUMBERS: Final = ("depth", "per second", "workers", "oldest", "retried", "attempts")


def queues(json: AsJson = False, node: NodeUrl = "") -> None:
    """Show work queues: how many events wait or are in progress, how many end each second, and who works on them.

    A queue is one that programs opened with queue=…, or the topics of a rule with a distribution. "oldest" is the age of
    the first event that has not ended, "retried" how many events came back from an attempt, and "attempts" the most
    attempts of one of them. The command takes a second, for the rate.
    """
    from reknit.cli.running import run

    log_to_stderr()
    rows = run(_sampled(node))
    if json:
        print_json(rows)
    elif not rows:
        typer.echo("no queue yet; try: reknit sub --queue workers 'jobs/**'")
    else:
        print_queues(rows)


async def _sampled(url: str) -> list[dict[str, Any]]:
    """The rows of the node's queues, with rates."""
    import asyncio
    import time

    from reknit.cli.running import connected

    async with connected(url) as session:
        before, then = await session.ask("queues"), time.monotonic()
        await asyncio.sleep(SAMPLE_S)
        after, now = await session.ask("queues"), time.monotonic()
    return with_rates(before, after, now - then)


def with_rates(
    before: list[dict[str, Any]], after: list[dict[str, Any]], seconds: float
) -> list[dict[str, Any]]:
    """The later rows, with how many events ended in each second between the two.

    >>> row = {"queue": "workers", "accepted": 10, "dead_lettered": 0, "lost": 0}
    >>> with_rates([row], [row | {"accepted": 30, "dead_lettered": 1}], 2.0)[0]["rate"]
    10.5
    """
    ended = {row["queue"]: _ended(row) for row in before}
    return [
        row | {"rate": max(0, _ended(row) - ended.get(row["queue"], _ended(row))) / seconds} for row in after
    ]


def _ended(row: dict[str, Any]) -> int:
    return int(row["accepted"] + row["dead_lettered"] + row["lost"])


def print_queues(rows: list[dict[str, Any]]) -> None:
    """Print queues as a table."""
    from reknit.cli.tables import cell, console, table

    made = table(("queue", "topics"), NUMBERS)
    for row in rows:
        workers = sum(not one["is_node"] for one in row["members"])
        oldest = "" if row["oldest_s"] is None else f"{row['oldest_s']:,.1f} s"
        counts = (f"{row['depth']:,}", f"{row['rate']:,.1f}", f"{workers:,}", oldest)
        made.add_row(
            cell(row["queue"]), cell(row["pattern"]), *counts, f"{row['tried']:,}", f"{row['attempts']:,}"
        )
    console().print(made)
