"""Receivers of events for a client's link: over anycast, or from the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from reknit.batch import Batch
from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from reknit.errors import Refused, ReknitError
from reknit.node.anycast.gateway_api import AnycastReceiver, OnDelivered
from reknit.outcome import Code, Outcome

log = logging.getLogger("reknit.amqp")

OnReady = Callable[[], None]
HasRoom = Callable[[], bool]
"""Whether a link takes another batch, apart from its credit: a client may grant credit, and not read."""
OnEnd = Callable[[int, str], None]
"""The node ended a subscription: a google.rpc code and a text."""


class EventReceiver(Protocol):
    """Receives events for a client, however their topics are distributed."""

    def credit(self, events: int) -> None:
        """Receive this many more events."""

    def go_on(self) -> None:
        """The link has room again."""

    async def arrive(self) -> None:
        """Return when all available events were delivered, as far as the credit allows."""

    def drain(self) -> int:
        """Give back the rest of the credit. Returns how much that was."""

    def settle(self, batch: Batch, start: int, stop: int, outcome: Outcome, code: int, text: str) -> None:
        """The disposition of events `[start, stop)` of a delivered batch."""

    def give_room(self, source: bytes, total: int) -> None:
        """Receive this many bytes of a stream in total."""

    def close(self, forget: bool = False) -> None:
        """Receive no more. Delivered events that are not settled are in doubt. `forget` ends a durable
        subscription."""


class AnycastEventReceiver:
    """One of the paths of events that go to one of many receivers."""

    def __init__(self, receiver: AnycastReceiver) -> None:
        self._receiver = receiver
        self.credit = receiver.credit
        self.drain = receiver.drain

    def go_on(self) -> None:
        """All receivers together share one limit: `anycast.held_bytes_max`."""

    async def arrive(self) -> None:
        await asyncio.sleep(0)  # available events were delivered before; their callbacks run in the next turn

    def settle(self, batch: Batch, start: int, stop: int, outcome: Outcome, code: int, text: str) -> None:
        self._receiver.settle(batch.topic, batch.source, start, stop, outcome, code, text)

    def give_room(self, source: bytes, total: int) -> None:
        self._receiver.give_room(source, total)

    def close(self, forget: bool = False) -> None:
        self._receiver.close(is_clean=False)


class JournalReceiver:
    """A subscription that is read as the client has credit. It delivers whole batches: the last may exceed the credit.

    `on_closed` is called when the subscription is closed.
    """

    def __init__(
        self,
        session: Session,
        pattern: str,
        name: str,
        *,
        on_batch: OnDelivered,
        has_room: HasRoom,
        on_ready: OnReady,
        on_end: OnEnd,
        on_closed: Callable[[JournalReceiver], None],
    ) -> None:
        self._session = session
        self._subscription = session.subscribe(pattern, name=name, auto_accept=False)
        self._on_batch, self._on_ready, self._on_end = on_batch, on_ready, on_end
        self._on_closed = on_closed
        self._has_room = has_room
        self._credit = 0
        self._may_go_on = asyncio.Event()
        self._is_opened = asyncio.Event()
        """Set when the subscription was opened, or refused."""
        self._closing: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self._subscription as subscription:
                self._is_opened.set()
                self._on_ready()
                await self._deliver(subscription)
        except Refused as error:
            self._on_end(error.code, error.text)
        except ReknitError as error:
            self._on_end(Code.UNAVAILABLE, str(error))
        except Exception:
            log.exception("a subscription ended because of an internal error of the gateway")
            self._on_end(Code.INTERNAL, "internal error; see the node's log")
        else:
            self._on_end(Code.UNAVAILABLE, "the node ended the subscription")
        finally:
            self._is_opened.set()

    async def _deliver(self, subscription: Subscription) -> None:
        batches = subscription.batches()
        while True:
            while self._credit <= 0 or not self._has_room():
                self._may_go_on.clear()
                await self._may_go_on.wait()
            try:
                batch = await anext(batches)
            except StopAsyncIteration:
                return
            self._credit -= batch.count
            self._on_batch(batch, batch.attempt)

    def credit(self, events: int) -> None:
        self._credit = max(0, self._credit) + events  # the link already has the events beyond the credit
        self._may_go_on.set()

    def go_on(self) -> None:
        self._may_go_on.set()

    async def arrive(self) -> None:
        await self._session.ask("status")  # the answer comes after everything that the node sent before
        await asyncio.sleep(0)

    def drain(self) -> int:
        left, self._credit = max(0, self._credit), min(0, self._credit)
        return left

    def settle(self, batch: Batch, start: int, stop: int, outcome: Outcome, code: int, text: str) -> None:
        assert batch.settle is not None
        batch.settle(start, stop, outcome, code=code, text=text)

    def give_room(self, source: bytes, total: int) -> None:
        """The journal has no streams."""

    def close(self, forget: bool = False) -> None:
        self._closing = self._closing or asyncio.create_task(self._close(forget))

    async def closed(self) -> None:
        """Close, if that was not done, and return when it is done."""
        self.close()
        assert self._closing is not None
        await asyncio.gather(self._closing, return_exceptions=True)

    async def _close(self, forget: bool) -> None:
        await self._is_opened.wait()  # a subscription that is being opened can't be closed
        try:
            if forget:
                await self._subscription.forget()
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._on_closed(self)
