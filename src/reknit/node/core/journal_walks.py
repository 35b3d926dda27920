"""Walks through a journal that may pause: what is stored or removed meanwhile does not disturb them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reknit.entries import Entry
from reknit.ledger import Series
from reknit.seqset import SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern

EVENTS_MIN: Final = 64
"""How many of the newest events of a series are looked at first."""
EVENTS_MAX: Final = 4_096
"""How many are looked at in one step, or one batch."""


def series_of(journal: Journal, pattern: Pattern) -> Iterator[tuple[Series, SeqSet]]:
    """Every series that matches and has events. Others may be added meanwhile."""
    known, published = journal.ledger.series, journal.ledger.published
    for topic in list(known.topics(pattern)):
        for series in list(known.of(topic)):
            if seqs := published.get(series):
                yield series, seqs


def newest(journal: Journal, series: Series, first: int, stop: int) -> Iterator[Entry | None]:
    """The batches with any of `[first, stop)`, the newest first, and None after each search for some."""
    size = EVENTS_MIN
    while first < stop:
        low = max(first, stop - size)
        entries = journal.find(*series, low, stop)
        yield None
        yield from reversed(entries)
        stop = min([low, *(entry.head.first for entry in entries)])
        size = min(2 * size, EVENTS_MAX)
