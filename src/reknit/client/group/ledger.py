"""The outcomes of a group's events at one member: every event is delivered, unread or lost, counted in ranges."""

from __future__ import annotations

from typing import NamedTuple

from reknit.seqset import Range, SeqSet

SOURCES_MAX = 4096
"""The ledger has at most this many sources; a new one evicts the oldest."""


class GroupRow(NamedTuple):
    """One sender, as this member sees it."""

    source: bytes
    delivered: int
    """How many of its events were delivered to the application, or are about to be."""
    lost: int
    last: int
    """Its last seq that this member knows."""
    unread: int = 0
    """How many of its events arrived and were not read, because this member closed the group."""


class GroupLedger:
    """Delivered, unread and lost events by source; this member's dead-lettered events by member.

    >>> ledger = GroupLedger()
    >>> ledger.deliver(b"s", 1, 5)
    >>> ledger.lose(b"s", 5, 8)
    >>> ledger.leave_unread(b"s", 4, 5)
    >>> ledger.rows()
    [GroupRow(source=b's', delivered=3, lost=3, last=7, unread=1)]
    >>> ledger.lost(b"s")
    [(5, 8)]
    """

    def __init__(self) -> None:
        self._delivered: dict[bytes, SeqSet] = {}
        self._unread: dict[bytes, SeqSet] = {}
        self._lost: dict[bytes, SeqSet] = {}
        self._dead: dict[bytes, SeqSet] = {}

    def deliver(self, source: bytes, start: int, stop: int) -> None:
        seqs = self._delivered.get(source)
        if seqs is None:
            seqs = self._delivered[source] = SeqSet()
            if len(self._delivered) > SOURCES_MAX:
                oldest = next(iter(self._delivered))
                del self._delivered[oldest]
                self._lost.pop(oldest, None)
                self._unread.pop(oldest, None)
        seqs.add(start, stop)

    def leave_unread(self, source: bytes, start: int, stop: int) -> None:
        """Events that were delivered here are not read any more."""
        self._unread.setdefault(source, SeqSet()).add(start, stop)

    def lose(self, source: bytes, start: int, stop: int) -> None:
        self._lost.setdefault(source, SeqSet()).add(start, stop)

    def dead_letter(self, member: bytes, start: int, stop: int) -> None:
        """A slow member did not take these events of this member in time."""
        self._dead.setdefault(member, SeqSet()).add(start, stop)

    def lost(self, source: bytes) -> list[Range]:
        """The lost events of a source."""
        return self._lost.get(source, SeqSet()).ranges()

    def unread(self, source: bytes) -> list[Range]:
        """The events of a source that arrived and were not read."""
        return self._unread.get(source, SeqSet()).ranges()

    def dead_letters(self, member: bytes) -> list[Range]:
        """This member's events that are dead letters for another member."""
        return self._dead.get(member, SeqSet()).ranges()

    def rows(self) -> list[GroupRow]:
        """A row per source, in the order in which they first appeared."""
        return [self._row(source) for source in dict.fromkeys([*self._delivered, *self._lost])]

    def _row(self, source: bytes) -> GroupRow:
        delivered, lost = self._delivered.get(source, SeqSet()), self._lost.get(source, SeqSet())
        last = max(seqs.last for seqs in (delivered, lost) if seqs)
        unread = self._unread.get(source, SeqSet()).count
        return GroupRow(source, delivered.count - unread, lost.count, last, unread)
