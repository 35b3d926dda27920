"""The sources of a topic as strips: which seqs are held, removed, missing or lost, from all of them to a single one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reknit.errors import LocalError
from reknit.ledger import Series
from reknit.outcome import FinalOutcome
from reknit.seqset import SeqSet
from reknit.store.journal import Readable
from reknit.topic import check_topic

CELLS: Final = 240
"""Into so many parts a strip is divided; the worst that happened in a part is its colour."""
LIMIT_MAX: Final = 50
OWED_MAX: Final = 2_000
"""How many durable subscribers are asked what they lost."""


def source_map(journal: Readable, args: Mapping[str, Any]) -> dict[str, Any]:
    """A page of the sources of a `topic`, or only `source`; their strips show `[start, stop)`, or everything."""
    topic = check_topic(args["topic"])
    limit, offset = int(args.get("limit", 20)), int(args.get("offset", 0))
    if not 0 <= limit <= LIMIT_MAX or offset < 0:
        raise LocalError(f"a page has 0 to {LIMIT_MAX} sources, not {limit} from {offset} on")
    series = sorted(journal.ledger.series.of(topic), key=lambda one: one[1])
    if args.get("source"):
        series = [one for one in series if one[1].hex() == args["source"]]
    window = int(args.get("start") or 0), int(args.get("stop") or 0)
    rows = [_row(journal, one, *window) for one in series[offset : offset + limit]]
    return {"count": len(series), "rows": rows}


def _row(journal: Readable, series: Series, start: int, stop: int) -> dict[str, Any]:
    topic, source = series
    ledger = journal.ledger
    published = ledger.published.get(series, SeqSet())
    last = max((published.last if published else 0), journal.sources(topic).get(source, 0))
    first_held = journal.first_held(topic, source)
    lost, losers = _lost(journal, series)
    low = max(start, 1)
    high = min(stop, last + 1) if stop else last + 1
    strip = Strip(published, lost, first_held, ledger.skipped.get(series, SeqSet()))
    return {
        "source": source.hex(),
        "owner": ledger.owners.get(source, ""),
        "published": published.count,
        "first_held": first_held,
        "last": last,
        "gaps": sum(top - bottom for bottom, top in published.missing(1, last + 1)) if last else 0,
        "lost": lost.count,
        "losers": losers,
        "start": low,
        "stop": max(high, low),
        "cells": strip.cells(low, high) if high > low else [],
    }


def _lost(journal: Readable, series: Series) -> tuple[SeqSet, list[str]]:
    """The seqs that a subscriber lost, and the names of those subscribers."""
    lost, names = SeqSet(), list[str]()
    for name, account in list(journal.ledger.accounts.items())[:OWED_MAX]:
        theirs = account.ends.get(series, {}).get(FinalOutcome.LOST)
        if theirs:
            lost, names = lost.union(theirs), [*names, name]
    return lost, sorted(names)


class Strip:
    """What became of the seqs of one source.

    >>> strip = Strip(SeqSet.from_ranges([(1, 5), (6, 9)]), SeqSet.from_ranges([(7, 8)]), 3, SeqSet())
    >>> strip.cells(1, 9)
    [['removed', 1, 3], ['held', 3, 5], ['gap', 5, 6], ['held', 6, 7], ['lost', 7, 8], ['held', 8, 9]]
    """

    def __init__(self, published: SeqSet, lost: SeqSet, first_held: int, skipped: SeqSet) -> None:
        self._published = published
        self._lost = lost
        self._first_held = first_held
        self._skipped = skipped

    def cells(self, start: int, stop: int) -> list[list[Any]]:
        """Runs of `[kind, start, stop)`: each part of the strip shows the worst of its seqs."""
        step = max(1, -(-(stop - start) // CELLS))
        runs: list[list[Any]] = []
        for low in range(start, stop, step):
            high = min(low + step, stop)
            kind = self._kind(low, high)
            if runs and runs[-1][0] == kind:
                runs[-1][2] = high
            else:
                runs.append([kind, low, high])
        return runs

    def _kind(self, low: int, high: int) -> str:
        if self._lost.overlap(low, high):
            return "lost"
        missing = self._published.missing(low, high)
        if any(not self._skipped.covers(*one) for one in missing):
            return "gap"
        return "removed" if low < self._first_held else "held"
