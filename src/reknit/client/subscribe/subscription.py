"""A subscription: events as they come, one by one or a batch at a time, and their outcomes back to the node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.checkpoint import Checkpoint
from reknit.client.recovery.subscription_recovery import Caches, Recovering
from reknit.client.streams import IncomingStream, IncomingStreams
from reknit.connection.futures import resolve
from reknit.delivery import Delivery
from reknit.errors import Closed, Refused, ReknitError
from reknit.event import FLAG_STREAM, Event
from reknit.outcome import Code, Outcome
from reknit.protocol.machine import Peer
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.search import AskCache
from reknit.protocol.subscribe import subscriber as machines
from reknit.protocol.subscribe.shared_subscriber import SharedSubscriber
from reknit.protocol.subscribe.subscriber import NODE
from reknit.seqset import Range
from reknit.wire.messages import Start, Subscribed, Unsubscribe, Unsubscribed
from reknit.wire.recovery import Span
from reknit.wire.streams import Abort, Piece

if TYPE_CHECKING:
    from reknit.client.session import Session

log = logging.getLogger("reknit.client")

SETTLE_S = 0.005
"""How long an acceptance may wait for others, so that many events share one message and one sync."""
CLOSE_S = 5.0
"""How long closing waits for the node to book the last outcomes."""

FLUSH_BATCHES = 32
"""Outcomes are sent when the loop comes round, and after so many batches: a busy application may not let it for long."""

GIVEN_BACK = (Outcome.RELEASED, Outcome.FAILED, Outcome.MODIFIED)

OnLost = Callable[[machines.Report], None]


class Subscription:
    """Made by `session.subscribe(pattern)`; open while in its `async with`.

    Unless `auto_accept` is off, an event counts as accepted when the next one is asked for; what `release`, `fail` or
    `reject` was called on keeps that outcome. Leaving the `async with` through an exception leaves the event that was
    being processed unsettled, so that it comes again.
    """

    def __init__(
        self,
        session: Session,
        sub: int,
        pattern: str,
        name: str = "",
        start: Start | None = None,
        auto_accept: bool = True,
        on_lost: OnLost | None = None,
        recovering: Recovering | None = None,
        is_cache: bool = False,
        takes_streams: bool = False,
    ) -> None:
        credit_bytes = session.config.limits.subscribe_credit_bytes
        self._session = session
        recovery = None if name else (recovering or Recovering()).machine(session.config.recovery)
        self._machine: machines.Subscriber = machines.Subscriber(
            sub, pattern, name, start, credit_bytes, recovery, is_cache, _zero_us(), takes_streams
        )
        self._caches = Caches(session, self, pattern)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._auto_accept = auto_accept
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._batches: deque[Batch] = deque()
        self._streams = IncomingStreams(session, sub)
        self._current: Batch | None = None
        self._events: Iterator[Event] = iter(())
        self._wake: asyncio.Future[None] | None = None
        self._opened: asyncio.Future[bool] = self._loop.create_future()
        self._booked: asyncio.Future[None] | None = None
        self._is_forgotten = False
        self._is_scheduled = False
        self._taken = 0
        self._is_warned = False
        self._error: ReknitError | None = None
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._done.set_result(None)

    @property
    def sub(self) -> int:
        return self._machine.sub

    @property
    def checkpoint(self) -> Checkpoint:
        """Everything up to here is settled: a portable place to go on from, without a loss."""
        if self._current is not None and self._auto_accept:
            self._accept(self._current, self._current.stop - length_hint(self._events) - 1)
        return Checkpoint({bytes.fromhex(source): seq for source, seq in self._machine.settled().items()})

    # -- life

    async def __aenter__(self) -> Subscription:
        self._session.add(self)
        self.receive(self._session.connected())
        await self._opened
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *args: object) -> None:
        rest = (self._current, self._current.stop - length_hint(self._events)) if self._current else None
        if self._auto_accept and self._error is None:
            self._accept_handed(all_of_it=kind is None)
        if isinstance(self._machine, SharedSubscriber):
            self._give_back(self._machine, rest)
            await self._part()
        await self._settle_all()
        self._session.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        await self._caches.close()
        self._session.link.send(Unsubscribe(self.sub))
        self._end(Closed(f"the subscription to {self._machine.pattern!r}"))

    async def _part(self) -> None:
        """Leave, and wait for the node to have heard it: a connection that is closed too early puts all in doubt."""
        self._flush()
        self._session.link.send(Unsubscribe(self.sub))
        await self._wait_until(lambda: self._error is not None, "did not confirm that this subscriber left")

    async def _wait_until(self, is_so: Callable[[], bool], complaint: str) -> None:
        """Wait for the node's word, for a while and while it is connected."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self._session.link.is_up and not is_so():
                    self._booked = self._loop.create_future()
                    await self._booked
        if not is_so():
            log.warning("subscription to %r: the node %s", self._machine.pattern, complaint)

    def _give_back(self, machine: SharedSubscriber, rest: tuple[Batch, int] | None) -> None:
        """Others may have what the application never saw; what it has and has not settled is in doubt."""
        if rest is not None:
            batch, start = rest
            machine.settle((batch.topic, batch.source), start, batch.stop, Outcome.RELEASED)
        for batch in self._batches:
            machine.settle((batch.topic, batch.source), batch.first, batch.stop, Outcome.RELEASED)
        self._batches.clear()
        for stream, start, stop in machine.in_hand():
            machine.settle(
                stream, start, stop, Outcome.MODIFIED, text="the subscriber left without a word on it"
            )

    async def forget(self) -> None:
        """End a durable subscription for good: nothing is kept for it from now on. Returns when that is durable."""
        await self._settle_all()
        self._session.add(self)  # it may have left before
        self._session.link.send(Unsubscribe(self.sub, forget=True))
        await self._wait_until(lambda: self._is_forgotten, "did not confirm that it forgot this subscriber")
        self._session.forget(self)

    async def _settle_all(self) -> None:
        """Wait until the node has booked every outcome, for a while."""
        self._flush()
        complaint = "did not book the last outcomes: those events may come again"
        await self._wait_until(lambda: self._machine.is_settled or self._error is not None, complaint)

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
        """Settle the batch that is used up, and take the next one."""
        self._accept_handed(all_of_it=True)
        batch = await self._take()
        self._current = batch
        self._events = iter(batch.events())

    async def batches(self) -> AsyncIterator[Batch]:
        """The same events a batch at a time: `batch.payloads()` is the fastest way to all of them."""
        while True:
            self._accept_handed(all_of_it=True)
            try:
                self._current = await self._take()
            except StopAsyncIteration:
                return
            yield self._current

    async def take_all(self, wait_s: float | None = None) -> list[Batch]:
        """Every batch that is there, once there is one; none at the end, or when none has come for so long."""
        try:
            async with asyncio.timeout(wait_s):
                taken = [await self._take()]
        except (StopAsyncIteration, TimeoutError):
            return []
        while self._batches:
            taken.append(await self._take())
        return taken

    async def _take(self) -> Batch:
        while not self._batches:
            if self._error is not None:
                if isinstance(self._error, Closed):
                    raise StopAsyncIteration
                raise self._error
            self._wake = self._loop.create_future()
            await self._wake
        self._taken += 1
        if self._taken >= FLUSH_BATCHES:
            self._flush()
        batch = self._batches.popleft()
        stream = None
        if batch.head.flags & FLAG_STREAM:
            begin = partial(self._settle, batch, batch.first, batch.stop, Outcome.RECEIVED)
            stream = self._streams.open(batch, begin if self._auto_accept else bool)
        batch = batch.delivered(
            Delivery(batch.attempt, batch.counted, batch.ordered_to, self._settle, stream)
        )
        if batch.counted:
            self._machine.taken(batch.head.length)
        else:
            self._machine.taken_recovered(batch.head.length, self._loop.time())
        self._perform()
        return batch

    # -- streams

    def piece(self, message: Piece | Abort) -> None:
        """More of a stream, or word that no more comes."""
        self._streams.receive(message)

    def _leave_stream(self, batch: Batch, stream: IncomingStream) -> None:
        """The application goes on without having read all of it."""
        if stream.is_begun:
            text = "the subscriber did not read it to its end"
            self._settle(batch, batch.first, batch.stop, Outcome.MODIFIED, Code.UNKNOWN, text)
        else:
            self._settle(batch, batch.first, batch.stop, Outcome.RELEASED)

    # -- outcomes

    def _settle(
        self,
        batch: Batch,
        start: int,
        stop: int,
        outcome: Outcome,
        code: int = 0,
        text: str = "",
        delay_s: float = 0.0,
    ) -> Awaitable[None]:
        stream = (batch.topic, batch.source)
        if outcome is Outcome.RECEIVED:
            self._machine.extend(stream, start, stop)
        else:
            if batch.stream is not None:
                self._streams.end(batch, outcome)
            self._machine.settle(stream, start, stop, outcome, code, text, delay_s, batch.attempt)
        if outcome in GIVEN_BACK:
            if batch.ordered_to:
                self._give_back_rest(batch, stop)
            elif not self._is_warned and self._machine.is_ordered(batch.topic):
                self._warn_of_order(batch.topic)
        self._schedule(outcome is Outcome.ACCEPTED)
        return self._done

    def _warn_of_order(self, topic: str) -> None:
        self._is_warned = True
        text = "%s is ordered, but this subscriber has no name, so what follows does not wait: subscribe with name=…"
        log.warning(text, topic)

    def _give_back_rest(self, batch: Batch, start: int) -> None:
        """What is behind an event that is to come again has to wait for it."""
        stream = (batch.topic, batch.source)
        self._machine.settle(stream, start, batch.ordered_to, Outcome.RELEASED, attempt=batch.attempt)
        if batch is self._current:
            self._events = iter(())
        for one in [one for one in self._batches if is_behind(one, batch)]:
            self._batches.remove(one)
            if one.counted:
                self._machine.taken(one.head.length)
            else:
                self._machine.taken_recovered(one.head.length, self._loop.time())

    def _accept_handed(self, all_of_it: bool) -> None:
        """Accept what the application took of the current batch: all, or all but the event it was at."""
        batch, self._current = self._current, None
        if batch is None or not self._auto_accept:
            return
        stop = batch.stop - length_hint(self._events) - (0 if all_of_it else 1)
        self._events = iter(())
        self._accept(batch, stop)

    def accept_read(self, batch: Batch, start: int, stop: int, outcome: Outcome) -> None:
        """Accept a stream if it was read to its end, for who does so by itself."""
        self._accept(batch, stop)

    def _accept(self, batch: Batch, stop: int) -> None:
        stream = self._streams.unread(batch)
        if stop > batch.first and stream is not None:
            self._leave_stream(batch, stream)
        elif stop > batch.first:
            self._settle(batch, batch.first, stop, Outcome.ACCEPTED)

    def _schedule(self, can_wait: bool) -> None:
        if isinstance(self._machine, SharedSubscriber):
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._flush)
        elif not can_wait:
            self._loop.call_soon(self._flush)
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_later(SETTLE_S, self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        self._taken = 0
        self._machine.flush()
        self._perform()

    # -- the session's side

    def receive(self, message: machines.Input, peer: Peer = NODE) -> None:
        """Something for this subscription came in, or the connection changed."""
        if isinstance(message, Subscribed) and message.is_shared:
            self._share()
        elif isinstance(message, machines.Disconnected) and isinstance(self._machine, SharedSubscriber):
            self._batches.clear()
            self._streams.fail("the connection was lost")
        elif isinstance(message, Unsubscribed):
            self._is_forgotten = message.is_forgotten
        self._machine.receive(message, peer, self._loop.time())
        self._perform()

    def _share(self) -> None:
        """The node says that others get events of these topics instead of this one."""
        if not isinstance(self._machine, SharedSubscriber):
            self._machine = SharedSubscriber.taking_over(self._machine)

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        self.receive(recovering.BatchesRecovered(batches), cache)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        self.receive(recovering.CacheAnswered(number, covered, is_last), cache)

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        self.receive(recovering.CacheSurveyed(number, spans, is_last), cache)

    def unreachable(self, cache: Peer) -> None:
        self.receive(recovering.CacheUnreachable(), cache)

    def _set_timer(self) -> None:
        due = self._machine.next_deadline()
        if due is None or due >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer_at = float("inf")
        self._machine.tick(self._loop.time())
        self._perform()

    def _perform(self) -> None:
        self._perform_all()
        self._set_timer()

    def _perform_all(self) -> None:
        for effect in self._machine.take_effects():
            match effect:
                case machines.Hand(batches=batches):
                    self._batches += batches
                    resolve(self._wake)
                case machines.SendMessage(message=message):
                    self._session.link.send(message)
                case machines.Booked():
                    resolve(self._booked)
                case machines.Opened(resumed=resumed):
                    if not self._opened.done():
                        self._opened.set_result(resumed)
                case machines.Report():
                    self._report(effect)
                case AskCache() | recovering.SurveyCache():
                    self._caches.ask(effect)
                case machines.Ended(code=code, text=text):
                    self._end(Refused(code, text) if code else Closed("the subscription"))

    def _report(self, report: machines.Report) -> None:
        """What is lost is said aloud: to the application if it listens, and to the log."""
        seqs = f"[{report.start}, {report.stop})"
        log.error("lost %s of %s on %s: %s", seqs, report.source.hex(), report.topic, report.reason)
        if self._on_lost is not None:
            self._on_lost(report)

    def _end(self, error: ReknitError) -> None:
        if self._error is None:
            self._error = error
        if not self._opened.done():
            self._opened.set_exception(self._error)
        resolve(self._wake)
        resolve(self._booked)


def _zero_us() -> int:
    """The time of day, in microseconds since 1970, at which the loop's clock was 0."""
    return time.time_ns() // 1000 - int(asyncio.get_running_loop().time() * 1e6)


def is_behind(one: Batch, other: Batch) -> bool:
    """Whether a batch has to wait for another one, which was handed out with it."""
    same = (one.topic, one.source) == (other.topic, other.source)
    return same and other.first < one.first < other.ordered_to
