"""Reads a node's ledger while the node goes on with its work: in pages for people, and in sums for metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from reknit import environment
from reknit.ledger import Ledger, LedgerRow
from reknit.ledger.walk import HeldBy
from reknit.topic import Pattern

EVERY_OTHER: Final = "*"
"""Stands for the topics that have no metrics of their own. No topic has this name."""
QUICK_S: Final = 1.0
"""Sums that took less time than this are made anew whenever somebody asks."""
REST: Final = 10
"""Others are kept for this many times as long as they took: adding up takes a tenth of the node's time at most."""
WAIT_S: Final = 5.0
"""How long somebody who asks for sums waits for new ones."""


class LedgerSums(NamedTuple):
    """The ledger in a bounded number of rows, as it was a while ago."""

    rows: list[dict[str, Any]]
    age_s: float = 0.0
    """Since it was added up; negative if it never was."""


class LedgerReader:
    """Reads one ledger. One walk at a time: each lets the node go on, many at once would not."""

    def __init__(self, ledger: Ledger, held_by: HeldBy, rows_max: int) -> None:
        self._ledger = ledger
        self._held_by = held_by
        self._rows_max = rows_max
        """How many rows are not summed up."""
        self._walking = asyncio.Lock()
        self._sums: list[dict[str, Any]] = []
        self._made: tuple[float, float] | None = None
        """When the sums were made, and how many seconds that took."""
        self._task: asyncio.Task[None] | None = None

    async def rows(self, args: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The ledger's rows, each with whether it balances.

        `topic` (a pattern) and `unbalanced` leave rows out; `rows_max` and `after` (a subscriber and a topic) give
        them in pages.
        """
        pattern = Pattern(str(args["topic"])) if args.get("topic") else None
        subscriber, topic = args.get("after") or ("", "")
        rows: list[dict[str, Any]] = []
        async with self._walking:
            for row in self._ledger.walk(self._held_by, pattern, (str(subscriber), str(topic))):
                if row is None:
                    await asyncio.sleep(0)
                elif not (args.get("unbalanced") and row.balanced):
                    rows.append(as_dict(row))
                    if len(rows) == args.get("rows_max"):
                        break
        return rows

    async def sums(self) -> LedgerSums:
        """A row for each subscriber and topic, or for a subscriber's many other topics together.

        A ledger that takes long to add up is not added up for everybody who asks: they get the last sums, and how old
        those are.
        """
        if not self._is_fresh:
            if self._task is None:
                self._task = asyncio.create_task(self._add_up())
            done, _ = await asyncio.wait((self._task,), timeout=WAIT_S)
            for task in done:
                task.result()
        age_s = -1.0 if self._made is None else environment.monotonic() - self._made[0]
        return LedgerSums(self._sums, age_s)

    @property
    def _is_fresh(self) -> bool:
        if self._made is None or self._made[1] < QUICK_S:
            return False
        made_at, took_s = self._made
        return environment.monotonic() - made_at < REST * took_s

    async def _add_up(self) -> None:
        began = environment.monotonic()
        try:
            found = RowSums(self._ledger, self._rows_max)
            async with self._walking:
                for row in self._ledger.walk(self._held_by):
                    if row is None:
                        await asyncio.sleep(0)
                    else:
                        found.add(row)
            self._sums = [as_dict(row) for row in found.rows()]
            self._made = (environment.monotonic(), environment.monotonic() - began)
        finally:
            self._task = None


class RowSums:
    """Rows of the topics that the ledger knows for longest, and for each subscriber the sum of its others.

    >>> ledger = Ledger()
    >>> for number in range(5):
    ...     ledger.publish(f"plant/{number}", b"s" * 16, 1, 11)
    >>> _ = ledger.open("audit", Pattern("**"), {}, 0)
    >>> sums = RowSums(ledger, rows_max=2)
    >>> for row in ledger.rows():
    ...     sums.add(row)
    >>> [(row.topic, row.published) for row in sums.rows()]
    [('plant/0', 10), ('plant/1', 10), ('*', 30)]
    """

    def __init__(self, ledger: Ledger, rows_max: int) -> None:
        topics_max = rows_max // max(len(ledger.accounts), 1)
        self._own = set(islice(ledger.topics, topics_max)) if len(ledger.topics) > topics_max else None
        """The topics with rows of their own; None: all have."""
        self._rows: list[LedgerRow] = []
        self._others: dict[str, list[int]] = {}
        """By subscriber, of its other topics: the sums of the columns, and how many rows do not balance."""

    def add(self, row: LedgerRow) -> None:
        if self._own is None or row.topic in self._own:
            self._rows.append(msgspec.structs.replace(row, problems=_summary(not row.balanced)))
            return
        sums = self._others.setdefault(row.subscriber, [0] * 6)
        values = (row.published, row.accepted, row.dead_lettered, row.lost, row.in_flight, not row.balanced)
        for at, value in enumerate(values):
            sums[at] += value

    def rows(self) -> Iterator[LedgerRow]:
        yield from self._rows
        for subscriber, (published, accepted, dead, lost, in_flight, wrong) in self._others.items():
            counts = (published, accepted, dead, lost, in_flight)
            yield LedgerRow(subscriber, EVERY_OTHER, *counts, _summary(wrong))


def _summary(wrong: int) -> tuple[str, ...]:
    """The problems of rows, in one line: there may be very many."""
    return (f"{wrong} topics do not balance",) if wrong else ()


def as_dict(row: LedgerRow) -> dict[str, Any]:
    """A row, and whether it balances."""
    return {**msgspec.structs.asdict(row), "balanced": row.balanced}
