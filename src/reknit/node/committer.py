"""Group commit: one thread that makes everything staged so far durable, again and again, while there is something."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from reknit.errors import JournalError
from reknit.store.journal import Journal

log = logging.getLogger("reknit.journal")

RETRY_S = 1.0
"""How long to wait after a failed commit, on a full disk for instance, before it is tried again."""
SMALL_BYTES = 64 << 10
IDLE_S = 0.0005
"""A commit this long after the last one ended is alone: nothing would be gained by a group."""
SLOW_S = 0.005
"""A commit on the loop that took so long is the last one there for a while."""
RESPITE_S = 10.0


class Committer:
    """Runs `journal.commit()`, again and again, while there is something to keep.

    Under load it does so off the loop, and what arrives during one sync is the next one's group. A small commit
    that comes alone runs on the loop, where it needs no way to a thread and back, as long as the disk is quick.
    So does every commit in memory.
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
        self._alone_at = 0.0
        """From this time on a commit counts as alone."""
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
        while self._wanted is not None:
            number, sync = self._wanted, self._wants_sync
            self._wanted, self._wants_sync = None, False
            if not self._is_alone():
                self._requests.put((number, sync))
                return
            try:
                end = self._commit_here(sync)
            except JournalError as error:
                self._failed(number, sync, error)
                return
            self._on_kept(number, end)
        self._is_busy = False

    def _is_alone(self) -> bool:
        if self._in_memory:
            return True
        return self._journal.staged_bytes <= SMALL_BYTES and time.monotonic() >= self._alone_at

    def _commit_here(self, sync: bool) -> int:
        began = time.monotonic()
        end = self._journal.commit(sync)
        ended = time.monotonic()
        self._alone_at = ended + (RESPITE_S if ended - began > SLOW_S else IDLE_S)
        return end

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            number, sync = request
            try:
                end = self._journal.commit(sync)
            except JournalError as error:
                self._call(self._failed, number, sync, error)
            else:
                self._call(self._done, number, end)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed: there is nobody left to tell
            log.debug("commit ended after the loop")

    def _done(self, number: int, end: int) -> None:
        self._is_busy = False
        self._alone_at = max(self._alone_at, time.monotonic() + IDLE_S)
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
