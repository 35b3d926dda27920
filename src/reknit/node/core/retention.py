"""Applies retention to a node's journal, as far as nobody needs what it removes, also after a crash."""

from __future__ import annotations

from collections.abc import Callable

from reknit.config import RetentionSettings
from reknit.entries import Removed
from reknit.node.core.dead_letters import DeadLetters
from reknit.node.core.journal_tail import JournalTail
from reknit.node.core.scheduling import Scheduling
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.dispatch.inputs import JournalTrimmed
from reknit.protocol.machine import JOURNAL
from reknit.store.journal import Journal


class CoreRetention:
    """Trims the journal of one core.

    A position before which nothing is owed holds only when the outcomes that it rests on are durable: after a crash
    without them, a subscriber would be owed events that are gone. So what was decided waits for the next commit.
    """

    def __init__(
        self,
        *,
        settings: RetentionSettings,
        journal: Journal,
        dispatch: Dispatcher,
        dead_letters: DeadLetters,
        scheduling: Scheduling,
        tail: JournalTail,
        mark: Callable[[float], int],
        on_removed: Callable[[list[Removed], float], None],
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._dispatch = dispatch
        self._dead_letters = dead_letters
        self._scheduling = scheduling
        self._tail = tail
        self._mark = mark
        self._on_removed = on_removed
        self._waiting: tuple[int, int] | None = None
        """The number that has to be durable, and the position before which entries may be removed then."""

    def trim(self, now: float) -> None:
        """Remove what retention does not keep, now or when it is durable that nobody is owed it."""
        settings = self._settings
        if self._waiting is not None or not (settings.count_max or settings.bytes_max or settings.age_s_max):
            return
        self._scheduling.keep_short(now)
        self._waiting = (0, self._floor())
        if self._journal.staged_end > self._journal.end:
            self._waiting = (self._mark(now), self._floor())
        self.made_durable(0, now)

    def made_durable(self, number: int, now: float) -> None:
        """Everything up to this number is durable."""
        if self._waiting is None or self._waiting[0] > number:
            return
        floor, self._waiting = min(self._waiting[1], self._floor()), None
        removed = self._journal.trim(None, floor, waits=False)
        if removed:
            self._dispatch.receive(JournalTrimmed(self._journal.start, removed), JOURNAL, now)
            self._on_removed(removed, now)

    def _floor(self) -> int:
        """The position before which entries may be removed. Dead letters and scheduled events that wait stay.

        Events that a durable subscriber is owed stay too, unless the configuration says otherwise.
        """
        floors = [self._tail.end]  # what was committed since then is not dispatched yet
        if self._settings.protect_unsettled:
            floors += [account.floor for account in self._journal.ledger.accounts.values()]
        # Dead letters have limits of their own, and nobody is told of their loss.
        kept = (self._dead_letters.floor(), self._scheduling.floor())
        return min([*floors, *(floor for floor in kept if floor is not None)])
