"""Holders of past events on a node: its journal, and several holders combined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reknit.batch import Batch
from reknit.errors import Gone
from reknit.ledger import Series
from reknit.node.core.journal_walks import newest, series_of
from reknit.protocol.recovery.cache import EventHolder, total
from reknit.seqset import SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.wire.recovery import Span


class JournalKeeper:
    """A journal as a cache: it survives restarts, and retention bounds it."""

    def __init__(self, journal: Journal, now_us: Callable[[], int]) -> None:
        self._journal = journal
        self._now_us = now_us

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """The events of `[start, stop)` that are held, cut to it, in seq order."""
        found: list[Batch] = []
        while bytes_max > 0 and start < stop:
            # It gives as many as fit. The rest is read until the limit is passed: fewer means that there are no more.
            entries = self._journal.find(topic, source, start, stop, bytes_max)
            if not entries:
                break
            for entry in entries:
                try:
                    found.append(Batch(entry.head, self._journal.fetch(entry)).cut(start, stop))
                except Gone:
                    continue
                bytes_max -= found[-1].head.length
            start = max(start, entries[-1].head.stop)
        return found

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """The ranges that are held of every series that matches."""
        return [span for span in self.walk(pattern, age_s) if span is not None]

    def walk(self, pattern: Pattern, age_s: float = 0.0) -> Iterator[Span | None]:
        """The same one by one, and None after each look into the journal. It may change meanwhile."""
        oldest_us = self._now_us() - int(age_s * 1e6) if age_s else 0
        journal = self._journal
        for series, seqs in series_of(journal, pattern):
            stop = seqs.last + 1
            first = journal.first_held(*series)
            if oldest_us:
                for entry in newest(journal, series, first, stop):
                    if entry is None:
                        yield None
                    elif entry.head.time_us < oldest_us:
                        first = entry.head.stop
                        break
            lost = journal.lost(*series)
            held = seqs.difference(lost) if lost else seqs
            yield Span(*series, held.overlap(min(first, stop), stop), stop - 1)


class Keepers:
    """Several caches combined: events that the first lacks are taken from the next."""

    def __init__(self, keepers: Sequence[EventHolder]) -> None:
        self._keepers = keepers

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """The events of `[start, stop)` that are held, cut to it, in seq order."""
        found: list[Batch] = []
        for keeper in self._keepers:
            have = SeqSet.from_ranges((batch.first, batch.stop) for batch in found)
            for low, high in have.missing(start, stop):
                more = keeper.find(topic, source, low, high, bytes_max)
                found += more
                if total(more) >= bytes_max:  # it may hold more behind these, which the next request gets
                    stop = more[-1].stop
                    break
        return sorted((batch for batch in found if batch.first < stop), key=lambda batch: batch.first)

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """The ranges that any of them holds of every series that matches."""
        return merged([span for span in self.walk(pattern, age_s) if span is not None])

    def walk(self, pattern: Pattern, age_s: float = 0.0) -> Iterator[Span | None]:
        """The ranges that each of them holds, one holder after the other, and None after each look into a journal."""
        for keeper in self._keepers:
            if isinstance(keeper, JournalKeeper):
                yield from keeper.walk(pattern, age_s)
            else:
                yield from keeper.survey(pattern, age_s)


def merged(spans: Sequence[Span]) -> list[Span]:
    """One span for each series, with what is in any of them.

    >>> merged([Span("a", b"s", [(1, 3)], 4), Span("a", b"s", [(3, 5)], 4)])
    [Span(topic='a', source=b's', ranges=[(1, 5)], last=4)]
    """
    found: dict[Series, Span] = {}
    for span in spans:
        series = (span.topic, span.source)
        if (other := found.get(series)) is not None:
            seqs = SeqSet.from_ranges(other.ranges).union(SeqSet.from_ranges(span.ranges))
            span = Span(*series, seqs.ranges(), max(other.last, span.last))
        found[series] = span
    return list(found.values())
