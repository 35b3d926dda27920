"""A client's message that is forwarded while it is still arriving: the beginning of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from reknit import environment
from reknit.batch import SOURCE_BYTES, Batch
from reknit.event import FLAG_STREAM, SIZE_COLUMN
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.codec.bodies import BodyIn
from reknit.gateway.amqp.codec.conditions import DECODE_ERROR
from reknit.gateway.amqp.codec.encoding import MalformedValue
from reknit.gateway.amqp.codec.messages import MessageStart
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.links.intake import ClientIntake
from reknit.gateway.amqp.links.settlement import settle
from reknit.gateway.amqp.node_client import NodeClient
from reknit.outcome import Outcome
from reknit.wire.outcomes import RangeOutcome


class IncomingMessageStream:
    """One message of a link. Its bytes are read off the link as the stream's receiver has room for them.

    `held` is what was read of the body before the stream began. `on_change` is called when the link should read on.
    """

    def __init__(
        self,
        node: NodeClient,
        link: Handle,
        delivery: Handle,
        start: MessageStart,
        held: bytes,
        *,
        topic: str,
        resend_released: bool,
        intake: ClientIntake,
        on_change: Callable[[], None],
    ) -> None:
        self._node = node
        self._link = link
        self._delivery: Handle | None = delivery
        self._resend_released = resend_released
        self._intake = intake
        self._on_change = on_change
        self._body = BodyIn(start.meta[0], start.size)
        self._source = environment.token_bytes(SOURCE_BYTES)
        self._offset = self._room = 0
        self._held = held
        """Read, but not sent: there was no room."""
        self.is_arriving = True
        """Whether more of it has to be read off the link."""
        self._outcome: RangeOutcome | None = None
        self._is_malformed = False
        self._batch = self._make_batch(start, topic)

    def _make_batch(self, start: MessageStart, topic: str) -> Batch:
        columns: dict[str, list[Any]] = {"amqp": [start.meta], SIZE_COLUMN: [start.size]}
        if start.headers:
            columns["headers"] = [start.headers]
        now_us = environment.time_us()
        return Batch.build(
            self._source, topic, 1, [b""], now_us, start.ttl_ms, columns=columns, flags=FLAG_STREAM
        )

    def begin(self) -> None:
        """Begin the stream at the node."""
        self._node.begin(self._batch, self._resend_released, self)

    # -- the client's side

    def read(self) -> None:
        """Read as much off the link as there is room for."""
        if self._held and self._room > self._offset and not self._outcome:
            self._forward(self._cut_held(), is_last=False)
        while self.is_arriving and not self._held and not self._intake.is_waiting:
            bytes_max = deliveries.BUFFER_BYTES if self._outcome else self._room - self._offset
            data, is_last, is_aborted = deliveries.read_some(self._link, bytes_max)
            if is_aborted:
                self._end()
                self._node.abort(self._source, "the sender aborted it", self)
                return
            if not data and not is_last:
                return
            if not self._outcome:
                self._forward(data, is_last)
            if is_last:
                self._end()

    def _cut_held(self) -> bytes:
        size = self._room - self._offset
        data, self._held = self._held[:size], self._held[size:]
        return data

    def _forward(self, data: bytes, is_last: bool) -> None:
        try:
            payload = self._body.feed(data)
            if is_last:
                self._body.finish()
        except MalformedValue as error:
            self._node.abort(self._source, f"it is not a valid message: {error}", self)
            self._outcome, self._held = RangeOutcome(1, 2, Outcome.REJECTED, 0, str(error)), b""
            self._is_malformed = True
            return
        offset, self._offset = self._offset, self._offset + len(payload)
        self._intake.charge(len(payload), count=is_last)
        if payload or is_last:
            self._node.piece(self._source, offset, payload, is_last, self)

    def _end(self) -> None:
        """The whole message was read, or the client aborted it. Its outcome may be known already."""
        self.is_arriving = False
        delivery = self._delivery
        if delivery is not None:
            is_settled = deliveries.is_settled(delivery)
            deliveries.advance(self._link)
            if is_settled:
                self._delivery = None
                deliveries.settle(delivery)
        self._settle()

    def close(self) -> None:
        """The link is gone, and its handles are invalid."""
        self._delivery = None
        if self.is_arriving:
            self.is_arriving = False
            self._node.abort(self._source, "the sender is gone", self)

    # -- the node's side

    def room(self, total: int) -> None:
        """This many bytes may be sent in total."""
        self._room = total
        self._on_change()

    def tell(self, fate: RangeOutcome) -> None:
        """The outcome of the message, or that a receiver has it."""
        asyncio.get_running_loop().call_soon(self._tell, fate)

    def _tell(self, fate: RangeOutcome) -> None:
        if fate.outcome == Outcome.RECEIVED:
            if self._delivery is not None:
                deliveries.received(self._delivery)
        elif self._outcome is None:
            self._outcome, self._held = fate, b""
            if self.is_arriving and self._delivery is not None:
                deliveries.hint(self._delivery, fate.outcome)
            self._settle()
        self._on_change()

    def _settle(self) -> None:
        delivery = self._delivery
        if self._outcome is None or self.is_arriving or delivery is None:
            return
        self._delivery = None
        if self._is_malformed:
            deliveries.reject(delivery, DECODE_ERROR, self._outcome.text)
        else:
            settle([delivery], self._outcome)
        self._intake.release(0)

    @property
    def is_over(self) -> bool:
        """Whether the client needs to hear nothing more about it."""
        return not self.is_arriving and self._delivery is None
