"""The senders and receivers that gateways register with anycast. See `reknit.node.anycast.gateway_api`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reknit import environment
from reknit.batch import SOURCE_BYTES, Batch
from reknit.errors import Closed, Full
from reknit.frame import Buffer
from reknit.node.anycast.gateway_api import OnDelivered, OnPath, OnResults, StreamTaker
from reknit.node.anycast.local_paths import LocalPaths
from reknit.node.streams.streams import NodeStreams
from reknit.outcome import Outcome
from reknit.protocol.anycast.inputs import Grant, SubscriberOutcomes
from reknit.topic import Pattern, check_topic
from reknit.wire.messages import DispositionRow
from reknit.wire.outcomes import RangeOutcome

CallSoon = Callable[..., object]
"""Calls a gateway's function in the next turn of the event loop, with these arguments."""


class GatewaySender:
    """One source on one topic. Made by `node.anycast.sender`."""

    def __init__(
        self,
        topic: str,
        on_results: OnResults,
        on_path: OnPath | None,
        source: bytes | None,
        *,
        has_path: bool,
        unsettled_max: int,
        put: Callable[[Batch], None],
        on_close: Callable[[bytes], None],
        call_soon: CallSoon,
    ) -> None:
        self.topic = check_topic(topic)
        self.source = source or environment.token_bytes(SOURCE_BYTES)
        self.has_path = has_path
        self.unsettled = 0
        self._unsettled_max = unsettled_max
        self._put = put
        self._on_close = on_close
        self._call_soon = call_soon
        self._on_results = on_results
        self._on_path = on_path
        self._next = 1
        self._is_open = True

    def offer(self, payloads: Sequence[Buffer], **fields: Any) -> tuple[int, int]:
        """Publish events; returns the range of their seqs. Raises `Full`, `Closed`."""
        if not self._is_open:
            raise Closed(f"the sender on {self.topic!r}")
        if self.unsettled + len(payloads) > self._unsettled_max:
            raise Full(f"{self.unsettled} events have no outcome yet", "anycast.sender_unsettled_max")
        time_us = fields.pop("time_us", None) or environment.time_us()
        batch = Batch.build(self.source, self.topic, self._next, payloads, time_us, **fields)
        self._next = batch.stop
        self.unsettled += batch.count
        self._put(batch)
        return batch.first, batch.stop

    def close(self) -> None:
        """No outcome is wanted any more; events that were offered are delivered nevertheless."""
        self._is_open = False
        self._on_close(self.source)

    # -- the node's side

    def tell(self, fates: list[RangeOutcome]) -> None:
        """Outcomes came."""
        for fate in fates:
            if fate.outcome != Outcome.RECEIVED:
                self.unsettled -= fate.stop - fate.start
        if self._is_open:
            self._call_soon(self._on_results, fates)

    def path(self, has_path: bool) -> None:
        """There is a subscriber for the topic, or no subscriber any more."""
        self.has_path = has_path
        if self._on_path is not None and self._is_open:
            self._call_soon(self._on_path, has_path)


class GatewayReceiver:
    """A path that a gateway speaks for. Made by `node.anycast.receiver`."""

    def __init__(
        self,
        pattern: Pattern,
        on_delivered: OnDelivered,
        streams: StreamTaker | None,
        *,
        paths: LocalPaths,
        node_streams: NodeStreams,
        deliver_now: Callable[[float], None],
        call_soon: CallSoon,
    ) -> None:
        self.pattern = pattern
        self.streams = streams
        self._paths = paths
        self._node_streams = node_streams
        self._deliver_now = deliver_now
        self._call_soon = call_soon
        self._on_delivered = on_delivered
        self._granted = 0
        self._delivered = 0
        self._is_open = True

    @property
    def waiting(self) -> int:
        """How many events wait for credit."""
        return self._paths.machine.waiting(self.pattern)

    def credit(self, events: int) -> None:
        """Take this many more events."""
        self._granted += events
        self._paths.give(Grant(self._granted), self)
        self._paths.soon()

    def drain(self) -> int:
        """Give back the credit that is left; returns how much that was."""
        self._deliver_now(self._paths.now())
        left = self._granted - self._delivered
        self._granted = self._delivered
        self._paths.give(Grant(self._granted), self)
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
        """The disposition of events that were delivered."""
        rows = [DispositionRow(topic, source, start, stop, int(outcome), code, text)]
        if self.streams is not None and self._node_streams.topics:
            rows = self._node_streams.checked(rows)
        self._paths.give(SubscriberOutcomes(rows), self)
        self._paths.soon()

    def give_room(self, source: bytes, total: int) -> None:
        """Take this many bytes in total of a stream that was delivered."""
        self._node_streams.give_room(source, total, self)

    def close(self, is_clean: bool = True) -> None:
        """No longer a path."""
        if self._is_open:
            self._is_open = False
            self._paths.detach(self, self.pattern, is_clean)
            self._paths.soon()

    def deliver(self, batch: Batch, attempt: int) -> None:
        """Events for this receiver."""
        self._delivered += batch.count
        self._call_soon(self._on_delivered, batch, attempt)
