"""A client's message that goes on its way while it is still arriving: the beginning of a stream."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

from reknit.batch import SOURCE_BYTES, Batch
from reknit.event import FLAG_STREAM, SIZE_COLUMN
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.bodies import BodyIn
from reknit.gateway.amqp.conditions import DECODE_ERROR
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.encoding import MalformedValue
from reknit.gateway.amqp.messages import Begun
from reknit.outcome import Outcome
from reknit.wire.outcomes import Fate

if TYPE_CHECKING:
    from reknit.gateway.amqp.incoming import Incoming


class Arriving:
    """One message of a link: its bytes are read off as there is room for them elsewhere."""

    def __init__(self, link: Incoming, delivery: Handle, begun: Begun, data: bytes) -> None:
        self._link = link
        self._delivery: Handle | None = delivery
        self._fabric = link.connection.server.fabric
        self._body = BodyIn(begun.meta[0], begun.size)
        self._source = secrets.token_bytes(SOURCE_BYTES)
        self._offset = self._room = 0
        self._held = data[begun.payload_at :]
        """Read before the stream began, or before there was room."""
        self.is_arriving = True
        """Whether more of it has to be read off the link."""
        self.fate: Fate | None = None
        self._is_malformed = False
        columns: dict[str, list[Any]] = {"amqp": [begun.meta], SIZE_COLUMN: [begun.size]}
        if begun.headers:
            columns["headers"] = [begun.headers]
        now_us = time.time_ns() // 1000
        self._batch = Batch.build(
            self._source, link.topic, 1, [b""], now_us, begun.ttl_ms, columns=columns, flags=FLAG_STREAM
        )

    def begin(self) -> None:
        """Give in what there is."""
        self._fabric.begin(self._batch, self._link.resend_released, self)

    # -- the client's side

    def read(self) -> None:
        """Take as much off the link as there is room for. When it is all there, the link may go on."""
        if self._held and self._room > self._offset and not self.fate:
            self._pass_on(self._cut_held(), is_last=False)
        while self.is_arriving and not self._held:
            bytes_max = deliveries.BUFFER_BYTES if self.fate else self._room - self._offset
            data, is_last, is_aborted = deliveries.read_some(self._link.handle, bytes_max)
            if is_aborted:
                self._end()
                self._fabric.abort(self._source, "its sender took it back", self)
                return
            if not data and not is_last:
                return
            if not self.fate:
                self._pass_on(data, is_last)
            if is_last:
                self._end()

    def _cut_held(self) -> bytes:
        size = self._room - self._offset
        data, self._held = self._held[:size], self._held[size:]
        return data

    def _pass_on(self, data: bytes, is_last: bool) -> None:
        try:
            payload = self._body.feed(data)
            if is_last:
                self._body.finish()
        except MalformedValue as error:
            self._fabric.abort(self._source, f"it is no message: {error}", self)
            self.fate, self._held, self._is_malformed = Fate(1, 2, Outcome.REJECTED, 0, str(error)), b"", True
            return
        offset, self._offset = self._offset, self._offset + len(payload)
        if payload or is_last:
            self._fabric.piece(self._source, offset, payload, is_last, self)

    def _end(self) -> None:
        """All of it was read, or taken back; its outcome may be known by now."""
        self.is_arriving = False
        delivery = self._delivery
        if delivery is not None:
            is_settled = deliveries.is_settled(delivery)
            deliveries.advance(self._link.handle)
            if is_settled:
                self._delivery = None
                deliveries.settle(delivery)
        self._settle()

    def close(self) -> None:
        """The link is gone: no handle is used any more."""
        self._delivery = None
        if self.is_arriving:
            self.is_arriving = False
            self._fabric.abort(self._source, "its sender is gone", self)

    # -- the node's side

    def room(self, total: int) -> None:
        """So many bytes may be sent in all."""
        self._room = total
        self._link.settled()

    def tell(self, fate: Fate) -> None:
        """What became of it, or that somebody is at it."""
        asyncio.get_running_loop().call_soon(self._tell, fate)

    def _tell(self, fate: Fate) -> None:
        if fate.outcome == Outcome.RECEIVED:
            if self._delivery is not None:
                deliveries.received(self._delivery)
        elif self.fate is None:
            self.fate, self._held = fate, b""
            if self.is_arriving and self._delivery is not None:
                deliveries.hint(self._delivery, fate.outcome)
            self._settle()
        self._link.settled()

    def _settle(self) -> None:
        delivery = self._delivery
        if self.fate is None or self.is_arriving or delivery is None:
            return
        self._delivery = None
        if self._is_malformed:
            deliveries.reject(delivery, DECODE_ERROR, self.fate.text)
        else:
            self._link.settle([delivery], self.fate)
        self._link.connection.unheld(0)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be said of it."""
        return not self.is_arriving and self._delivery is None
