"""The gateway's client of its own node: senders, receivers and streams. Nothing here knows AMQP.

Topics with the distribution `journal` are subscribed to as by any client. Other topics use `node.anycast`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from reknit.batch import Batch
from reknit.client.session import Session
from reknit.gateway.amqp.receivers import (
    AnycastEventReceiver,
    EventReceiver,
    HasRoom,
    JournalReceiver,
    OnEnd,
    OnReady,
)
from reknit.gateway.amqp.senders import PooledSender, SenderKey, SenderPool
from reknit.node.anycast.gateway_api import AnycastSender, OnDelivered, OnPath, OnResults, StreamTaker
from reknit.node.api import GatewayNode
from reknit.node.streams.streams import DISTRIBUTIONS
from reknit.protocol.machine import Peer
from reknit.protocol.streams.inputs import ChunkReceived, StreamAborted
from reknit.transport import memory
from reknit.trust.rules import ANONYMOUS

JOURNAL = "journal"
NAME_CHARS_MAX: Final = 255
"""A receiver's name in trails and outcomes is not longer."""


class NodeClient:
    """The node, as the links of AMQP clients use it."""

    def __init__(self, node: GatewayNode) -> None:
        self._node = node
        url = memory.new_url("amqp")
        self._stop = memory.listen(url, node)
        self._session = Session(url, "", node.config)
        self._receivers: dict[JournalReceiver, None] = {}
        self._senders = SenderPool(self._make_sender)

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        """Close all receivers, then the session."""
        await asyncio.gather(*(receiver.closed() for receiver in list(self._receivers)))
        await self._session.close()
        self._stop()

    def is_anycast(self, pattern: str) -> bool:
        """Whether events on these topics go by `node.anycast`."""
        return self._node.anycast.distribution(pattern) != JOURNAL

    # -- senders

    def sender(
        self, topic: str, resend_released: bool, *, on_results: OnResults, on_path: OnPath
    ) -> PooledSender:
        """A sender on a topic, for one link."""
        return self._senders.lend(SenderKey(topic, resend_released), on_results, on_path)

    def _make_sender(self, key: SenderKey, on_results: OnResults, on_path: OnPath) -> AnycastSender:
        return self._node.anycast.sender(key.topic, on_results, on_path, resend_released=key.resend_released)

    # -- receivers

    def receiver(
        self,
        pattern: str,
        name: str,
        *,
        called: str,
        owner: str,
        on_batch: OnDelivered,
        has_room: HasRoom,
        on_ready: OnReady,
        on_end: OnEnd,
        streams: StreamTaker | None = None,
    ) -> EventReceiver:
        """A receiver of events. `on_ready` is called when it receives. A named receiver resumes where it left off,
        and belongs to its owner."""
        if self.is_anycast(pattern):
            asyncio.get_running_loop().call_soon(on_ready)
            return AnycastEventReceiver(
                self._node.anycast.receiver(pattern, on_batch, called[:NAME_CHARS_MAX], streams)
            )
        if name and owner != ANONYMOUS:
            self._node.claim(name, owner)
        receiver = JournalReceiver(
            self._session,
            pattern,
            name,
            on_batch=on_batch,
            has_room=has_room,
            on_ready=on_ready,
            on_end=on_end,
            on_closed=self._forget,
        )
        self._receivers[receiver] = None
        return receiver

    def _forget(self, receiver: JournalReceiver) -> None:
        self._receivers.pop(receiver, None)

    # -- streams

    @property
    def stream_window_bytes(self) -> int:
        """How many bytes of a stream may wait for a client."""
        return self._node.config.anycast.stream_window_bytes

    def stream_bytes_max(self, topic: str) -> int | None:
        """How long a streamed message on the topic may be; None if the topic's distribution has no streams."""
        can_stream = self._node.anycast.mode(topic) in DISTRIBUTIONS
        return self._node.config.anycast.stream_bytes_max if can_stream else None

    def takes_streams(self, topic: str) -> bool:
        """Whether a message on the topic may be streamed now: its distribution allows it, and a receiver takes it."""
        return self._node.anycast.takes_streams(topic)

    def begin(self, batch: Batch, resend_released: bool, sender: Peer) -> None:
        """Begin a stream. Its sender is told how much room there is, and its outcome."""
        self._node.anycast.streams.begin(batch, resend_released, sender)
        self._node.anycast.soon()

    def piece(self, source: bytes, offset: int, data: bytes, is_last: bool, sender: Peer) -> None:
        """Send more bytes of a stream."""
        self._node.anycast.streams.give(ChunkReceived(source, offset, data, is_last), sender)

    def abort(self, source: bytes, text: str, sender: Peer) -> None:
        """End a stream before its last byte."""
        self._node.anycast.streams.give(StreamAborted(source, text), sender)
        self._node.anycast.soon()
