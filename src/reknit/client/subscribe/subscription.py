"""A subscription: events as they come, one by one or a batch at a time, and their outcomes back to the node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from operator import length_hint

from reknit import environment
from reknit.batch import Batch
from reknit.checkpoint import Checkpoint
from reknit.client.message_router import MessageRouter
from reknit.client.options import SubscribeOptions
from reknit.client.recovery.subscription_recovery import RecoveryAccess, SubscriptionRecovery, parse_history
from reknit.client.streams import IncomingStreams
from reknit.client.subscribe.delivery_queue import DeliveryQueue, is_within
from reknit.client.subscribe.driver import SubscriptionDriver
from reknit.client.subscribe.settlement import Settlement
from reknit.errors import NotOpen
from reknit.event import Event
from reknit.outcome import Outcome
from reknit.protocol.subscribe import subscriber as machines
from reknit.wire.messages import Revoked, Start
from reknit.wire.streams import Abort, Piece


class Subscription:
    """Made by `session.subscribe(pattern)`; open while in its `async with`.

    Unless `auto_accept` is off, an event counts as accepted when the application asks for the next one. An event that
    it released, failed or rejected keeps that outcome. Leaving the `async with` through an exception leaves the event
    that was being processed unsettled, so that it is redelivered.
    """

    def __init__(
        self,
        router: MessageRouter,
        access: RecoveryAccess,
        *,
        sub: int,
        pattern: str,
        options: SubscribeOptions,
    ) -> None:
        config = access.config
        recovery = SubscriptionRecovery.of(config.recovery, options)
        machine = machines.Subscriber(
            sub,
            pattern,
            options.name,
            _start(options),
            credit_bytes=config.limits.subscribe_credit_bytes,
            recovery=None if options.name or options.queue else recovery.machine(config.recovery),
            is_cache=options.is_cache,
            zero_us=_zero_us(),
            takes_streams=options.streams,
            confirms_losses=options.confirm_losses,
            queue=options.queue,
            order=options.order,
            process=environment.process_id(),
        )
        self._router = router
        self._is_durable = bool(options.name or options.queue)
        self._auto_accept = options.auto_accept
        self._queue = DeliveryQueue()
        self._streams = IncomingStreams(router.connection, sub, config.anycast.stream_window_bytes)
        self._driver = SubscriptionDriver(
            machine, router, self._queue, access=access, on_lost=options.on_lost
        )
        self._settlement = Settlement(
            self._driver, self._queue, self._streams, on_given_back=self._on_given_back
        )
        self._current: Batch | None = None
        """The batch that the application is reading."""
        self._events: Iterator[Event] = iter(())
        """Its events that the application has not seen…"""
        self._stop = 0
        """…and where they end: earlier than the batch, if the node took the others back."""
        self._is_paused = False
        self._is_entered = False

    @property
    def sub(self) -> int:
        return self._driver.machine.sub

    @property
    def checkpoint(self) -> Checkpoint:
        """Everything up to here is settled: a portable place to resume from, without a loss."""
        if self._current is not None and self._auto_accept:
            self._settlement.accept(self._current, self._unread - 1)
        settled = self._driver.machine.settled()
        return Checkpoint({bytes.fromhex(source): seq for source, seq in settled.items()})

    @property
    def is_settled(self) -> bool:
        """Whether the node has stored every outcome that the application gave."""
        return self._driver.machine.is_settled

    # -- life

    async def __aenter__(self) -> Subscription:
        self._is_entered = True
        self._router.add_subscription(self)
        self.receive(self._router.connection_state())
        await self._driver.opened()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *args: object) -> None:
        unread = (self._current, self._unread) if self._current else None
        if self._auto_accept and self._queue.error is None:
            self._accept_current(all_of_it=kind is None)
        shared = self._driver.shared
        if shared is not None:
            self._settlement.give_back(shared, unread)
            await self._leave_shared()
        await self._settlement.settle_all()
        self._router.remove_subscription(self)
        await self._driver.close()

    async def _leave_shared(self) -> None:
        """Leave, and wait for the node to confirm: if the connection closed earlier, every event would be in doubt."""
        self._settlement.flush()
        self._driver.unsubscribe()
        complaint = "did not confirm that this subscriber left"
        await self._driver.wait_until(lambda: self._queue.error is not None, complaint)

    async def forget(self) -> None:
        """Delete a durable subscription: the node retains nothing for it. Returns when that is durable.

        For a subscription without a name the node retains nothing anyway. A queue is deleted by its last member:
        while it has others, this raises `Refused`.
        """
        if not self._is_durable:
            return
        await self._settlement.settle_all()
        self._router.add_subscription(self)  # it may have left before
        driver = self._driver
        driver.refusal = None
        driver.unsubscribe(forget=True)
        complaint = "did not confirm that it forgot this subscriber"
        await driver.wait_until(lambda: driver.is_forgotten or driver.refusal is not None, complaint)
        self._router.remove_subscription(self)
        if driver.refusal is not None:
            raise driver.refusal

    # -- pauses

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    async def pause(self) -> None:
        """Get no more events until `resume`. Other subscribers continue, and no permission is needed.

        The event that the application processes stays with it. Those that it has not seen go back to the node, so that
        no lease ends meanwhile and other members of a queue get them; that is no failed attempt. A subscription without
        a name, of which the node remembers nothing, has them ready when it continues.
        """
        self._is_paused = True
        self._driver.pause(True)
        self._return_unseen()

    async def resume(self) -> None:
        """Get events again after `pause`."""
        self._is_paused = False
        self._driver.pause(False)

    @property
    def returns_unseen(self) -> bool:
        """Whether `pause` gives back the events that the application has not seen: somebody remembers them."""
        return self._is_durable or self._driver.shared is not None

    def _return_unseen(self) -> None:
        """Release what the application has not seen: what comes while it pauses, and the rest of its batch."""
        if not self.returns_unseen:
            return
        batch = self._current
        if batch is not None and self._unread < self._stop:
            start, stop = self._unread, self._stop
            self._stop, self._events = start, iter(())
            self._settlement.settle(batch, start, stop, Outcome.RELEASED)
        self._settlement.return_queued()

    # -- events

    async def __aiter__(self) -> AsyncIterator[Event]:
        # A generator, because resuming one costs a fraction of the coroutine that `__anext__` makes for every event.
        while True:
            events = self._events
            for event in events:
                yield event
                if self._events is not events:  # the rest was given back
                    break
            else:
                try:
                    await self._next_batch()
                except StopAsyncIteration:
                    return

    async def __anext__(self) -> Event:
        try:
            return next(self._events)
        except StopIteration:
            await self._next_batch()
            return next(self._events)

    async def _next_batch(self) -> None:
        """Settle the current batch, and take the next one."""
        self._accept_current(all_of_it=True)
        batch = await self._take()
        self._current, self._stop = batch, batch.stop
        self._events = iter(batch.events())

    @property
    def _unread(self) -> int:
        """The seq of the first event of the current batch that the application has not seen."""
        return self._stop - length_hint(self._events)

    async def batches(self) -> AsyncIterator[Batch]:
        """The same events a batch at a time: `batch.payloads()` is the fastest way to all of them."""
        while True:
            self._accept_current(all_of_it=True)
            try:
                self._current = batch = await self._take()
            except StopAsyncIteration:
                return
            self._stop = batch.stop
            yield batch

    async def take_all(self, wait_s: float | None = None, gives_up: Callable[[], bool] = bool) -> list[Batch]:
        """Every batch that has come, at least one; an empty list at the end, or when none came within `wait_s`.

        `gives_up` says whether to return without one; it is asked at first, and after `wake`.
        """
        try:
            async with asyncio.timeout(wait_s):
                taken = [await self._take(gives_up)]
        except (StopAsyncIteration, TimeoutError):
            return []
        while self._queue:
            taken.append(await self._take())
        return taken

    def confirm_lost(self, report: machines.LossReport) -> None:
        """A durable subscription without `confirm_losses` need not be told of this loss again."""
        machine = self._driver.machine
        if self._is_durable and isinstance(machine, machines.Subscriber):
            machine.confirm_lost((report.topic, report.source), report.start, report.stop)
            self._driver.perform()

    def wake(self) -> None:
        """Let `take_all` ask whether to return without a batch."""
        self._queue.wake()

    async def _take(self, gives_up: Callable[[], bool] = bool) -> Batch:
        if not self._is_entered:
            raise NotOpen(f"the subscription to {self._driver.machine.pattern!r}")
        batch = self._settlement.taken(await self._queue.take(gives_up), begins_streams=self._auto_accept)
        self._driver.taken(batch)
        self._driver.perform()
        return batch

    # -- outcomes

    def _accept_current(self, all_of_it: bool) -> None:
        """Accept the events that the application took of the current batch: all, or all but the last one."""
        batch, self._current = self._current, None
        if batch is None or not self._auto_accept:
            return
        stop = self._unread - (0 if all_of_it else 1)
        self._events = iter(())
        self._settlement.accept(batch, stop)

    def accept_read(self, batch: Batch, start: int, stop: int, outcome: Outcome) -> None:
        """Accept a stream if it was read to its end: for a caller that accepts events itself."""
        self._settlement.accept(batch, stop)

    def _on_given_back(self, batch: Batch) -> None:
        if batch is self._current:
            self._events = iter(())

    def _on_revoked(self, message: Revoked) -> None:
        """Show the application nothing that the node took back: it comes again, in its place."""
        series, batch = (message.topic, message.source), self._current
        self._settlement.revoked(series, message.start, message.stop)
        if batch is not None and is_within(batch, series, max(message.start, self._unread), message.stop):
            kept = max(message.start - self._unread, 0)
            self._stop = self._unread + kept
            self._events = iter(list(islice(self._events, kept)))

    # -- called by the router

    def receive(self, message: machines.Input) -> None:
        """The node sent a message for this subscription, or the connection changed."""
        if isinstance(message, machines.Disconnected) and self._driver.shared is not None:
            self._queue.clear()  # others get these now, and those of the batch that is being read
            self._stop, self._events = self._unread, iter(())
            self._streams.fail("the connection was lost")
        self._driver.receive(message)
        if isinstance(message, Revoked):
            self._on_revoked(message)
        if self._is_paused:
            self._return_unseen()

    def receive_piece(self, message: Piece | Abort) -> None:
        """A piece of a stream came, or its writer aborted it."""
        self._streams.receive(message)


def _start(options: SubscribeOptions) -> Start:
    """Where the node begins to deliver."""
    history = parse_history(options.history)
    start = options.start
    return Start(
        history=history is not None,
        checkpoint=None if start is None else {source.hex(): seq for source, seq in start.items()},
        count=history.count if history else 0,
        age_s=history.age_s if history else 0.0,
    )


def _zero_us() -> int:
    """The time of day, in microseconds since 1970, at which the event loop's clock was 0."""
    return environment.time_us() - int(asyncio.get_running_loop().time() * 1e6)
