"""Outcomes of delivered events, on their way from the application to the node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from reknit.batch import Batch
from reknit.client.streams import IncomingStream, IncomingStreams
from reknit.client.subscribe.delivery_queue import DeliveryQueue
from reknit.client.subscribe.driver import SubscriptionDriver
from reknit.delivery import Delivery
from reknit.errors import LocalError
from reknit.event import FLAG_STREAM
from reknit.fields import SECONDS_MAX
from reknit.ledger import Series
from reknit.outcome import Code, Outcome
from reknit.protocol.subscribe.shared_subscriber import SharedSubscriber

log = logging.getLogger("reknit.client")

SETTLE_S = 0.005
"""How long an acceptance may wait for others, so that many events share one message and one sync."""
GATHER_S = 0.05
"""The same where nobody waits for it: the node keeps no account of this subscriber, it only limits what is unsettled."""

FLUSH_BATCHES = 32
"""Outcomes are also sent after this many batches: a busy application may not yield to the event loop for long."""

GIVEN_BACK = (Outcome.RELEASED, Outcome.FAILED, Outcome.MODIFIED)


class Settlement:
    """Gathers the outcomes of one subscription, and sends many of them at a time.

    `on_given_back(batch)` is called when the rest of an ordered batch has to wait for a redelivery.
    """

    def __init__(
        self,
        driver: SubscriptionDriver,
        queue: DeliveryQueue,
        streams: IncomingStreams,
        *,
        on_given_back: Callable[[Batch], None],
    ) -> None:
        self._driver = driver
        self._queue = queue
        self._streams = streams
        self._on_given_back = on_given_back
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._taken = 0
        """Batches that the application took since the last flush."""
        self._is_warned = False
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._done.set_result(None)

    # -- batches

    def taken(self, batch: Batch, begins_streams: bool) -> Batch:
        """The batch for the application: its outcomes come here. Reading a stream may count as progress."""
        self._taken += 1
        if self._taken >= FLUSH_BATCHES:
            self.flush()
        stream = None
        if batch.head.flags & FLAG_STREAM:
            begin = partial(self.settle, batch, batch.first, batch.stop, Outcome.RECEIVED)
            stream = self._streams.open(batch, begin if begins_streams else bool)
        return batch.delivered(Delivery(batch.attempt, batch.counted, batch.ordered_to, self.settle, stream))

    def accept(self, batch: Batch, stop: int) -> None:
        """Accept the batch's events before `stop`, unless it is a stream that was not read to its end."""
        if stop <= batch.first:
            return
        stream = self._streams.unread(batch)
        if stream is not None:
            self._leave_stream(batch, stream)
        else:
            self.settle(batch, batch.first, stop, Outcome.ACCEPTED)

    def _leave_stream(self, batch: Batch, stream: IncomingStream) -> None:
        """The application moves on without having read the stream to its end."""
        if stream.is_begun:
            text = "the subscriber did not read it to its end"
            self.settle(batch, batch.first, batch.stop, Outcome.MODIFIED, Code.UNKNOWN, text)
        else:
            self.settle(batch, batch.first, batch.stop, Outcome.RELEASED)

    # -- outcomes

    def settle(
        self,
        batch: Batch,
        start: int,
        stop: int,
        outcome: Outcome,
        code: int = 0,
        text: str = "",
        delay_s: float = 0.0,
    ) -> Awaitable[None]:
        """The application's outcome for `[start, stop)` of a batch."""
        if code or delay_s:
            _check(code, delay_s)
        series = (batch.topic, batch.source)
        machine = self._driver.machine
        is_owned = False
        if outcome is Outcome.RECEIVED:
            machine.extend(series, start, stop)
        else:
            if batch.stream is not None:
                self._streams.end(batch, outcome)
            is_owned = machine.settle(series, start, stop, outcome, code, text, delay_s, batch.attempt)
        if is_owned and outcome in GIVEN_BACK:  # an event that ended, or came again, holds nothing up
            if batch.ordered_to:
                self._release_rest(batch, stop)
            elif not self._is_warned and machine.is_ordered(batch.topic):
                self._warn_of_order(batch.topic)
        self._schedule(can_wait=outcome is Outcome.ACCEPTED)
        return self._done

    def _warn_of_order(self, topic: str) -> None:
        self._is_warned = True
        text = (
            "%s is ordered, but this subscriber has no name, so later events do not wait for a redelivery: "
            "subscribe with name=…"
        )
        log.warning(text, topic)

    def _release_rest(self, batch: Batch, start: int) -> None:
        """Events behind one that is redelivered have to wait for it."""
        series, machine = (batch.topic, batch.source), self._driver.machine
        machine.give_back_rest(series, start, batch.ordered_to, batch.attempt)
        self._on_given_back(batch)
        for one in self._queue.remove_behind(batch):
            self._driver.taken(one)

    def revoked(self, series: Series, start: int, stop: int) -> None:
        """The node took events back whose lease ended. Those that the application has not seen will come again."""
        for one in self._queue.remove_revoked(series, start, stop):
            self._driver.taken(one)

    def give_back(self, machine: SharedSubscriber, unread: tuple[Batch, int] | None) -> None:
        """A shared subscriber leaves. Other subscribers may get the events that the application never saw.

        Events that the application has and has not settled are in doubt. `unread` is the batch that is being read,
        and the first seq of it that the application has not seen.
        """
        if unread is not None:
            batch, start = unread
            machine.settle((batch.topic, batch.source), start, batch.stop, Outcome.RELEASED)
        for batch in self._queue.clear():
            machine.settle((batch.topic, batch.source), batch.first, batch.stop, Outcome.RELEASED)
        text = "the subscriber left before it settled the event"
        for series, start, stop in machine.in_hand():
            machine.settle(series, start, stop, Outcome.MODIFIED, text=text)

    def return_queued(self) -> None:
        """The subscriber pauses: release the batches that the application has not taken."""
        for batch in self._queue.clear():
            self._driver.taken(batch)
            self.settle(batch, batch.first, batch.stop, Outcome.RELEASED)

    # -- sending

    def _schedule(self, can_wait: bool) -> None:
        if isinstance(self._driver.machine, SharedSubscriber):
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self.flush)
        elif not can_wait:
            self._loop.call_soon(self.flush)
        elif not self._is_scheduled:
            self._is_scheduled = True
            options = self._driver.machine.node.options
            is_awaited = options.name or options.is_cache
            self._loop.call_later(SETTLE_S if is_awaited else GATHER_S, self.flush)

    def flush(self) -> None:
        """Send the outcomes that gathered."""
        self._is_scheduled = False
        self._taken = 0
        self._driver.flush()

    async def settle_all(self) -> None:
        """Wait until the node has stored every outcome, for a while."""
        self.flush()
        complaint = "did not confirm the last outcomes: those events may be redelivered"
        await self._driver.wait_until(
            lambda: self._driver.machine.is_settled or self._queue.error is not None, complaint
        )


def _check(code: int, delay_s: float) -> None:
    """Refuse here what the node would end the connection for.

    >>> _check(500, 0.0)
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid code 500: google.rpc codes are from 0 to 16.
    """
    if not 0 <= code <= max(Code):
        raise LocalError(f"Invalid code {code}: google.rpc codes are from 0 to {int(max(Code))}.")
    if not 0 <= delay_s <= SECONDS_MAX:
        raise LocalError(f"Invalid delay_s {delay_s}: it must be a number from 0 to {SECONDS_MAX:.0f}.")
