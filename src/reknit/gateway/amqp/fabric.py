"""Where the gateway meets the node: who sends, who receives, and nothing of AMQP.

Topics with the distribution `journal` are published and subscribed to as by any client. The others go by `node.anycast`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from reknit.batch import Batch
from reknit.client.session import Session
from reknit.client.subscribe.subscription import Subscription
from reknit.errors import Refused, ReknitError
from reknit.node.anycast.gateway_api import (
    AnycastReceiver,
    AnycastSender,
    OnDelivered,
    OnPath,
    OnResults,
    Result,
    StreamTaker,
)
from reknit.node.api import GatewayNode
from reknit.outcome import Code, Outcome
from reknit.protocol.machine import Peer
from reknit.protocol.streams.inputs import ChunkReceived, StreamAborted
from reknit.transport import memory

log = logging.getLogger("reknit.amqp")

JOURNAL = "journal"
IDLE_SENDERS_MAX = 1_024
"""Senders that are kept for the next link to their topic; each new one is a source that the node remembers."""
OnReady = Callable[[], None]
OnEnd = Callable[[int, str], None]
"""The node ended a subscription: a google.rpc code and words."""


class Fabric:
    """The node, as the gateway uses it."""

    def __init__(self, node: GatewayNode) -> None:
        self._node = node
        url = f"memory://{id(node):x}/amqp"
        self._stop = memory.listen(url, node)
        self._session = Session(url, "", node.config)
        self._takers: dict[JournalTaker, None] = {}
        self._idle: dict[tuple[str, bool], LentSender] = {}
        """By topic and whether it resends: senders that no link uses just now."""

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        """Part from the node, when everyone who takes events has."""
        await asyncio.gather(*(taker.closed() for taker in list(self._takers)))
        await self._session.close()
        self._stop()

    def sender(self, topic: str, on_results: OnResults, on_path: OnPath, resend_released: bool) -> LentSender:
        """Somebody who offers events on a topic: one that nobody uses any more, or a new one."""
        lent = self._idle.pop((topic, resend_released), None) or LentSender(self, topic, resend_released)
        lent.on_results, lent.on_path = on_results, on_path
        return lent

    def make_sender(self, lent: LentSender) -> AnycastSender:
        """One with a source of its own."""
        key, anycast = lent.key, self._node.anycast
        return anycast.sender(key[0], lent.tell_results, lent.tell_path, resend_released=key[1])

    def keep(self, lent: LentSender) -> bool:
        """Keep it for the next link to its topic, if there is none yet, and not too many."""
        if lent.key in self._idle or len(self._idle) >= IDLE_SENDERS_MAX:
            return False
        self._idle[lent.key] = lent
        return True

    # -- streams

    def takes_streams(self, topic: str) -> bool:
        """Whether a message on the topic may go in pieces: as it is distributed, and as somebody is there."""
        return self._node.anycast.takes_streams(topic)

    def begin(self, batch: Batch, resend_released: bool, sender: Peer) -> None:
        """A stream begins; its sender hears how much room there is, and its outcome."""
        self._node.anycast.streams.begin(batch, resend_released, sender)
        self._node.anycast.soon()

    def piece(self, source: bytes, offset: int, data: bytes, is_last: bool, sender: Peer) -> None:
        """More of it."""
        self._node.anycast.streams.give(ChunkReceived(source, offset, data, is_last), sender)

    def abort(self, source: bytes, text: str, sender: Peer) -> None:
        """No more of it comes."""
        self._node.anycast.streams.give(StreamAborted(source, text), sender)
        self._node.anycast.soon()

    def is_anycast(self, pattern: str) -> bool:
        """Whether an event of these topics goes by `node.anycast`."""
        return self._node.anycast.distribution(pattern) != JOURNAL

    def receiver(
        self,
        pattern: str,
        name: str,
        on_handed: OnDelivered,
        on_ready: OnReady,
        on_end: OnEnd,
        streams: StreamTaker | None = None,
    ) -> Taker:
        """Somebody who takes events; `on_ready` is called when it does. With a name it goes on where that name was."""
        if not self.is_anycast(pattern):
            taker = JournalTaker(self._session, pattern, name, on_handed, on_ready, on_end)
            self._takers[taker] = None
            taker.on_closed = lambda: self._takers.pop(taker, None)
            return taker
        asyncio.get_running_loop().call_soon(on_ready)
        return AnycastTaker(self._node.anycast.receiver(pattern, on_handed, name, streams))


class LentSender:
    """A sender that goes from link to link: clients that come for one message each share a source."""

    def __init__(self, fabric: Fabric, topic: str, resend_released: bool) -> None:
        self.key = (topic, resend_released)
        self.on_results: OnResults = _ignore
        self.on_path: OnPath = _ignore
        self._fabric = fabric
        self._sender = fabric.make_sender(self)
        self.offer = self._sender.offer

    @property
    def has_path(self) -> bool:
        return self._sender.has_path

    def tell_results(self, results: Sequence[Result]) -> None:
        self.on_results(results)

    def tell_path(self, is_there: bool) -> None:
        self.on_path(is_there)

    def close(self) -> None:
        """No outcome is wanted any more; what was offered goes on its way."""
        self.on_results = self.on_path = _ignore
        if self._sender.unsettled or not self._fabric.keep(self):
            self._sender.close()


def _ignore(what: object) -> None:
    """Nobody wants to know."""


class Taker(Protocol):
    """Who takes events for a client, however its topics are distributed."""

    def credit(self, events: int) -> None:
        """Take so many more events."""

    async def arrive(self) -> None:
        """Return when all that there was for it has been handed out, as far as the credit goes."""

    def drain(self) -> int:
        """Give back what is left of the credit: how much that was."""

    def settle(self, batch: Batch, start: int, stop: int, outcome: Outcome, code: int, text: str) -> None:
        """The word on events `[start, stop)` of a batch that was handed out."""

    def give_room(self, source: bytes, total: int) -> None:
        """Take so many bytes of a stream in all."""

    def close(self, forget: bool = False) -> None:
        """Take no more. What was handed out and not settled is in doubt; `forget` ends a durable subscription."""


class AnycastTaker:
    """One of the paths of an event that goes to one of many."""

    def __init__(self, receiver: AnycastReceiver) -> None:
        self._receiver = receiver
        self.credit = receiver.credit
        self.drain = receiver.drain

    async def arrive(self) -> None:
        await asyncio.sleep(0)  # what there is was handed out before; its callback comes with the next turn

    def settle(self, batch: Batch, start: int, stop: int, outcome: Outcome, code: int, text: str) -> None:
        self._receiver.settle(batch.topic, batch.source, start, stop, outcome, code, text)

    def give_room(self, source: bytes, total: int) -> None:
        self._receiver.give_room(source, total)

    def close(self, forget: bool = False) -> None:
        self._receiver.close(is_clean=False)


class JournalTaker:
    """A subscription, taken as the client has credit for it. It hands out whole batches: the last may be over it."""

    def __init__(
        self,
        session: Session,
        pattern: str,
        name: str,
        on_handed: OnDelivered,
        on_ready: OnReady,
        on_end: OnEnd,
    ) -> None:
        self._session = session
        self._subscription = session.subscribe(pattern, name=name, auto_accept=False)
        self._on_handed, self._on_ready, self._on_end = on_handed, on_ready, on_end
        self._credit = 0
        self._news = asyncio.Event()
        self._begun = asyncio.Event()
        """Set when the subscription stands, or will not."""
        self._closing: asyncio.Task[None] | None = None
        self.on_closed: Callable[[], object] = lambda: None
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self._subscription as subscription:
                self._begun.set()
                self._on_ready()
                await self._hand_out(subscription)
        except Refused as error:
            self._on_end(error.code, error.text)
        except ReknitError as error:
            self._on_end(Code.UNAVAILABLE, str(error))
        except Exception:
            log.exception("a subscription ended by a fault of the gateway's own")
            self._on_end(Code.INTERNAL, "the node failed; its log says how")
        else:
            self._on_end(Code.UNAVAILABLE, "the node ended the subscription")
        finally:
            self._begun.set()

    async def _hand_out(self, subscription: Subscription) -> None:
        batches = subscription.batches()
        while True:
            while self._credit <= 0:
                self._news.clear()
                await self._news.wait()
            try:
                batch = await anext(batches)
            except StopAsyncIteration:
                return
            self._credit -= batch.count
            self._on_handed(batch, batch.attempt)

    def credit(self, events: int) -> None:
        self._credit = (
            max(0, self._credit) + events
        )  # what came over the credit is with the client's link already
        self._news.set()

    async def arrive(self) -> None:
        await self._session.ask("status")  # the answer comes after whatever the node had sent before
        await asyncio.sleep(0)

    def drain(self) -> int:
        left, self._credit = max(0, self._credit), min(0, self._credit)
        return left

    def settle(self, batch: Batch, start: int, stop: int, outcome: Outcome, code: int, text: str) -> None:
        assert batch.settle is not None
        batch.settle(start, stop, outcome, code=code, text=text)

    def give_room(self, source: bytes, total: int) -> None:
        """There are no streams here."""

    def close(self, forget: bool = False) -> None:
        self._closing = self._closing or asyncio.create_task(self._close(forget))

    async def closed(self) -> None:
        """Close, unless that was done, and return when it is."""
        self.close()
        assert self._closing is not None
        await asyncio.gather(self._closing, return_exceptions=True)

    async def _close(self, forget: bool) -> None:
        await self._begun.wait()  # what was not opened to its end could not be closed
        try:
            if forget:
                await self._subscription.forget()
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self.on_closed()
