"""The events that a member sends: the open batch, the window of unacked events, and the sends that wait for room.

Flow control is built in: an event gets its seq when there is room for it and not before, so a failed send leaves no
gap. Waiting sends are served in order; nothing overtakes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from operator import countOf
from typing import cast

from reknit.batch import HEADER_BYTES, Batch
from reknit.frame import Buffer, pad8
from reknit.protocol.multicast.ack_table import AckTable
from reknit.protocol.multicast.effects import SendDone, SendFailed
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.multicast.window import Window

_EVENT_BYTES = 4
"""The size of an event in a batch, without its payload."""


class OwnBatch(Batch, frozen=True, eq=False):
    """A batch of our own. Our own application reads the payloads that were sent, without a copy."""

    sent: Sequence[bytes] = ()

    def payloads(self) -> list[bytes]:
        return list(self.sent)

    @classmethod
    def of(cls, batch: Batch, payloads: list[bytes]) -> OwnBatch:
        return cls(batch.head, batch.data, sent=payloads)


class WaitingSend:
    """A send whose events did not all fit."""

    __slots__ = ("accepted", "deadline", "payloads", "ticket")

    def __init__(self, ticket: Hashable, payloads: Sequence[Buffer], accepted: int, deadline: float) -> None:
        self.ticket, self.payloads, self.accepted, self.deadline = ticket, payloads, accepted, deadline

    def accept(self, accepted: int) -> bool:
        """This many events have their seqs now. True if that is new."""
        is_new = accepted > self.accepted
        self.accepted = accepted
        return is_new


class Outbox:
    """The sending half of a member."""

    def __init__(self, me: bytes, topic: str, settings: GroupSettings) -> None:
        self._me, self._topic, self._settings = me, topic, settings
        self.window = Window[Batch](settings.capacity_events, bytes_max=settings.window_bytes)
        self.acks = AckTable({me: 0})
        self.waiting: deque[WaitingSend] = deque()
        self._ended: list[SendDone | SendFailed] = []
        """Sends that no longer wait."""
        self.bytes_limit = settings.window_bytes
        self._overhead = HEADER_BYTES + pad8(len(topic.encode())) + 16
        self._open: list[Buffer] = []
        """The payloads of the open batch."""
        self._free_events = self._free_bytes = 0
        """How much `offer` may take without further checks."""
        self._closed: list[Batch] = []
        """Batches that have their seqs and are not sent yet."""
        self.is_closed = False
        self._is_admitting = False

    # -- room

    @property
    def high(self) -> int:
        """The last seq that was assigned, including the open batch."""
        return self.window.high + len(self._open)

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def offer(self, payload: Buffer) -> bool:
        """Give one event its seq if that is simple: it fits into the open batch, and no send waits."""
        size = len(payload) + _EVENT_BYTES
        if size > self._free_bytes or not self._free_events:
            return False
        self._free_bytes -= size
        self._free_events -= 1
        self._open.append(payload)
        return True

    def measure(self) -> None:
        """Work out how much `offer` may take: until the batch or the window is full, or a send waits."""
        settings, count = self._settings, len(self._open)
        if (self.waiting and not self._is_admitting) or self.is_closed:
            self._free_events = self._free_bytes = 0
            return
        self._free_events = min(settings.batch_events_max, self.window.room) - count
        left = min(settings.batch_bytes_max, self.bytes_limit - self.window.bytes)
        self._free_bytes = left - self._overhead
        if count:
            self._free_bytes -= sum(map(len, self._open)) + _EVENT_BYTES * count

    def fill(self, payloads: Sequence[Buffer], at: int, now: float, wall_s: float) -> int:
        """Give seqs to as many payloads as fit, from index `at` on. Returns the index behind the last."""
        self.measure()
        while at < len(payloads):
            if not self.offer(payloads[at]):
                self.close_batch(now, wall_s)
                if not self.offer(payloads[at]) and not self._take_alone(payloads[at], now, wall_s):
                    break
            at += 1
        return at

    def _take_alone(self, payload: Buffer, now: float, wall_s: float) -> bool:
        """Take an event that is larger than a batch should be, as a batch of its own."""
        size = self._overhead + len(payload) + _EVENT_BYTES
        is_alone = not self.window.bytes  # an event larger than a shrunken window is still sent
        if self._free_events < 1 or (self.window.bytes + size > self.bytes_limit and not is_alone):
            return False
        self._open.append(payload)
        self.close_batch(now, wall_s)
        return True

    def close_batch(self, now: float, wall_s: float) -> None:
        """The open batch goes into the window."""
        if self._open:
            first, stop = self.window.high + 1, self.window.high + 1 + len(self._open)
            time_us = int((now + wall_s) * 1e6)
            batch = Batch.build(self._me, self._topic, first, self._open, time_us=time_us)
            if countOf(map(type, self._open), bytes) == len(self._open):
                batch = OwnBatch.of(batch, cast(list[bytes], self._open))
            assert self.window.add(first, stop, batch, batch.head.length)
            self._open = []
            self._closed.append(batch)
        self.measure()

    def take_closed(self) -> list[Batch]:
        """Return the batches to send. They count as delivered to ourselves."""
        closed, self._closed = self._closed, []
        if closed:
            self.window.take()
        return closed

    def limit_bytes(self, limit: int) -> None:
        """Have at most this many bytes unacked."""
        if limit != self.bytes_limit:
            self.bytes_limit = limit
            self.measure()

    # -- waiting

    def wait(self, entry: WaitingSend) -> bool:
        """Queue a send. False if too many wait already."""
        if len(self.waiting) >= self._settings.waiting_max:
            return False
        self.waiting.append(entry)
        self.measure()
        return True

    def admit(self, now: float, wall_s: float) -> bool:
        """Serve the waiting sends in order, as far as there is room. True if any event got its seq."""
        moved = False
        self._is_admitting = True
        while self.waiting:
            entry = self.waiting[0]
            accepted = self.fill(entry.payloads, entry.accepted, now, wall_s)
            moved |= entry.accept(accepted)
            if accepted < len(entry.payloads):
                break
            self.waiting.popleft()
            self._ended.append(SendDone(entry.ticket))
        self._is_admitting = False
        self.measure()
        return moved

    def expire(self, now: float) -> None:
        """Fail the sends that timed out."""
        if any(entry.deadline <= now for entry in self.waiting):
            over = [entry for entry in self.waiting if entry.deadline <= now]
            self.waiting = deque(entry for entry in self.waiting if entry.deadline > now)
            self._ended += [SendFailed(entry.ticket, entry.accepted, is_timeout=True) for entry in over]

    def cancel(self, ticket: Hashable) -> int:
        """The caller gave up waiting. Returns how many of its events have their seqs."""
        for entry in self.waiting:
            if entry.ticket == ticket:
                self.waiting.remove(entry)
                self.measure()
                return entry.accepted
        return 0

    def refuse_all(self) -> None:
        """The group closed: fail all waiting sends."""
        self.is_closed = True
        self._ended += [SendFailed(entry.ticket, entry.accepted, is_timeout=False) for entry in self.waiting]
        self.waiting.clear()
        self.measure()

    def take_ended(self) -> list[SendDone | SendFailed]:
        """Return the sends that no longer wait."""
        ended, self._ended = self._ended, []
        return ended

    # -- acks

    def settle(self) -> bool:
        """Purge the events that everyone has acked. True if that made room."""
        moved = self.window.ack(self.acks.minimum)
        self.window.forget(self.window.acked)
        if moved:
            self.measure()
        return moved
