"""Batches that came from the node and that the application has not taken yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from reknit.batch import Batch
from reknit.connection.futures import resolve
from reknit.errors import Closed, ReknitError
from reknit.ledger import Series


class DeliveryQueue:
    """A queue for one reader. At its end the reader gets `StopAsyncIteration`, or the error that ended it."""

    def __init__(self) -> None:
        self.error: ReknitError | None = None
        """Why no more batches come."""
        self._batches: deque[Batch] = deque()
        self._is_paused = False
        self._wake: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batches: list[Batch]) -> None:
        """Batches came."""
        self._batches += batches
        resolve(self._wake)

    async def take(self, gives_up: Callable[[], bool] = bool) -> Batch:
        """The next batch. If there is none and the reader `gives_up`, it gets `StopAsyncIteration`."""
        while self._is_paused or not self._batches:
            if gives_up():
                raise StopAsyncIteration
            if self.error is not None:
                if isinstance(self.error, Closed):
                    raise StopAsyncIteration
                raise self.error
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        return self._batches.popleft()

    def wake(self) -> None:
        """The reader may give up now."""
        resolve(self._wake)

    def pause(self, is_paused: bool) -> None:
        """The reader gets nothing for now, or goes on."""
        self._is_paused = is_paused
        resolve(self._wake)

    def remove_behind(self, batch: Batch) -> list[Batch]:
        """Remove the batches that have to wait for this one."""
        removed = [one for one in self._batches if is_behind(one, batch)]
        for one in removed:
            self._batches.remove(one)
        return removed

    def remove_revoked(self, series: Series, start: int, stop: int) -> list[Batch]:
        """Remove the batches with events of `[start, stop)`: the node took those back, and delivers them again.

        A batch of which a part was taken back is removed as a whole: the lease of its other events ends too.
        """
        removed = [one for one in self._batches if is_within(one, series, start, stop)]
        for one in removed:
            self._batches.remove(one)
        return removed

    def clear(self) -> list[Batch]:
        """Remove every batch."""
        removed, self._batches = list(self._batches), deque()
        return removed

    def end(self, error: ReknitError) -> None:
        """No more batches come. Only the first reason counts."""
        if self.error is None:
            self.error = error
        resolve(self._wake)


def is_within(batch: Batch, series: Series, start: int, stop: int) -> bool:
    """Whether a batch has events of `[start, stop)` of a series."""
    return (batch.topic, batch.source) == series and batch.first < stop and start < batch.stop


def is_behind(one: Batch, other: Batch) -> bool:
    """Whether a batch has to wait for another one that was delivered with it."""
    same = (one.topic, one.source) == (other.topic, other.source)
    return same and other.first < one.first < other.ordered_to
