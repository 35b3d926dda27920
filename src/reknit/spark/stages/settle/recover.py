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
BYTES_MAX: Final = 256 << 20
"""One settle run recovers about this much; the next run takes the rest."""


class SeriesGap(NamedTuple):
    """Events `[start, stop)` of a series that are missing."""

    topic: str
    source: bytes
    start: int
    stop: int


class RecoveryResult(NamedTuple):
    """The recovered batches, each with the name of its cache, and whether every cache could be asked."""

    batches: list[tuple[str, Batch]]
    is_complete: bool


class EventCache(Protocol):
    """Anything that can be asked for events: an archive, a node, a fake."""

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        """The events that it holds, as batches. Raises `ReknitError` or `OSError` if it can't be asked."""
        ...


def recover(gaps: Sequence[SeriesGap], caches: Iterable[tuple[str, EventCache]]) -> RecoveryResult:
    """Ask one cache after the other for the events that are still missing."""
    missing = {gap: SeqSet.from_ranges([(gap.start, gap.stop)]) for gap in gaps}
    found: list[tuple[str, Batch]] = []
    size, is_complete = 0, True
    for name, cache in caches:
        for gap, seqs in missing.items():
            try:
                for start, stop in seqs.ranges() if size < BYTES_MAX else ():
                    for batch in cache.find(gap.topic, gap.source, start, stop):
                        seqs.discard(batch.first, batch.stop)
                        found.append((name, batch))
                        size += batch.head.length
            except (ReknitError, OSError):
                is_complete = False
                break
    return RecoveryResult(found, is_complete and size < BYTES_MAX)


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
