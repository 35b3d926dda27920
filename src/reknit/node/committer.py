"""Group commit: one thread that makes everything staged so far durable, again and again, while there is something."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from reknit.errors import JournalError
from reknit.store.journal import Journal

log = logging.getLogger("reknit.journal")

RETRY_S = 1.0
"""How long to wait after a failed commit, on a full disk for instance, before it is tried again."""


class Committer:
    """Runs `journal.commit()` off the loop. What arrives during one sync is the next one's group.

    A journal in memory has nothing to wait for: its commits run on the loop, without a way to a thread and back.
    """

    def __init__(
        self,
        journal: Journal,
        on_kept: Callable[[int, int], None],
        on_failed: Callable[[JournalError], None],
        in_memory: bool = False,
    ) -> None:
        self._journal = journal
        self._on_kept = on_kept
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._requests: SimpleQueue[tuple[int, bool] | None] = SimpleQueue()
        self._in_memory = in_memory
        self._is_busy = False
        self._wanted: int | None = None
        self._wants_sync = False
        self._thread = threading.Thread(target=self._work, name="reknit-commit", daemon=True)
        self._thread.start()

    def request(self, number: int, sync: bool) -> None:
        """Make everything that is staged by now durable; `number` is the last append among it."""
        self._wanted = number
        self._wants_sync = self._wants_sync or sync
        if not self._is_busy:
            self._start()

    def _start(self) -> None:
        self._is_busy = True
        number, sync = self._wanted or 0, self._wants_sync
        self._wanted, self._wants_sync = None, False
        if self._in_memory:
            self._loop.call_soon(self._commit, self._loop.call_soon, number, sync)
        else:
            self._requests.put((number, sync))

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            self._commit(self._call, *request)

    def _commit(self, call: Callable[..., object], number: int, sync: bool) -> None:
        try:
            end = self._journal.commit(sync)
        except JournalError as error:
            call(self._failed, number, sync, error)
        else:
            call(self._done, number, end)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed: there is nobody left to tell
            log.debug("commit ended after the loop")

    def _done(self, number: int, end: int) -> None:
        self._is_busy = False
        if self._wanted is not None:
            self._start()
        self._on_kept(number, end)

    def _failed(self, number: int, sync: bool, error: JournalError) -> None:
        self._on_failed(error)
        self._wanted = max(self._wanted or 0, number)
        self._wants_sync = self._wants_sync or sync
        self._loop.call_later(RETRY_S, self._start)

    async def stop(self) -> None:
        """Finish what is under way, and end the thread."""
        self._requests.put(None)
        await asyncio.to_thread(self._thread.join, 10.0)
