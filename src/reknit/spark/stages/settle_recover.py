"""Filling gaps: from the nodes' journals (whichever has the events) and from archives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from reknit.batch import Batch
from reknit.errors import ReknitError
from reknit.seqset import SeqSet
from reknit.spark.source.nodes import NodeLink

__all__ = ["Cache", "Found", "Gap", "NodeCache", "recover"]

ASK_EVENTS_MAX: Final = 100_000
"""One question to a node is for at most so many events."""
BYTES_MAX: Final = 256 << 20
"""One settle run recovers about so much; the rest is recovered by the next."""


class Gap(NamedTuple):
    """Events `[start, stop)` that are missing."""

    topic: str
    source: bytes
    start: int
    stop: int


class Found(NamedTuple):
    """What was found, who had it, and whether everyone could be asked."""

    batches: list[tuple[str, Batch]]
    is_complete: bool


class Cache(Protocol):
    """Anything that can be asked for events: an archive, the nodes, a fake."""

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        """The events that are held, as batches. Raises `ReknitError` or `OSError` when it can't be asked."""
        ...


def recover(gaps: Sequence[Gap], caches: Iterable[tuple[str, Cache]]) -> Found:
    """Ask one cache after the other for what is still missing."""
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
    return Found(found, is_complete and size < BYTES_MAX)


class NodeCache:
    """A node as a cache, over one connection that is opened when it is needed."""

    def __init__(self, url: str, token: str = "", tls_ca_file: str = "", timeout_s: float = 10.0) -> None:
        self.url = url
        self._how = (token, timeout_s, tls_ca_file)
        self._link: NodeLink | None = None

    def find(self, topic: str, source: bytes, start: int, stop: int) -> list[Batch]:
        """What the node's journal still holds of `[start, stop)`."""
        if self._link is None:
            self._link = NodeLink(self.url, *self._how)
        batches: list[Batch] = []
        try:
            while start < stop:
                end = min(stop, start + ASK_EVENTS_MAX)
                body, data = self._link.ask_raw("find", topic=topic, source=source, start=start, stop=end)
                batches += _split(bytes(data))
                start = max(end, int(body["first_held"]))
        except (ReknitError, OSError):
            self.close()
            raise
        return batches

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None


def _split(data: bytes) -> list[Batch]:
    batches: list[Batch] = []
    at = 0
    while at < len(data):
        batches.append(Batch.parse(data, at))
        at += batches[-1].head.length
    return batches
