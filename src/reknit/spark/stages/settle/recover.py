"""Recovers the events of gaps from the nodes' journals and from archives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from reknit.batch import Batch
from reknit.errors import ReknitError
from reknit.seqset import SeqSet
from reknit.spark.blocking_connection import BlockingConnection
from reknit.transport.tls import NO_FILES, TlsFiles

__all__ = ["EventCache", "NodeCache", "RecoveryResult", "SeriesGap", "recover"]

ASK_EVENTS_MAX: Final = 100_000
"""One request to a node asks for at most this many events."""
EMPTY_EVENTS_MAX: Final = 16 * ASK_EVENTS_MAX
"""A search asks for at most this many events at once, where it has found none."""
BYTES_MAX: Final = 256 << 20
"""One settle run recovers about this much; the next run takes the rest."""


class SeriesGap(NamedTuple):
    """Events `[start, stop)` of a series that are missing."""

    topic: str
    source: bytes
    start: int
    stop: int


class RecoveryResult(NamedTuple):
    """What was recovered, and which gaps were asked for."""

    batches: list[tuple[str, Batch]]
    """The recovered batches, each with the name of its cache."""
    asked: list[SeriesGap]
    """The gaps that every cache was asked for: only what is still missing in them can be given up."""
    is_complete: bool
    """Whether those are all the gaps."""
    is_reachable: bool = True
    """Whether every cache could be asked."""


class EventCache(Protocol):
    """Anything that can be asked for events: an archive, a node, a fake."""

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        """The events that it holds, as batches. Raises `ReknitError` or `OSError` if it can't be asked."""
        ...


def recover(
    gaps: Iterable[SeriesGap], caches: Sequence[tuple[str, EventCache]], bytes_max: int = BYTES_MAX
) -> RecoveryResult:
    """Ask for gaps in their order, a part at a time, until about `bytes_max` are recovered.

    One cache after the other is asked for what is still missing. A cache that can't be asked is not tried again.
    """
    search = _Search(list(caches))
    for gap in gaps:
        start, step = gap.start, ASK_EVENTS_MAX
        while start < gap.stop:
            if search.size >= bytes_max:
                return search.result(is_complete=False)
            stop = min(gap.stop, start + step)
            has_found = search.ask(gap._replace(start=start, stop=stop))
            # Events that are in no cache take few requests: a series can begin late in a long journal.
            start, step = stop, ASK_EVENTS_MAX if has_found else min(4 * step, EMPTY_EVENTS_MAX)
        search.asked.append(gap)
    return search.result(is_complete=True)


class _Search:
    """The caches that can be asked, and what they gave."""

    def __init__(self, caches: list[tuple[str, EventCache]]) -> None:
        self._caches, self._is_any_away = caches, False
        self._found: list[tuple[str, Batch]] = []
        self.asked: list[SeriesGap] = []
        self.size = 0

    def ask(self, part: SeriesGap) -> bool:
        """Ask every cache for a part of a gap; true if it has any of it."""
        missing, known = SeqSet.from_ranges([(part.start, part.stop)]), len(self._found)
        for name, cache in list(self._caches):
            try:
                batches = _find(part, missing, cache)
            except (ReknitError, OSError):
                self._caches.remove((name, cache))
                self._is_any_away = True
                continue
            self._found += [(name, batch) for batch in batches]
            self.size += sum(batch.head.length for batch in batches)
        return len(self._found) > known

    def result(self, is_complete: bool) -> RecoveryResult:
        if self._is_any_away:
            return RecoveryResult(self._found, [], is_complete=False, is_reachable=False)
        return RecoveryResult(self._found, self.asked, is_complete)


def _find(gap: SeriesGap, missing: SeqSet, cache: EventCache) -> list[Batch]:
    """What a cache holds of the missing events, which are taken out of `missing`."""
    batches = [
        batch for start, stop in missing.ranges() for batch in cache.find(gap.topic, gap.source, start, stop)
    ]
    for batch in batches:
        missing.discard(batch.first, batch.stop)
    return batches


class NodeCache:
    """A node as a cache, over one connection that is opened on first use."""

    def __init__(self, url: str, token: str = "", tls: TlsFiles = NO_FILES, timeout_s: float = 10.0) -> None:
        self.url = url
        self._token, self._timeout_s, self._tls = token, timeout_s, tls
        self._connection: BlockingConnection | None = None

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        """The events of `[start, stop)` that the node's journal still holds."""
        if self._connection is None:
            self._connection = BlockingConnection(self.url, self._token, self._timeout_s, self._tls)
        batches: list[Batch] = []
        try:
            while start < stop:
                end = min(stop, start + ASK_EVENTS_MAX)
                body, data = self._connection.ask_raw(
                    "find", topic=topic, source=source, start=start, stop=end
                )
                batches += _split(bytes(data))
                start = max(int(body["next"]), int(body["first_held"]))
        except (ReknitError, OSError):
            self.close()
            raise
        return batches

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _split(data: bytes) -> list[Batch]:
    batches: list[Batch] = []
    at = 0
    while at < len(data):
        batches.append(Batch.parse(data, at))
        at += batches[-1].head.length
    return batches
