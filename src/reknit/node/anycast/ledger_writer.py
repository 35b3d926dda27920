"""Writes anycast's ledger into the journal: together at short intervals, and its floor now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from reknit.node.anycast.journal_offers import JournalOffers
from reknit.node.anycast.ledger import AnycastLedger
from reknit.node.anycast.local_paths import now

WRITE_S: Final = 0.02
"""The interval at which outcomes are written to the journal together."""
FLOOR_S: Final = 5.0
"""How often the floor is written without an outcome."""


class LedgerWriter:
    """The timers of one node's anycast ledger."""

    def __init__(
        self, ledger: AnycastLedger, offers: JournalOffers, run_machines: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._offers = offers
        self._run_machines = run_machines
        self._loop = asyncio.get_running_loop()
        self._writing: asyncio.TimerHandle | None = None
        self._flooring: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Move the floor now and then."""
        self._flooring = self._loop.call_later(FLOOR_S, self.move_floor)

    def stop(self) -> None:
        """Write the outcomes that are not written yet."""
        for timer in (self._writing, self._flooring):
            if timer is not None:
                timer.cancel()
        self.write()

    def write_soon(self) -> None:
        """Write, together with the outcomes of the next moment."""
        if self._ledger.is_due and self._writing is None:
            self._writing = self._loop.call_later(WRITE_S, self._write_later)

    def write(self) -> None:
        """Write the outcomes that are not written yet."""
        if self._ledger.is_due:
            self._ledger.flush(self._offers.cursor, now())

    def _write_later(self) -> None:
        self._writing = None
        self.write()
        self._run_machines()

    def move_floor(self) -> None:
        """Let retention remove events that nobody here waits for, also while nothing is delivered."""
        self._flooring = self._loop.call_later(FLOOR_S, self.move_floor)
        self._ledger.move_floor(self._offers.cursor, now())
        self._run_machines()
