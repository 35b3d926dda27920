"""What became of a group's events at one member: every one is delivered or lost, as ranges."""

from __future__ import annotations

from typing import NamedTuple

from reknit.seqset import Range, SeqSet

SOURCES_MAX = 4096
"""So many sources are in the ledger; of more, the first are left out."""


class GroupRow(NamedTuple):
    """One sender, seen from here."""

    source: bytes
    delivered: int
    """How many of its events the application was handed, or is about to be."""
    lost: int
    last: int
    """Its last seq that is known of here."""


class GroupLedger:
    """Delivered and lost by source, and what others did not take of ours by member.

    >>> ledger = GroupLedger()
    >>> ledger.deliver(b"s", 1, 5)
    >>> ledger.lose(b"s", 5, 8)
    >>> ledger.rows()
    [GroupRow(source=b's', delivered=4, lost=3, last=7)]
    >>> ledger.lost(b"s")
    [(5, 8)]
    """

    def __init__(self) -> None:
        self._delivered: dict[bytes, SeqSet] = {}
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
        seqs.add(start, stop)

    def lose(self, source: bytes, start: int, stop: int) -> None:
        self._lost.setdefault(source, SeqSet()).add(start, stop)

    def dead_letter(self, member: bytes, start: int, stop: int) -> None:
        """Events of ours that a slow member is not waited for with."""
        self._dead.setdefault(member, SeqSet()).add(start, stop)

    def lost(self, source: bytes) -> list[Range]:
        """What was lost of a source."""
        return self._lost.get(source, SeqSet()).ranges()

    def dead_letters(self, member: bytes) -> list[Range]:
        """What of ours was dead-lettered for a member."""
        return self._dead.get(member, SeqSet()).ranges()

    def rows(self) -> list[GroupRow]:
        """A row a source, in the order in which they were first heard of."""
        return [self._row(source) for source in dict.fromkeys([*self._delivered, *self._lost])]

    def _row(self, source: bytes) -> GroupRow:
        delivered, lost = self._delivered.get(source, SeqSet()), self._lost.get(source, SeqSet())
        last = max(seqs.last for seqs in (delivered, lost) if seqs)
        return GroupRow(source, delivered.count, lost.count, last)
