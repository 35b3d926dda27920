"""Runs the machine of one subscription: messages in, effects out, one timer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import assert_never

from reknit.batch import Batch
from reknit.client.message_router import MessageRouter
from reknit.client.options import OnLost
from reknit.client.recovery.subscription_recovery import RecoveryAccess, RecoveryCaches
from reknit.client.subscribe.delivery_queue import DeliveryQueue
from reknit.connection.deadline_timer import DeadlineTimer
from reknit.connection.futures import resolve
from reknit.errors import Closed, Refused, ReknitError
from reknit.outcome import Code
from reknit.protocol.machine import Peer
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.search import AskCache
from reknit.protocol.subscribe import subscriber as machines
from reknit.protocol.subscribe.shared_subscriber import SharedSubscriber
from reknit.protocol.subscribe.subscriber import NODE
from reknit.seqset import Range
from reknit.wire.messages import Subscribed, Unsubscribe, Unsubscribed
from reknit.wire.recovery import Span

log = logging.getLogger("reknit.client")

CLOSE_S = 5.0
"""How long closing waits for the node to confirm the last outcomes."""


class SubscriptionDriver:
    """Performs the machine's effects. Batches go to the queue, missing events are requested from caches."""

    def __init__(
        self,
        machine: machines.Subscriber,
        router: MessageRouter,
        queue: DeliveryQueue,
        *,
        access: RecoveryAccess,
        on_lost: OnLost | None,
    ) -> None:
        self.machine: machines.Subscriber | SharedSubscriber = machine
        self.is_forgotten = False
        """Whether the node has forgotten this durable subscriber."""
        self.refusal: Refused | None = None
        """Why the node ended the subscription, or does not forget it."""
        self._is_member = bool(machine.node.options.queue)
        self._connection = router.connection
        self._queue = queue
        self._on_lost = on_lost
        self._caches = RecoveryCaches(router, access, self, machine.pattern)
        self._loop = asyncio.get_running_loop()
        self._timer = DeadlineTimer(self._tick)
        self._opened: asyncio.Future[bool] = self._loop.create_future()
        self._confirmed: asyncio.Future[None] | None = None
        """Resolved when the node has stored outcomes, or the subscription ends."""

    @property
    def shared(self) -> SharedSubscriber | None:
        """The machine, if the node distributes the events among several subscribers."""
        return self.machine if isinstance(self.machine, SharedSubscriber) else None

    # -- life

    async def opened(self) -> None:
        """Return when the node has accepted the subscription. Raises the error if it does not."""
        await self._opened

    async def wait_until(self, is_so: Callable[[], bool], complaint: str) -> None:
        """Wait for the node to confirm, for a while and only while it is connected."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self._connection.is_up and not is_so():
                    self._confirmed = self._loop.create_future()
                    await self._confirmed
        if not is_so():
            log.warning("subscription to %r: the node %s", self.machine.pattern, complaint)

    def unsubscribe(self, *, forget: bool = False) -> None:
        """Tell the node that this subscriber leaves; with `forget`, that a durable one is deleted."""
        self._connection.send(Unsubscribe(self.machine.sub, forget=forget))

    async def close(self) -> None:
        """Stop asking caches, and leave."""
        self._timer.cancel()
        await self._caches.close()
        self.unsubscribe()
        self._end(Closed(f"the subscription to {self.machine.pattern!r}"))

    def _end(self, error: ReknitError) -> None:
        self._queue.end(error)
        if not self._opened.done():
            self._opened.set_exception(self._queue.error or error)
        resolve(self._confirmed)

    # -- inputs

    def receive(self, message: machines.Input, peer: Peer = NODE) -> None:
        """The node or a cache sent a message, or the connection changed."""
        if isinstance(message, Subscribed) and message.is_shared:
            self._share()
        elif isinstance(message, Subscribed) and self._is_member:
            # An older node: it would deliver every event to every member.
            self.unsubscribe()
            message = Unsubscribed(
                self.machine.sub, Code.UNIMPLEMENTED, "the node does not know queues: update it"
            )
        if isinstance(message, Unsubscribed):
            self.is_forgotten = message.is_forgotten
            self.refusal = Refused(message.code, message.text) if message.code else None
        self.machine.receive(message, peer, self._loop.time())
        self.perform()

    def _share(self) -> None:
        """The node distributes events of these topics: each goes to one of several subscribers."""
        if not isinstance(self.machine, SharedSubscriber):
            self.machine = SharedSubscriber.taking_over(self.machine)

    def taken(self, batch: Batch) -> None:
        """The application took a batch, or will never take it: there is room for more."""
        if batch.counted:
            self.machine.taken(batch.head.length)
        else:
            self.machine.taken_recovered(batch.head.length, self._loop.time())

    def pause(self, is_paused: bool) -> None:
        """Take nothing for now, or go on."""
        self.machine.pause(is_paused)
        self._queue.pause(is_paused)
        self.perform()

    def flush(self) -> None:
        """Send the outcomes that gathered."""
        self.machine.flush()
        self.perform()

    def _tick(self) -> None:
        self.machine.tick(self._loop.time())
        self.perform()

    # -- replies of caches

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        self.receive(recovering.BatchesRecovered(batches), cache)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        self.receive(recovering.CacheAnswered(number, covered, is_last), cache)

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        self.receive(recovering.CacheSurveyed(number, spans, is_last), cache)

    def unreachable(self, cache: Peer) -> None:
        self.receive(recovering.CacheUnreachable(), cache)

    # -- effects

    def perform(self) -> None:
        """Perform the machine's effects, and set the timer."""
        for effect in self.machine.take_effects():
            match effect:
                case machines.DeliverBatches(batches=batches):
                    self._queue.add(batches)
                case machines.SendToNode(message=message):
                    self._connection.send(message)
                case machines.OutcomesStored():
                    resolve(self._confirmed)
                case machines.SubscriptionOpened(resumed=resumed):
                    if not self._opened.done():
                        self._opened.set_result(resumed)
                case machines.LossReport():
                    self._report(effect)
                case AskCache() | recovering.SurveyCache():
                    self._caches.ask(effect)
                case machines.SubscriptionEnded(code=code, text=text):
                    self._end(Refused(code, text) if code else Closed("the subscription"))
                case _:
                    assert_never(effect)
        due = self.machine.next_deadline()
        if due is not None:
            self._timer.set(due, self._loop.time())

    def _report(self, report: machines.LossReport) -> None:
        """Report lost events to the log, and to the application if it listens."""
        seqs = f"[{report.start}, {report.stop})"
        log.error("lost %s of %s on %s: %s", seqs, report.source.hex(), report.topic, report.reason)
        if self._on_lost is not None:
            self._on_lost(report)
