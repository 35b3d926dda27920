"""A client's receiver: events go to it as messages while it has credit, and its word on each goes back."""

from __future__ import annotations

import asyncio
import base64
import time
from bisect import bisect_left
from collections import deque
from itertools import accumulate, repeat
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.delivery import Delivery
from reknit.event import FLAG_STREAM
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.conditions import code_of, condition_of, modified_text
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.encoding import MalformedValue
from reknit.gateway.amqp.messages import give
from reknit.gateway.amqp.outgoing_stream import Departing, TooLong
from reknit.outcome import Code, Outcome
from reknit.topic import Pattern

if TYPE_CHECKING:
    from reknit.gateway.amqp.connection import AmqpConnection

UNDELIVERABLE = "the receiver says that it is undeliverable there"
NO_SIZE = "it is too long for an AMQP message whose size was not said before (amqp.message_bytes_max)"
Word = tuple[Outcome, int, str]
"""An outcome, a google.rpc code and text."""
ACCEPTED: Word = (Outcome.ACCEPTED, 0, "")


class Handed:
    """A batch on its way to the client: `at` is the next seq to send."""

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


class Run:
    """The same outcome for events `[start, stop)` of a batch, which goes in one call."""

    __slots__ = ("batch", "start", "stop", "word")

    def __init__(self, batch: Batch, start: int, stop: int, word: Word) -> None:
        self.batch, self.start, self.stop, self.word = batch, start, stop, word


class Outgoing:
    """One link."""

    def __init__(
        self, connection: AmqpConnection, handle: Handle, pattern: Pattern, name: str, is_dynamic: bool
    ) -> None:
        self.connection = connection
        self.handle = handle
        self.address = pattern.text
        self.is_dynamic = is_dynamic
        self._with_topic = not pattern.is_topic
        self._is_presettled = deliveries.wants_settled(handle)
        self._queue: deque[Handed] = deque()
        self._unsettled: dict[Handle, tuple[Batch, int]] = {}
        self._asked = 0
        """Events that were asked for and have not come; a batch may bring more than that."""
        self._run: Run | None = None
        self._drain: asyncio.Task[None] | None = None
        self._is_draining = False
        """What is queued is all that there is: then the rest of the credit is used up."""
        self.is_ready = self.is_gone = False
        fabric = connection.server.fabric
        self._is_anycast = fabric.is_anycast(pattern.text)
        self._departing: Departing | None = None
        how = (self._handed, self._ready, self._ended, self)
        self._taker = fabric.receiver(pattern.text, name, *how)

    @property
    def unsettled(self) -> int:
        """How many messages the client has and has not settled."""
        return len(self._unsettled)

    @property
    def credit(self) -> int:
        """How many messages more the client takes."""
        return int(deliveries.credit(self.handle))

    # -- life

    def _ready(self) -> None:
        """The subscription stands: now the client may know."""
        if not self.is_gone:
            self.is_ready = True
            self.connection.attach(self)

    def _ended(self, code: int, text: str) -> None:
        """The node ended it."""
        if self.is_gone:
            return
        if self.is_ready:
            deliveries.close_link(self.handle, condition_of(code), text)
        else:
            deliveries.refuse_link(self.handle, condition_of(code), text)
        self.close(is_closed=False)
        self.connection.wake()

    def close(self, is_closed: bool = True) -> None:
        """The link is gone: no handle is used any more. What was not sent was not processed: it is released."""
        if self.is_gone:
            return
        self.is_gone = True
        if self._drain is not None:
            self._drain.cancel()
        self.flush()
        if self._is_anycast:
            for handed in self._queue:
                self._taker.settle(handed.batch, handed.at, handed.batch.stop, Outcome.RELEASED, 0, "")
        self._queue.clear()
        self._unsettled.clear()
        if self.is_dynamic:
            self.connection.server.replies.pop(self.address, None)
        self._taker.close(forget=is_closed)

    # -- events

    def _handed(self, batch: Batch, attempt: int) -> None:
        if self.is_gone:
            self._taker.settle(batch, batch.first, batch.stop, Outcome.RELEASED, 0, "")
            return
        batch = batch if attempt == batch.attempt else batch.delivered(Delivery(attempt))
        self._asked -= batch.count
        self._queue.append(Handed(batch))
        self.connection.dirty(self)
        self.connection.wake()

    def flowed(self) -> None:
        """The client's credit changed."""
        if self.is_gone or not self.is_ready:
            return
        queued = sum(handed.left for handed in self._queue)
        wanted = deliveries.credit(self.handle) - queued - max(0, self._asked)
        if wanted > 0:
            self._asked = max(0, self._asked) + wanted
            self._taker.credit(wanted)
        if deliveries.wants_drain(self.handle) and self._drain is None:
            self._drain = asyncio.create_task(self._drained())

    async def _drained(self) -> None:
        """Send what there is, then use up the rest of the credit."""
        await self._taker.arrive()
        self._drain = None
        if not self.is_gone:
            self._asked -= self._taker.drain()
            self._is_draining = True
            self.take()
            self.connection.wake()

    def take(self) -> None:
        """Send what is queued, as far as credit and the connection's room go."""
        if self.is_gone or not self.is_ready:
            return
        handle, queue = self.handle, self._queue
        room = deliveries.credit(handle)
        bytes_max = self.connection.output_room(handle)
        if self._departing is not None and self._departing.ask():
            self.connection.dirty(self)
        while queue and room > 0 and bytes_max > 0 and self._departing is None:
            handed = queue[0]
            if handed.batch.head.flags & FLAG_STREAM:
                queue.popleft()
                self._depart(handed)
                break
            count, size = self._send(handed, room, bytes_max)
            room -= count
            bytes_max -= size
            if handed.at == handed.batch.stop:
                queue.popleft()
        if self._departing is not None:
            return
        if queue and room > 0:
            self.connection.dirty(self)
        elif self._is_draining:
            self._is_draining = False
            deliveries.drained(handle)

    def _send(self, handed: Handed, count_max: int, bytes_max: int) -> tuple[int, int]:
        """Send some of a batch: how many events that was, and how many bytes."""
        batch, start = handed.batch, handed.at
        if not handed.messages:
            handed.messages = give(batch, time.time_ns() // 1000, self._with_topic)
        low = start - batch.first
        messages = handed.messages[low : low + count_max]
        size = sum(map(len, messages))
        if size > bytes_max:
            ends = list(accumulate(map(len, messages)))
            count = bisect_left(ends, bytes_max) + 1  # the last may be over it
            messages, size = messages[:count], ends[count - 1]
        stop = handed.at = start + len(messages)
        prefix = handed.prefix
        tags = [prefix + b"%x" % seq for seq in range(start, stop)]
        sent = deliveries.send(self.handle, zip(tags, messages, strict=True), self._is_presettled)
        self.connection.server.deliveries_out += len(messages)
        if self._is_presettled:
            self._settle(batch, start, stop, ACCEPTED)
        else:
            self._unsettled.update(
                zip(sent, zip(repeat(batch), range(start, stop), strict=False), strict=False)
            )
        return stop - start, size

    # -- streams

    def _depart(self, handed: Handed) -> None:
        """Begin to send a message whose pieces are still to come."""
        self._departing = Departing(self, handed.batch, handed.prefix + b"1", self._with_topic)
        self._departing.ask()

    def departs(self, departing: Departing) -> None:
        """The client gets the first of it."""
        self._unsettled[departing.delivery] = (departing.batch, departing.batch.first)
        self.connection.server.deliveries_out += 1

    def give_room(self, source: bytes, total: int) -> None:
        self._taker.give_room(source, total)

    def piece(self, source: bytes, offset: int, data: bytes, is_last: bool) -> None:
        """Bytes of a stream that was handed over."""
        departing = self._departing
        if departing is None or departing.batch.source != source or self.is_gone:
            return
        try:
            departing.send(data, is_last)
        except MalformedValue as error:
            self._give_back(departing, (Outcome.REJECTED, int(Code.INVALID_ARGUMENT), f"it {error}"))
        except TooLong:
            self._give_back(departing, (Outcome.RELEASED, int(Code.FAILED_PRECONDITION), NO_SIZE))
        else:
            if is_last:
                self._departed(departing)
        self.connection.dirty(self)
        self.connection.wake()

    def _departed(self, departing: Departing) -> None:
        """All of it is sent: the next may go."""
        self._departing = None
        if self._is_presettled:
            batch, seq = self._unsettled.pop(departing.delivery)
            deliveries.settle(departing.delivery)
            self._settle(batch, seq, seq + 1, ACCEPTED)

    def _give_back(self, departing: Departing, word: Word) -> None:
        self._take_back(departing)
        self._settle(departing.batch, departing.batch.first, departing.batch.stop, word)

    def _take_back(self, departing: Departing) -> None:
        """The client forgets what it has of it."""
        self._departing = None
        if departing.delivery is not None:
            self._unsettled.pop(departing.delivery, None)
            deliveries.abort(departing.delivery)

    def cut(self, source: bytes, text: str) -> None:
        """No more of a stream comes: it never was a message."""
        self._queue = deque(handed for handed in self._queue if handed.batch.source != source)
        departing = self._departing
        if departing is not None and departing.batch.source == source and not self.is_gone:
            self._take_back(departing)
        if not self.is_gone:
            self.connection.dirty(self)
            self.connection.wake()

    # -- outcomes

    def delivered(self, delivery: Handle) -> None:
        """The client says something about a delivery."""
        found = self._unsettled.get(delivery)
        if found is None:
            return
        batch, seq = found
        state = deliveries.state_of(delivery)
        if state == deliveries.ACCEPTED:
            run = self._run
            if run is not None and run.stop == seq and run.batch is batch and run.word is ACCEPTED:
                run.stop = seq + 1
            else:
                self._settle(batch, seq, seq + 1, ACCEPTED)
        elif state == deliveries.RECEIVED and not deliveries.is_settled(delivery):
            self._settle(batch, seq, seq + 1, (Outcome.RECEIVED, 0, ""))
            return
        elif state or deliveries.is_settled(delivery):
            self._settle(batch, seq, seq + 1, self._outcome(delivery, state))
        else:
            return
        del self._unsettled[delivery]
        if self._departing is not None and self._departing.delivery == delivery:
            self._take_back(self._departing)  # it is settled before its end: what is left of it is not sent
            self.connection.dirty(self)
        else:
            deliveries.settle(delivery)

    def _outcome(self, delivery: Handle, state: int) -> Word:
        if state == deliveries.RELEASED:
            return Outcome.RELEASED, 0, ""
        if state == deliveries.REJECTED:
            name, text = deliveries.said_condition(delivery)
            return Outcome.REJECTED, int(code_of(name)), text or name
        if state == deliveries.MODIFIED:
            return self._modified(*deliveries.said_modified(delivery))
        return ACCEPTED  # settled without a state: the client wants to hear no more of it

    def _modified(self, is_failed: bool, is_undeliverable: bool) -> Word:
        if self._is_anycast:
            return Outcome.MODIFIED, 0, modified_text(is_failed, is_undeliverable)
        if is_undeliverable:  # to hand it out here again is what it asks not to do
            return Outcome.REJECTED, int(Code.FAILED_PRECONDITION), UNDELIVERABLE
        return (Outcome.FAILED if is_failed else Outcome.RELEASED), 0, ""

    def _settle(self, batch: Batch, start: int, stop: int, word: Word) -> None:
        run = self._run
        if run is not None and run.batch is batch and run.stop == start and run.word == word:
            run.stop = stop
            return
        self.flush()
        self._run = Run(batch, start, stop, word)
        self.connection.dirty(self)

    def flush(self) -> None:
        """Pass on the outcomes that gathered."""
        run, self._run = self._run, None
        if run is not None:
            self._taker.settle(run.batch, run.start, run.stop, *run.word)
