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
        self._asked_for = self._kept_to = 0
        """The last number that the thread was given, and the last one that it has kept."""
        self._is_held = False
        """A commit is under way on the loop, or the next attempt after a failed one is waited for."""
        self._wanted: tuple[int, bool] | None = None
        """What came while it was held."""
        self._alone_at = 0.0
        """From this time on a commit counts as alone."""
        self._thread = threading.Thread(target=self._work, name="reknit-commit", daemon=True)
        self._thread.start()

    def request(self, number: int, sync: bool) -> None:
        """Make everything that is staged by now durable; `number` is the last append among it."""
        if self._is_held:
            self._wanted = (number, sync or (self._wanted is not None and self._wanted[1]))
        elif self._kept_to < self._asked_for or not self._is_alone():
            self._ask(number, sync)
        else:
            self._keep_here(number, sync)

    def _ask(self, number: int, sync: bool) -> None:
        self._asked_for = number
        self._requests.put((number, sync))

    def _keep_here(self, number: int, sync: bool) -> None:
        """Commit on the loop, and what that brings with it, as long as it is little."""
        wanted: tuple[int, bool] | None = (number, sync)
        while wanted is not None:
            number, sync = wanted
            if not self._is_alone():
                self._ask(number, sync)
                return
            self._is_held = True
            try:
                end = self._commit_here(sync)
            except JournalError as error:
                self._failed(number, sync, error)
                return
            self._on_kept(number, end)
            wanted, self._wanted, self._is_held = self._wanted, None, False

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
        """Commit without waiting for the loop in between: what was asked for meanwhile is one group."""
        while (request := self._next()) is not None:
            number, sync = request
            try:
                end = self._journal.commit(sync)
            except JournalError as error:
                self._call(self._failed, number, sync, error)
            else:
                self._call(self._done, number, end)

    def _next(self) -> tuple[int, bool] | None:
        """All requests that are there as one, once there is one; None at the end, which is asked for last."""
        request = self._requests.get()
        while request is not None and not self._requests.empty():
            following = self._requests.get()
            if following is None:
                self._requests.put(None)
                break
            request = (following[0], request[1] or following[1])
        return request

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed: there is nobody left to tell
            log.debug("commit ended after the loop")

    def _done(self, number: int, end: int) -> None:
        self._kept_to = max(self._kept_to, number)
        self._alone_at = max(self._alone_at, time.monotonic() + IDLE_S)
        self._on_kept(number, end)

    def _failed(self, number: int, sync: bool, error: JournalError) -> None:
        self._is_held = True
        self._on_failed(error)
        if self._wanted is not None:
            number, sync = max(number, self._wanted[0]), sync or self._wanted[1]
        self._wanted = (number, sync)
        self._loop.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        wanted, self._wanted, self._is_held = self._wanted, None, False
        if wanted is not None:
            self._ask(*wanted)

    async def stop(self) -> None:
        """Finish what is under way, and end the thread."""
        self._requests.put(None)
        await asyncio.to_thread(self._thread.join, 10.0)
