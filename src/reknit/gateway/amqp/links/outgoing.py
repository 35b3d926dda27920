"""A client's receiver: events go to it as messages while it has credit, and its dispositions come back."""

from __future__ import annotations

import asyncio
import base64
from bisect import bisect_left
from collections import deque
from itertools import accumulate
from typing import NamedTuple

from reknit import environment
from reknit.batch import Batch
from reknit.delivery import Delivery
from reknit.event import FLAG_STREAM
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.codec.attach import DefaultOutcome
from reknit.gateway.amqp.codec.conditions import condition_of
from reknit.gateway.amqp.codec.encoding import MalformedValue
from reknit.gateway.amqp.codec.messages import encode_messages
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.links.dispositions import ACCEPTED, LinkDisposition, UnsettledMessages
from reknit.gateway.amqp.links.outgoing_stream import OutgoingMessageStream, StreamTooLong
from reknit.gateway.amqp.links.rights import ClientRights
from reknit.gateway.amqp.links.services import LinkServices
from reknit.outcome import Code, Outcome
from reknit.topic import Pattern

NO_SIZE = "its size was not announced, and it is too long for an AMQP message (amqp.message_bytes_max)"


class QueuedBatch:
    """A batch to send to the client: `at` is the next seq to send."""

    __slots__ = ("at", "batch", "messages", "prefix")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.at = batch.first
        self.messages: list[bytes] = []
        self.prefix = base64.urlsafe_b64encode(batch.source)[:22]
        """A delivery's tag is the event's id: its source in base64, and its seq in hexadecimal digits."""

    @property
    def left(self) -> int:
        return self.batch.stop - self.at


class ReceiverTerms(NamedTuple):
    """The terms that a client's receiver asked for."""

    address: str
    is_dynamic: bool
    with_topic: bool
    """Whether each message names its topic: the address is a pattern."""
    is_presettled: bool
    """Whether messages are sent as settled already."""
    is_anycast: bool
    """Whether the events go by `node.anycast`."""


class AmqpOutgoingLink:
    """One link. With a `name`, its subscription is durable; `called` is its name in figures and trails."""

    def __init__(
        self,
        services: LinkServices,
        handle: Handle,
        *,
        pattern: Pattern,
        name: str,
        called: str,
        is_dynamic: bool,
        default_outcome: DefaultOutcome | None = None,
    ) -> None:
        self._services = services
        self.handle = handle
        self._terms = ReceiverTerms(
            pattern.text,
            is_dynamic,
            not pattern.is_topic,
            deliveries.wants_settled(handle),
            services.node.is_anycast(pattern.text),
        )
        self._queue: deque[QueuedBatch] = deque()
        self._queued_bytes = 0
        self._asked = 0
        """Events that were requested and have not arrived. A batch may bring more than that."""
        self._drain: asyncio.Task[None] | None = None
        self._is_draining = False
        """Everything that is available is queued: after that the rest of the credit is used up."""
        self.is_ready = self.is_gone = False
        self._stream: OutgoingMessageStream | None = None
        self._receiver = services.node.receiver(
            pattern.text,
            name,
            called=called,
            owner=services.rights.user,
            on_batch=self._on_batch,
            has_room=self._has_room,
            on_ready=self._on_ready,
            on_end=self.end,
            streams=self,
        )
        self._unsettled = UnsettledMessages(
            self._receiver.settle,
            is_anycast=self._terms.is_anycast,
            default_outcome=default_outcome,
            on_disposition=self._add_turn,
            on_stream_settled=self._on_stream_settled,
        )
        self.delivered = self._unsettled.delivered
        """The client changed the state of a delivery."""

    @property
    def unsettled(self) -> int:
        """How many messages the client has and has not settled."""
        return len(self._unsettled)

    @property
    def credit(self) -> int:
        """How many more messages the client takes."""
        return int(deliveries.credit(self.handle))

    def _add_turn(self) -> None:
        self._services.turns.add(self)

    def _resume(self) -> None:
        self._services.turns.add(self)
        self._services.turns.wake()

    # -- life

    def _on_ready(self) -> None:
        """The subscription is open: attach the link."""
        if not self.is_gone:
            self.is_ready = True
            terms = self._terms
            deliveries.open_link(self.handle, 0, terms.address if terms.is_dynamic else "")
            self.flowed()
            self._services.turns.wake()

    @property
    def address(self) -> str:
        """The topic or pattern."""
        return self._terms.address

    def is_permitted(self, rights: ClientRights) -> bool:
        """Whether the client may still have this link."""
        return self._terms.is_dynamic or rights.may_read(Pattern(self.address))

    def end(self, code: int, text: str) -> None:
        """The node ends the subscription, and says why."""
        if self.is_gone:
            return
        if self.is_ready:
            deliveries.close_link(self.handle, condition_of(code), text)
        else:
            deliveries.refuse_link(self.handle, condition_of(code), text)
        self.close(is_closed=False)
        self._services.turns.wake()

    def close(self, is_closed: bool = True) -> None:
        """The link is gone, and its handles are invalid. Events that were not sent are released."""
        if self.is_gone:
            return
        self.is_gone = True
        if self._drain is not None:
            self._drain.cancel()
        self.flush()
        if self._terms.is_anycast:
            for one in self._queue:
                self._receiver.settle(one.batch, one.at, one.batch.stop, Outcome.RELEASED, 0, "")
        self._queue.clear()
        self._unsettled.clear()
        self._services.quotas.unsubscribe(self._services.rights.user)
        if self._terms.is_dynamic:
            self._services.replies.remove(self._terms.address)
        self._receiver.close(forget=is_closed)

    # -- events

    def _on_batch(self, batch: Batch, attempt: int) -> None:
        if self.is_gone:
            self._receiver.settle(batch, batch.first, batch.stop, Outcome.RELEASED, 0, "")
            return
        batch = batch if attempt == batch.attempt else batch.delivered(Delivery(attempt))
        self._asked -= batch.count
        self._queue.append(QueuedBatch(batch))
        self._queued_bytes += batch.head.length
        self._resume()

    def _has_room(self) -> bool:
        """Whether more may be queued. A client that drains its credit gets everything that is available."""
        return self._queued_bytes < self._services.settings.output_bytes_max or self._drain is not None

    def _dequeue(self) -> None:
        """The first batch is sent: the next may be fetched."""
        self._queued_bytes -= self._queue.popleft().batch.head.length
        self._receiver.go_on()

    def flowed(self) -> None:
        """The client's credit changed."""
        if self.is_gone or not self.is_ready:
            return
        queued = sum(one.left for one in self._queue)
        wanted = deliveries.credit(self.handle) - queued - max(0, self._asked)
        if wanted > 0:
            self._asked = max(0, self._asked) + wanted
            self._receiver.credit(wanted)
        if deliveries.wants_drain(self.handle) and self._drain is None:
            self._drain = asyncio.create_task(self._drain_credit())
            self._receiver.go_on()

    async def _drain_credit(self) -> None:
        """Send the available events, then use up the rest of the credit."""
        await self._receiver.arrive()
        self._drain = None
        if not self.is_gone:
            self._asked -= self._receiver.drain()
            self._is_draining = True
            self.work()
            self._services.turns.wake()

    def work(self) -> None:
        """Send queued events, as far as the credit and the connection's room allow."""
        if self.is_gone or not self.is_ready:
            return
        handle, queue = self.handle, self._queue
        room = deliveries.credit(handle)
        bytes_max = self._services.output_room(handle)
        if self._stream is not None and self._stream.ask():
            self._add_turn()
        while queue and room > 0 and bytes_max > 0 and self._stream is None:
            queued = queue[0]
            if queued.batch.head.flags & FLAG_STREAM:
                self._dequeue()
                self._begin_stream(queued)
                break
            count, size = self._send(queued, room, bytes_max)
            room -= count
            bytes_max -= size
            if queued.at == queued.batch.stop:
                self._dequeue()
        if self._stream is not None:
            return
        if queue and room > 0:
            self._add_turn()
        elif self._is_draining:
            self._is_draining = False
            deliveries.drained(handle)

    def _send(self, queued: QueuedBatch, count_max: int, bytes_max: int) -> tuple[int, int]:
        """Send some of a batch. Returns how many events and how many bytes that was."""
        batch, start = queued.batch, queued.at
        if not queued.messages:
            queued.messages = encode_messages(batch, environment.time_us(), self._terms.with_topic)
        low = start - batch.first
        messages = queued.messages[low : low + count_max]
        size = sum(map(len, messages))
        if size > bytes_max:
            ends = list(accumulate(map(len, messages)))
            count = bisect_left(ends, bytes_max) + 1  # the last may exceed it
            messages, size = messages[:count], ends[count - 1]
        stop = queued.at = start + len(messages)
        prefix, is_presettled = queued.prefix, self._terms.is_presettled
        tags = [prefix + b"%x" % seq for seq in range(start, stop)]
        sent = deliveries.send(self.handle, zip(tags, messages, strict=True), is_presettled)
        self._services.counts.sent(len(messages))
        if is_presettled:
            self._unsettled.add(batch, start, stop, ACCEPTED)
        else:
            self._unsettled.sent(sent, batch, start, stop)
        return stop - start, size

    def flush(self) -> None:
        """Pass on the dispositions that have gathered."""
        self._unsettled.flush()

    # -- streams

    def _begin_stream(self, queued: QueuedBatch) -> None:
        """Begin to send a message whose pieces are still to come."""
        self._stream = OutgoingMessageStream(
            self.handle,
            queued.batch,
            queued.prefix + b"1",
            with_topic=self._terms.with_topic,
            window_bytes=self._services.node.stream_window_bytes,
            bytes_max=self._services.message_bytes_max,
            output_room=self._services.stream_room,
            give_room=self._receiver.give_room,
            on_begin=self._on_stream_begun,
        )
        self._stream.ask()

    def _on_stream_begun(self, delivery: Handle, batch: Batch) -> None:
        self._unsettled.stream_began(delivery, batch)
        self._services.counts.sent(1)

    def piece(self, source: bytes, offset: int, data: bytes, is_last: bool) -> None:
        """Bytes of a delivered stream."""
        stream = self._stream
        if stream is None or stream.batch.source != source or self.is_gone:
            return
        try:
            stream.send(data, is_last)
        except MalformedValue as error:
            text = f"it does not have its announced size: {error}"
            self._give_back(stream, (Outcome.REJECTED, int(Code.INVALID_ARGUMENT), text))
        except StreamTooLong:
            self._give_back(stream, (Outcome.RELEASED, int(Code.FAILED_PRECONDITION), NO_SIZE))
        else:
            if is_last:
                self._end_stream(stream)
        self._resume()

    def _end_stream(self, stream: OutgoingMessageStream) -> None:
        """All of it is sent: the next message may follow."""
        self._stream = None
        self._unsettled.stream_ended()
        if self._terms.is_presettled:
            self._unsettled.remove(stream.delivery)
            deliveries.settle(stream.delivery)
            self._unsettled.add(stream.batch, stream.batch.first, stream.batch.first + 1, ACCEPTED)

    def _give_back(self, stream: OutgoingMessageStream, disposition: LinkDisposition) -> None:
        self._abort(stream)
        self._unsettled.add(stream.batch, stream.batch.first, stream.batch.stop, disposition)

    def _abort(self, stream: OutgoingMessageStream) -> None:
        """The client discards its part of the message."""
        self._stream = None
        if stream.delivery is not None:
            self._unsettled.remove(stream.delivery)
            deliveries.abort(stream.delivery)

    def _on_stream_settled(self) -> None:
        """The client settled a message before its end: the rest is not sent."""
        if self._stream is not None:
            self._abort(self._stream)
            self._add_turn()

    def cut(self, source: bytes, text: str) -> None:
        """The rest of a stream will not come: it never became a message."""
        self._queue = deque(one for one in self._queue if one.batch.source != source)
        self._queued_bytes = sum(one.batch.head.length for one in self._queue)
        if self.is_gone:
            return
        stream = self._stream
        if stream is not None and stream.batch.source == source:
            self._abort(stream)
        self._resume()
