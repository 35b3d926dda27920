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
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.conditions import code_of, condition_of, modified_text
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.messages import give
from reknit.outcome import Code, Outcome
from reknit.topic import Pattern

if TYPE_CHECKING:
    from reknit.gateway.amqp.connection import AmqpConnection

UNDELIVERABLE = "the receiver says that it is undeliverable there"
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
        self._taker = fabric.receiver(pattern.text, name, self._handed, self._ready, self._ended)

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
        batch.attempt = attempt
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
        while queue and room > 0 and bytes_max > 0:
            handed = queue[0]
            count, size = self._send(handed, room, bytes_max)
            room -= count
            bytes_max -= size
            if handed.at == handed.batch.stop:
                queue.popleft()
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
