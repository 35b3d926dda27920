"""Group commit: one thread that makes all staged appends durable, as long as there are any."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from reknit import environment
from reknit.errors import JournalError
from reknit.store.journal import Journal

log = logging.getLogger("reknit.journal")

RETRY_S = 1.0
"""The delay before a failed commit is retried, on a full disk for instance."""
SMALL_BYTES = 64 << 10
IDLE_S = 0.0002
"""A commit this long after the last one ended is alone: a group would gain nothing."""
SLOW_S = 0.005
"""A commit on the event loop that took this long is the last one there for `RESPITE_S`."""
RESPITE_S = 10.0
LONGEST_S = 60.0
"""The longest commit of one or two such periods is shown."""
STOP_S = 10.0
"""How long a stop waits for the disk."""


class CommitTimes:
    """How long commits took: the last one, their average of late, and the longest of the last minute."""

    def __init__(self) -> None:
        self._last_s = self._mean_s = self._longest_s = self._before_s = 0.0
        self._count = 0
        self._since = environment.monotonic()

    def note(self, took_s: float) -> None:
        """A commit ended."""
        self._count += 1
        self._last_s = took_s
        self._mean_s += (took_s - self._mean_s) / min(self._count, 100)
        now = environment.monotonic()
        if now - self._since > LONGEST_S:
            self._before_s, self._longest_s, self._since = self._longest_s, 0.0, now
        self._longest_s = max(self._longest_s, took_s)

    def status(self) -> dict[str, float]:
        """Their number, and times in seconds."""
        longest_s = max(self._longest_s, self._before_s)
        return {
            "count": self._count,
            "last_s": self._last_s,
            "mean_s": self._mean_s,
            "longest_s": longest_s,
        }


class CommitThread:
    """Runs `journal.commit()` for as long as something is staged.

    Under load it does so off the event loop, and all that arrives during one sync is the next group. A small commit
    that comes alone runs on the event loop, without a switch to the thread and back, as long as the disk is fast.
    So does every commit in memory.
    """

    def __init__(
        self,
        journal: Journal,
        on_durable: Callable[[int, int], None],
        on_failed: Callable[[JournalError], None],
        in_memory: bool = False,
    ) -> None:
        self.times = CommitTimes()
        self._journal = journal
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._requests: deque[tuple[int, bool]] = deque()
        self._in_memory = in_memory
        self._requested_to = self._durable_to = 0
        """The last number that the thread was given, and the last one that it has made durable."""
        self._is_held = False
        """A commit runs on the event loop, or a failed one waits for its retry."""
        self._wanted: tuple[int, bool] | None = None
        """The request that came meanwhile."""
        self._alone_at = 0.0
        """From this time on a commit counts as alone."""
        self._retrying: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        """Set when a commit of the thread ended."""
        self._is_stopped = False
        self._worker = environment.current().start_worker("reknit-commit")

    def request(self, number: int, sync: bool) -> None:
        """Make everything that is staged by now durable; `number` is the last append among it."""
        if self._is_stopped:
            return
        if self._is_held:
            self._wanted = (number, sync or (self._wanted is not None and self._wanted[1]))
        elif self._durable_to < self._requested_to or not self._is_alone():
            self._request(number, sync)
        else:
            self._commit_now(number, sync)

    def _request(self, number: int, sync: bool) -> None:
        self._requested_to = number
        self._requests.append((number, sync))
        self._worker.put(self._work)

    def _commit_now(self, number: int, sync: bool) -> None:
        """Commit on the event loop, and also the commits that follow from it, as long as they are small."""
        wanted: tuple[int, bool] | None = (number, sync)
        while wanted is not None:
            number, sync = wanted
            if not self._is_alone():
                self._request(number, sync)
                return
            self._is_held = True
            try:
                end = self._commit_here(sync)
            except JournalError as error:
                self._failed(number, sync, error)
                return
            try:
                self._on_durable(number, end)
            except BaseException:
                self._retry()  # an error in one effect must not stop all further commits
                raise
            wanted, self._wanted, self._is_held = self._wanted, None, False

    def _is_alone(self) -> bool:
        if self._in_memory:
            return True
        return self._journal.staged_bytes <= SMALL_BYTES and environment.monotonic() >= self._alone_at

    def _commit_here(self, sync: bool) -> int:
        began = environment.monotonic()
        end = self._journal.commit(sync)
        ended = environment.monotonic()
        self.times.note(ended - began)
        self._alone_at = ended + (RESPITE_S if ended - began > SLOW_S else IDLE_S)
        return end

    def _work(self) -> None:
        """Commit without waiting for the event loop: all requests that came by now are one group."""
        number, sync = 0, False
        while self._requests:
            number, is_synced = self._requests.popleft()
            sync = sync or is_synced
        if not number:
            return  # the group before had it
        began = environment.monotonic()
        try:
            end = self._journal.commit(sync)
        except JournalError as error:
            self._call(self._failed, number, sync, error)
        else:
            self.times.note(environment.monotonic() - began)
            self._call(self._done, number, end)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the event loop is closed: nobody waits for this
            log.debug("commit ended after the event loop")

    def _done(self, number: int, end: int) -> None:
        self._ended.set()
        if self._is_stopped:
            return
        self._durable_to = max(self._durable_to, number)
        self._alone_at = max(self._alone_at, environment.monotonic() + IDLE_S)
        self._on_durable(number, end)

    def _failed(self, number: int, sync: bool, error: JournalError) -> None:
        self._ended.set()
        if self._is_stopped:
            return
        self._is_held = True
        self._on_failed(error)
        if self._wanted is not None:
            number, sync = max(number, self._wanted[0]), sync or self._wanted[1]
        self._wanted = (number, sync)
        self._retrying = self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        wanted, self._wanted, self._is_held = self._wanted, None, False
        if wanted is not None:
            self._request(*wanted)

    async def stop(self) -> None:
        """Finish the commits that run and those that follow from them, and end the thread: nothing is told any more.

        A commit that failed is not tried again: nobody was told of it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while self._durable_to < self._requested_to and not self._is_held:
                    self._ended.clear()
                    await self._ended.wait()
        self._is_stopped = True
        await self._worker.stop()
        if self._retrying is not None:
            self._retrying.cancel()
