"""Writes anycast's ledger into the journal: outcomes at once, or together while a write is under way, and its floor."""

from __future__ import annotations

from typing import Final

from reknit.node.anycast.journal_offers import JournalOffers
from reknit.node.anycast.ledger import AnycastLedger

FLOOR_S: Final = 5.0
"""How often the floor is written without an outcome."""


class LedgerWriter:
    """Decides when one node's anycast ledger is written, and knows how much of it is durable."""

    def __init__(self, ledger: AnycastLedger, offers: JournalOffers) -> None:
        self._ledger = ledger
        self._offers = offers
        self.number = 0
        """The number of the last record with outcomes."""
        self.durable_number = 0
        """Everything up to this number is durable."""
        self._floor_at: float | None = None

    def start(self, now: float) -> None:
        """Move the floor now and then."""
        self._floor_at = now + FLOOR_S

    @property
    def is_due(self) -> bool:
        """Whether there are outcomes to write. While others are being written they gather, to be written together."""
        return self._ledger.is_due and self.number <= self.durable_number

    @property
    def has_unwritten(self) -> bool:
        """Whether outcomes wait to be written."""
        return self._ledger.is_due

    def write(self, now: float) -> None:
        """Write the outcomes that are not written yet."""
        if self._ledger.is_due:
            self.number = self._ledger.flush(self._offers.cursor, now) or self.number

    def made_durable(self, number: int) -> None:
        """The journal made everything up to this number durable."""
        self.durable_number = max(self.durable_number, number)

    def move_floor(self, now: float) -> None:
        """Let retention remove events that nobody here waits for, also while nothing is delivered."""
        self._floor_at = now + FLOOR_S
        self._ledger.move_floor(self._offers.cursor, now)

    def tick(self, now: float) -> None:
        """Move the floor when that is due."""
        if self._floor_at is not None and now >= self._floor_at:
            self.move_floor(now)

    def next_deadline(self) -> float | None:
        """When the floor moves next."""
        return self._floor_at
