"""Receiving in a thread: all batches that have arrived are passed on at once, and outcomes go back the same way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from operator import length_hint
from typing import Any

from msgspec.structs import replace

from reknit.batch import Batch
from reknit.checkpoint import Checkpoint
from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.blocking.streams import read_pieces
from reknit.client.subscribe.delivery_queue import is_behind
from reknit.client.subscribe.settlement import GIVEN_BACK
from reknit.client.subscribe.subscription import Subscription
from reknit.errors import Closed
from reknit.event import Event
from reknit.outcome import Outcome


class SyncSubscription:
    """Made by `session.subscribe(pattern)`; open while in its `with`.

    As in the async client, an event counts as accepted when the application asks for the next one, unless
    `auto_accept` is off.
    """

    def __init__(
        self, thread: LoopThread, subscription: Subscription, *, auto_accept: bool, idle_s: float | None
    ) -> None:
        self._thread = thread
        self._subscription = subscription
        self._auto_accept = auto_accept
        self._idle_s = idle_s
        self._batches: deque[Batch] = deque()
        self._current: Batch | None = None
        self._events: Iterator[Event] = iter(())
        """Those events of the current batch that the application has not seen…"""
        self._stop = 0
        """…and where they end."""
        self._lock = threading.Lock()
        self._outcomes: list[partial[Any]] = []

    @property
    def checkpoint(self) -> Checkpoint:
        """Everything up to here is settled: a portable place to resume from, without a loss."""
        if self._current is not None and self._auto_accept:
            self._accept(self._current, self._unread - 1)
        return self._thread.call(self._settled)

    @property
    def _unread(self) -> int:
        """The seq of the first event of the current batch that the application has not seen."""
        return self._stop - length_hint(self._events)

    def _settled(self) -> Checkpoint:
        self._settle_gathered()
        return self._subscription.checkpoint

    def __enter__(self) -> SyncSubscription:
        self._thread.run(self._subscription.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *args: object) -> None:
        self._accept_current(all_of_it=kind is None)
        try:
            self._thread.run(self._leave(kind))
        except Closed:
            if kind is None:
                raise

    async def _leave(self, kind: type[BaseException] | None) -> None:
        self._settle_gathered()
        await self._subscription.__aexit__(kind)

    def close(self) -> None:
        """End the subscription from any thread: a thread that iterates over events leaves its loop."""
        self._thread.run(self._leave(None))

    def forget(self) -> None:
        """Delete a durable subscription: the node retains nothing for it. Returns when that is durable."""
        self._thread.run(self._subscription.forget())

    def pause(self) -> None:
        """Get no more events until `resume`; see `Subscription.pause`."""
        self._thread.run(self._subscription.pause())
        if not self._subscription.returns_unseen:
            return
        if self._current is not None and self._unread < self._stop:
            start, stop, self._stop, self._events = self._unread, self._stop, self._unread, iter(())
            self._release(self._current, start, stop)
        while self._batches:
            batch = self._batches.popleft()
            self._release(batch, batch.first, batch.stop)

    def _release(self, batch: Batch, start: int, stop: int) -> None:
        assert batch.settle is not None, "it was delivered"
        settle = batch.settle if batch is self._current else partial(self._settle, batch, settle=batch.settle)
        settle(start, stop, Outcome.RELEASED)

    def resume(self) -> None:
        """Get events again after `pause`."""
        self._thread.run(self._subscription.resume())

    # -- events

    def __iter__(self) -> SyncSubscription:
        return self

    def __next__(self) -> Event:
        for event in self._events:
            return event
        self._current = self._next_batch()
        self._events = iter(self._current.events())
        return next(self._events)

    def batches(self) -> Iterator[Batch]:
        """The same events a batch at a time: `batch.payloads()` is the fastest way to all of them."""
        while True:
            try:
                self._current = self._next_batch()
            except StopIteration:
                return
            yield self._current

    def pieces(self, event: Event) -> Iterator[bytes]:
        """An event's payload in pieces, as they come; see `Event.pieces`."""
        return read_pieces(self._thread, event)

    def _next_batch(self) -> Batch:
        self._accept_current(all_of_it=True)
        if not self._batches:
            self._batches.extend(self._thread.run(self._subscription.take_all(self._idle_s)))
        if not self._batches:
            raise StopIteration
        batch = self._batches.popleft()
        self._stop = batch.stop
        settle = partial(self._settle, settle=batch.settle)
        return batch.delivered(replace(batch.delivery, settle=settle))

    # -- outcomes

    def _accept_current(self, all_of_it: bool) -> None:
        """Accept the events that the application took of the current batch: all, or all but the last one."""
        batch, self._current = self._current, None
        if batch is None or not self._auto_accept:
            return
        stop = self._unread - (0 if all_of_it else 1)
        self._events = iter(())
        self._accept(batch, stop)

    def _accept(self, batch: Batch, stop: int) -> None:
        if batch.stream is not None:
            read = partial(self._subscription.accept_read, batch)
            self._settle(batch, batch.first, stop, Outcome.ACCEPTED, settle=read)
        elif stop > batch.first and batch.settle is not None:
            batch.settle(batch.first, stop, Outcome.ACCEPTED)

    def _settle(
        self, batch: Batch, start: int, stop: int, outcome: Outcome, *, settle: Any, **details: Any
    ) -> None:
        """Gather an outcome for the loop, and wake the loop for the first one."""
        if batch.ordered_to and outcome in GIVEN_BACK:  # later events wait for the redelivery
            self._events = iter(()) if batch is self._current else self._events
            self._batches = deque(one for one in self._batches if not is_behind(one, batch))
        with self._lock:
            self._outcomes.append(partial(settle, start, stop, outcome, **details))
            is_first = len(self._outcomes) == 1
        if is_first:
            self._thread.soon(self._settle_gathered)

    def _settle_gathered(self) -> None:
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        for settle in outcomes:
            settle()
