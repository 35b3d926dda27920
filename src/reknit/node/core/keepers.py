"""Holders of past events on a node: its journal, and several holders combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reknit.batch import Batch
from reknit.errors import Gone
from reknit.ledger import Series
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
        oldest_us = self._now_us() - int(age_s * 1e6) if age_s else 0
        spans: list[Span] = []
        for (topic, source), seqs in sorted(self._journal.ledger.matching(pattern)):
            first = self._first(topic, source, seqs.last + 1, oldest_us)
            held = seqs.difference(self._journal.lost(topic, source))
            spans.append(
                Span(topic, source, held.overlap(min(first, seqs.last + 1), seqs.last + 1), seqs.last)
            )
        return spans

    def _first(self, topic: str, source: bytes, stop: int, oldest_us: int) -> int:
        first = self._journal.first_held(topic, source)
        if oldest_us and first < stop:
            for entry in reversed(self._journal.find(topic, source, first, stop)):
                if entry.head.time_us < oldest_us:
                    return entry.head.stop
        return first


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
        spans: dict[Series, tuple[SeqSet, int]] = {}
        for keeper in self._keepers:
            for span in keeper.survey(pattern, age_s):
                series = (span.topic, span.source)
                seqs, last = spans.get(series, (SeqSet(), 0))
                spans[series] = (seqs.union(SeqSet.from_ranges(span.ranges)), max(last, span.last))
        return [Span(*series, seqs.ranges(), last) for series, (seqs, last) in sorted(spans.items())]
