"""The timer of a node: ticks its core when that is due, and does chores at intervals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from reknit.config import JournalSettings
from reknit.errors import JournalError
from reknit.node.core.core import Core
from reknit.store.journal import Journal

log = logging.getLogger("reknit.node")

HOUSEKEEPING_S: Final = 0.5
INDEX_LOOK_S: Final = 0.2
WANTED_S: Final = 0.5
"""How often the index is saved while retention waits for it."""


class Housekeeping:
    """The timer of one node, and the task that saves its journal's index.

    `chores` are done every `HOUSEKEEPING_S`, before the machines run; `sample` is called after they ran.
    """

    def __init__(
        self,
        *,
        core: Core,
        chores: Sequence[Callable[[float], None]],
        run_machines: Callable[[], None],
        sample: Callable[[float], None],
        journal: Journal,
        settings: JournalSettings,
    ) -> None:
        self._core = core
        self._chores = chores
        self._run_machines = run_machines
        self._sample = sample
        self._journal = journal
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._chores_at = 0.0
        self._is_turn_due = False
        self._is_look_due = False
        self._is_stopped = False
        self._saving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._chores_at = self._now() + HOUSEKEEPING_S
        self._schedule(self._chores_at)
        self._saving = asyncio.create_task(self._save_index())

    async def stop(self) -> None:
        """End. Nothing runs in a later turn any more: the journal will be closed by then."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)

    def reschedule(self) -> None:
        """The machines ran: tick them when they are due next, which is found out once they have nothing to do."""
        if not self._is_look_due and not self._is_stopped:
            self._is_look_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_look_due = False
        due = self._core.next_deadline()
        if due is not None and due < self._timer_at and not self._is_stopped:
            self._schedule(due)

    def run_soon(self) -> None:
        """Run the machines in the next turn of the event loop, once."""
        if not self._is_turn_due and not self._is_stopped:
            self._is_turn_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_turn_due = False
        if not self._is_stopped:
            self._core.next_turn(self._now())
            self._run_machines()

    def _schedule(self, due: float) -> None:
        """Tick at this time, or when the chores are due if that is earlier.

        If it were after the usual interval, a tick just before the chores would delay them to twice that: then it
        looks as if the process had been suspended, and peers that are silent are given more time.
        """
        self._timer_at = max(min(due, self._chores_at), self._now() + 0.001)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._timer_at, self._tick)

    def _tick(self) -> None:
        now = self._now()
        self._timer_at = float("inf")
        try:
            self._work(now)
        finally:  # an error in one of them must not stop the clock
            if self._timer_at == float("inf"):
                self._schedule(now + HOUSEKEEPING_S)

    def _work(self, now: float) -> None:
        is_chores_time = now >= self._chores_at
        if is_chores_time:  # first, so that an error below does not make them due at once again
            self._chores_at = now + HOUSEKEEPING_S
        self._core.tick(now)
        if is_chores_time:
            for chore in self._chores:
                chore(now)
        self._run_machines()
        self._sample(now)

    async def _save_index(self) -> None:
        """Save the journal's index off the event loop: seldom, as that blocks the disk, unless much is not in it yet."""
        journal, settings, saved_at = self._journal, self._settings, self._now()
        while True:
            await asyncio.sleep(max(min(settings.index_interval_s, INDEX_LOOK_S), 0.01))
            passed_s = self._now() - saved_at
            is_due = passed_s >= settings.index_interval_s or (
                journal.is_save_wanted and passed_s >= WANTED_S
            )
            if not is_due and journal.unsaved_bytes < settings.index_bytes:
                continue
            saved_at = self._now()
            try:
                await asyncio.to_thread(journal.checkpoint)
            except JournalError as error:
                log.warning("the index could not be saved; the node will retry: %s", error)
