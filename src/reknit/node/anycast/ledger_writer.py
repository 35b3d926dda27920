"""Writes anycast's ledger into the journal: together at short intervals, and its floor now and then."""

from __future__ import annotations

from typing import Final

from reknit.node.anycast.journal_offers import JournalOffers
from reknit.node.anycast.ledger import AnycastLedger

WRITE_S: Final = 0.02
"""The interval at which outcomes are written to the journal together."""
FLOOR_S: Final = 5.0
"""How often the floor is written without an outcome."""


class LedgerWriter:
    """Decides when one node's anycast ledger is written."""

    def __init__(self, ledger: AnycastLedger, offers: JournalOffers) -> None:
        self._ledger = ledger
        self._offers = offers
        self._write_at: float | None = None
        self._floor_at: float | None = None

    def start(self, now: float) -> None:
        """Move the floor now and then."""
        self._floor_at = now + FLOOR_S

    def write_soon(self, now: float) -> None:
        """Write, together with the outcomes of the next moment."""
        if self._ledger.is_due and self._write_at is None:
            self._write_at = now + WRITE_S

    def write(self, now: float) -> None:
        """Write the outcomes that are not written yet."""
        self._write_at = None
        if self._ledger.is_due:
            self._ledger.flush(self._offers.cursor, now)

    def move_floor(self, now: float) -> None:
        """Let retention remove events that nobody here waits for, also while nothing is delivered."""
        self._floor_at = now + FLOOR_S
        self._ledger.move_floor(self._offers.cursor, now)

    def tick(self, now: float) -> None:
        """Write what is due."""
        if self._write_at is not None and now >= self._write_at:
            self.write(now)
        if self._floor_at is not None and now >= self._floor_at:
            self.move_floor(now)

    def next_deadline(self) -> float | None:
        """When something is to be written next."""
        return min((at for at in (self._write_at, self._floor_at) if at is not None), default=None)
