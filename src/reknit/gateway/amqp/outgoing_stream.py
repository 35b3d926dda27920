"""A stream on its way to a client: a message that is sent in as many frames as its pieces need.

What many clients read of a body in several data sections is the last of them. So a stream goes in one section, whose
size has to be said first; one whose size nobody said is held back until its end, as far as a message may be long.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.bodies import BodyOut
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.messages import give_front

if TYPE_CHECKING:
    from reknit.gateway.amqp.outgoing import Outgoing


class TooLong(Exception):
    """It is longer than a message whose size is not known may be."""


class Departing:
    """The one message of a link that is being sent; others wait until its end."""

    def __init__(self, link: Outgoing, batch: Batch, tag: bytes, with_topic: bool) -> None:
        self.batch = batch
        self._link = link
        self._tag = tag
        self._front, self._kind, size = give_front(batch, time.time_ns() // 1000, with_topic)
        self._is_strict = "amqp" not in batch.columns()
        self._window = link.connection.server.stream_window_bytes
        self._got = self._asked = 0
        self._held: list[bytes] = []
        self._body: BodyOut | None = None
        self.delivery: Handle | None = None
        """None while it is held back."""
        if size is not None:
            self._begin(size)

    def _begin(self, size: int) -> None:
        self._body = BodyOut(self._kind, size, self._is_strict)
        self.delivery = deliveries.begin(self._link.handle, self._tag, self._front)
        self._link.departs(self)

    def ask(self) -> bool:
        """Let more of it come while the connection takes it; whether it has to wait for that."""
        total = self._got + self._window
        if 2 * (total - self._asked) < self._window:
            return False
        if self._link.connection.output_room(self._link.handle) <= 0:
            return True
        self._asked = total
        self._link.give_room(self.batch.source, total)
        return False

    def send(self, data: bytes, is_last: bool) -> None:
        """More of it. Raises `TooLong`, and `MalformedValue` if it is not as long as its publisher said."""
        self._got += len(data)
        if self._body is None:
            self._held.append(data)
            if self._got > self._link.connection.message_bytes_max:
                raise TooLong
            if not is_last:
                return
            self._begin(self._got)
            data = b"".join(self._held)
        assert self._body is not None
        deliveries.go_on(self._link.handle, self._body.feed(data, is_last))
        if is_last:
            deliveries.advance(self._link.handle)
