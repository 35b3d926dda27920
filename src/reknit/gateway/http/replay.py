"""Replay for tunnels that are behind: the next part of the journal after a place, encoded for a group.

Several tunnels often need the same part, as after a restart. It is read and encoded once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from reknit import environment
from reknit.batch import Batch
from reknit.entries import Entry, Removed, Run
from reknit.gateway.http.formats import TunnelBatch
from reknit.gateway.http.groups import TunnelGroup
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.protocol.tunnel.topic_routes import ROUTES_TOPIC
from reknit.store.journal import Journal

READ_BYTES: Final = 128 << 10
"""How much of the journal one step reads."""
SCAN_BYTES: Final = 4 << 20
"""How much one step looks through while it finds nothing for the tunnel."""
CACHE_BYTES_MAX: Final = 16 << 20

Populate = Callable[[Entry, TunnelGroup], list[bytes]]
"""The encoded events that a group gets because of the routes in a batch."""
OnLost = Callable[[int, Sequence[Removed]], None]
"""Called with a position after which these events can't be read."""


class Part(NamedTuple):
    """A part of the journal for a group: as it is sent, its size at the client, and the place after it."""

    data: bytes
    size: int
    place: JournalPlace


class JournalReplay:
    """Reads and encodes parts of one journal, and caches the newest of them."""

    def __init__(self, journal: Journal, epoch: str, populate: Populate, on_lost: OnLost) -> None:
        self._journal = journal
        self._epoch = epoch
        self._populate = populate
        self._on_lost = on_lost
        self._cache: OrderedDict[tuple[Hashable, JournalPlace], Part] = OrderedDict()
        self._cache_bytes = 0
        self.encoded = 0
        """How many batches were encoded, once for each group and location."""

    def forget(self) -> None:
        """Routes changed: cached parts may be wrong now."""
        self._cache.clear()
        self._cache_bytes = 0

    def next(self, group: TunnelGroup, place: JournalPlace, edge: int) -> Part:
        """The next part for a tunnel of the group after a place, up to the live edge, and the place after that part.

        Raises `Gone` if retention removed it.
        """
        if place.position >= edge:
            # Nothing is there yet: a part that is empty now must not be cached, it would be empty for ever.
            return Part(b"", 0, JournalPlace(self._epoch, edge))
        key = (group.key, place)
        found = self._cache.get(key)
        if found is None:
            found = self._read(group, place, edge)
            self._cache[key] = found
            self._cache_bytes += len(found.data)
            while self._cache_bytes > CACHE_BYTES_MAX and len(self._cache) > 1:
                self._cache_bytes -= len(self._cache.popitem(last=False)[1].data)
        return found

    def _read(self, group: TunnelGroup, place: JournalPlace, edge: int) -> Part:
        position, skip = place.position, place.index
        parts: list[bytes] = []
        scanned_to = position + SCAN_BYTES
        while position < min(edge, scanned_to) and not parts:
            run = self._journal.read(position, edge, READ_BYTES)
            if run.lost:
                self._on_lost(position, run.lost)
            for at, entry in enumerate(run.entries):
                parts += self._encode(group, run, at, entry, skip)
                skip = 0
            position = run.next_position
        data = b"".join(parts)
        return Part(group.format.pack(data), len(data), JournalPlace(self._epoch, min(position, edge)))

    def _encode(self, group: TunnelGroup, run: Run, at: int, entry: Entry, skip: int) -> list[bytes]:
        parts: list[bytes] = []
        if entry.head.topic.endswith(ROUTES_TOPIC):
            parts += self._populate(entry, group)
        if not is_expired(entry):
            for location in group.scope.locations(entry.head.topic, entry.position):
                batch = Batch(entry.head, run.cut(at, at + 1))
                self.encoded += 1
                item = TunnelBatch(batch, self._epoch, entry.position, skip, location)
                parts.append(group.format.batch(item))
        return parts


def is_expired(entry: Entry) -> bool:
    """Whether the batch's time to live is over. Such a batch is not replayed."""
    head = entry.head
    return bool(head.ttl_ms) and head.time_us + head.ttl_ms * 1000 < environment.time_us()
