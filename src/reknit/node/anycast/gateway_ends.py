"""The senders and receivers that gateways register with anycast. See `reknit.node.anycast.gateway_api`."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from reknit.batch import SOURCE_BYTES, Batch
from reknit.errors import Closed, Full
from reknit.frame import Buffer
from reknit.node.anycast.gateway_api import OnHanded, OnPath, OnResults, StreamTaker
from reknit.outcome import Outcome
from reknit.protocol.anycast.inputs import Grant, SubscriberOutcomes
from reknit.topic import Pattern, check_topic
from reknit.wire.messages import Row
from reknit.wire.outcomes import Fate

if TYPE_CHECKING:
    from reknit.node.anycast.anycast import NodeAnycast
    from reknit.node.anycast.senders import Senders


class GatewaySender:
    """One source on one topic. Made by `node.anycast.sender`."""

    def __init__(
        self,
        senders: Senders,
        topic: str,
        on_results: OnResults,
        on_path: OnPath | None,
        source: bytes | None,
        has_path: bool,
    ) -> None:
        self.topic = check_topic(topic)
        self.source = source or secrets.token_bytes(SOURCE_BYTES)
        self.has_path = has_path
        self.unsettled = 0
        self.on_close: Callable[[], object] = lambda: None
        self._senders = senders
        self._on_results = on_results
        self._on_path = on_path
        self._next = 1
        self._is_open = True

    def offer(self, payloads: Sequence[Buffer], **fields: Any) -> tuple[int, int]:
        """Give in events; the range of seqs that they got. Raises `Full`, `Closed`."""
        if not self._is_open:
            raise Closed(f"the sender on {self.topic!r}")
        unsettled_max = self._senders.node.config.anycast.sender_unsettled_max
        if self.unsettled + len(payloads) > unsettled_max:
            raise Full(f"{self.unsettled} events have no outcome yet", "anycast.sender_unsettled_max")
        time_us = fields.pop("time_us", None) or time.time_ns() // 1000
        batch = Batch.build(self.source, self.topic, self._next, payloads, time_us, **fields)
        self._next = batch.stop
        self.unsettled += batch.count
        self._senders.put(batch)
        return batch.first, batch.stop

    def close(self) -> None:
        """No outcome is wanted any more; what was offered goes on its way."""
        self._is_open = False
        self.on_close()

    # -- the node's side

    def tell(self, fates: list[Fate]) -> None:
        """Outcomes came."""
        for fate in fates:
            if fate.outcome != Outcome.RECEIVED:
                self.unsettled -= fate.stop - fate.start
        if self._is_open:
            asyncio.get_running_loop().call_soon(self._on_results, fates)

    def path(self, has_path: bool) -> None:
        """Somebody is there to take events, or nobody any more."""
        self.has_path = has_path
        if self._on_path is not None and self._is_open:
            asyncio.get_running_loop().call_soon(self._on_path, has_path)


class GatewayReceiver:
    """A path that a gateway speaks for. Made by `node.anycast.receiver`."""

    def __init__(
        self, anycast: NodeAnycast, pattern: Pattern, on_handed: OnHanded, streams: StreamTaker | None = None
    ) -> None:
        self.pattern = pattern
        self.streams = streams
        self._anycast = anycast
        self._on_handed = on_handed
        self._granted = 0
        self._handed = 0
        self._is_open = True

    @property
    def waiting(self) -> int:
        """How many events wait for credit."""
        return self._anycast.machine.waiting(self.pattern)

    def credit(self, events: int) -> None:
        """Take so many more events."""
        self._granted += events
        self._anycast.give(Grant(self._granted), self)
        self._anycast.soon()

    def drain(self) -> int:
        """Give back what is left of the credit: how much that was."""
        self._anycast.run(asyncio.get_running_loop().time())
        left = self._granted - self._handed
        self._granted = self._handed
        self._anycast.give(Grant(self._granted), self)
        return left

    def settle(
        self,
        topic: str,
        source: bytes,
        start: int,
        stop: int,
        outcome: Outcome,
        code: int = 0,
        text: str = "",
    ) -> None:
        """The word on events that were handed out."""
        rows = [Row(topic, source, start, stop, int(outcome), code, text)]
        if self.streams is not None and self._anycast.streams.topics:
            rows = self._anycast.streams.checked(rows)
        self._anycast.give(SubscriberOutcomes(rows), self)
        self._anycast.soon()

    def give_room(self, source: bytes, total: int) -> None:
        """Take so many bytes in all of a stream that was handed out."""
        self._anycast.streams.give_room(source, total, self)

    def close(self, is_clean: bool = True) -> None:
        """No longer a path."""
        if self._is_open:
            self._is_open = False
            self._anycast.detach(self, self.pattern, is_clean)
            self._anycast.soon()

    def hand(self, batch: Batch, attempt: int) -> None:
        """Events for this receiver."""
        self._handed += batch.count
        asyncio.get_running_loop().call_soon(self._on_handed, batch, attempt)
