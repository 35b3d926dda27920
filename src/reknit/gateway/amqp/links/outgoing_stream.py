"""A stream to a client: one message in as many frames as its pieces need.

Many clients read only the last of several data sections. A stream is therefore sent in one section, whose size comes
first. A stream of unknown size is held back until its end, up to the size limit of a message.
"""

from __future__ import annotations

from collections.abc import Callable

from reknit import environment
from reknit.batch import Batch
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.codec.bodies import BodyOut
from reknit.gateway.amqp.codec.messages import encode_start
from reknit.gateway.amqp.deliveries import Handle


class StreamTooLong(Exception):
    """The stream is of unknown size, and longer than a message may be."""


class OutgoingMessageStream:
    """The one message of a link that is being streamed. Others wait until its end.

    `output_room` gives how many bytes the connection takes, `give_room` asks the stream's sender for more, and
    `on_begin` is called with the delivery when the first bytes are sent.
    """

    def __init__(
        self,
        link: Handle,
        batch: Batch,
        tag: bytes,
        *,
        with_topic: bool,
        window_bytes: int,
        bytes_max: int,
        output_room: Callable[[Handle], int],
        give_room: Callable[[bytes, int], None],
        on_begin: Callable[[Handle, Batch], None],
    ) -> None:
        self.batch = batch
        self._link = link
        self._tag = tag
        self._front, self._kind, size = encode_start(batch, environment.time_us(), with_topic)
        self._window = window_bytes
        self._bytes_max = bytes_max
        self._output_room, self._give_room, self._on_begin = output_room, give_room, on_begin
        self._got = self._asked = 0
        self._held: list[bytes] = []
        self._body: BodyOut | None = None
        self.delivery: Handle | None = None
        """None while the stream is held back."""
        if size is not None:
            self._begin(size)

    def _begin(self, size: int) -> None:
        self._body = BodyOut(self._kind, size, is_strict="amqp" not in self.batch.columns())
        self.delivery = deliveries.begin(self._link, self._tag, self._front)
        self._on_begin(self.delivery, self.batch)

    def ask(self) -> bool:
        """Ask for more bytes if the connection takes them. Whether it has to wait for that."""
        ahead = self._asked - self._got
        if 2 * ahead > self._window:
            return False
        room = min(self._window, self._output_room(self._link))
        if room <= ahead:
            return True
        self._asked = self._got + room
        self._give_room(self.batch.source, self._asked)
        return False

    def send(self, data: bytes, is_last: bool) -> None:
        """Send more bytes. Raises `StreamTooLong`, and `MalformedValue` if the size differs from the announced one."""
        self._got += len(data)
        if self._body is None:
            self._held.append(data)
            if self._got > self._bytes_max:
                raise StreamTooLong
            if not is_last:
                return
            self._begin(self._got)
            data = b"".join(self._held)
        assert self._body is not None
        deliveries.send_more(self._link, self._body.feed(data, is_last))
        if is_last:
            deliveries.advance(self._link)
