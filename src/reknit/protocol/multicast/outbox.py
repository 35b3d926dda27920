"""What a member sends: the open batch, the window of what is not acked, and the sends that wait for room.

Flow control is built in: an event gets its seq when there is room for it and not before, so that a send that
fails leaves no hole. Who waits is served in order; nothing overtakes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from operator import countOf
from typing import cast

from reknit.batch import HEADER_BYTES, Batch
from reknit.frame import Buffer, pad8
from reknit.protocol.multicast.ack_table import AckTable
from reknit.protocol.multicast.effects import NotSent, Sent
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.multicast.window import Window

_EVENT_BYTES = 4
"""What an event costs in a batch beside its payload."""


class OwnBatch(Batch, frozen=True, eq=False):
    """A batch of ours: who delivers it to ourselves reads the payloads that were sent, without a copy."""

    sent: Sequence[bytes] = ()

    def payloads(self) -> list[bytes]:
        return list(self.sent)

    @classmethod
    def of(cls, batch: Batch, payloads: list[bytes]) -> OwnBatch:
        return cls(batch.head, batch.data, sent=payloads)


class Waiting:
    """A send that found no room for all of it."""

    __slots__ = ("accepted", "deadline", "payloads", "ticket")

    def __init__(self, ticket: Hashable, payloads: Sequence[Buffer], accepted: int, deadline: float) -> None:
        self.ticket, self.payloads, self.accepted, self.deadline = ticket, payloads, accepted, deadline


class Outbox:
    """The sending half of a member."""

    def __init__(self, me: bytes, topic: str, settings: GroupSettings) -> None:
        self._me, self._topic, self._settings = me, topic, settings
        self.window = Window[Batch](settings.capacity_events, bytes_max=settings.window_bytes)
        self.acks = AckTable({me: 0})
        self.waiting: deque[Waiting] = deque()
        self.ended: list[Sent | NotSent] = []
        """Sends that waited and no longer do; the machine takes them as effects."""
        self.bytes_limit = settings.window_bytes
        self._overhead = HEADER_BYTES + pad8(len(topic.encode())) + 16
        self._open: list[Buffer] = []
        """The batch that is being gathered."""
        self._free_events = self._free_bytes = 0
        """What `offer` may take without a further look."""
        self.closed: list[Batch] = []
        """Batches that got their seqs and are to be sent."""
        self.is_closed = False
        self._is_admitting = False

    # -- room

    @property
    def high(self) -> int:
        """The last seq that was given out; the open batch has its seqs too."""
        return self.window.high + len(self._open)

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def offer(self, payload: Buffer) -> bool:
        """Give one event its seq if that needs no further look: it fits the open batch, and nobody waits."""
        size = len(payload) + _EVENT_BYTES
        if size > self._free_bytes or not self._free_events:
            return False
        self._free_bytes -= size
        self._free_events -= 1
        self._open.append(payload)
        return True

    def measure(self) -> None:
        """What `offer` may take without a look: until the batch is full, or the window, or someone waits."""
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
        """Give seqs to as many as fit, from index `at` on; the index behind the last."""
        self.measure()
        while at < len(payloads):
            if not self.offer(payloads[at]):
                self.close_batch(now, wall_s)
                if not self.offer(payloads[at]) and not self._take_alone(payloads[at], now, wall_s):
                    break
            at += 1
        return at

    def _take_alone(self, payload: Buffer, now: float, wall_s: float) -> bool:
        """An event larger than a batch should be, as a batch of its own."""
        size = self._overhead + len(payload) + _EVENT_BYTES
        is_alone = not self.window.bytes  # one that is larger than a shrunken window still goes
        if self._free_events < 1 or (self.window.bytes + size > self.bytes_limit and not is_alone):
            return False
        self._open.append(payload)
        self.close_batch(now, wall_s)
        return True

    def close_batch(self, now: float, wall_s: float) -> None:
        """What was gathered becomes a batch in the window."""
        if self._open:
            first, stop = self.window.high + 1, self.window.high + 1 + len(self._open)
            time_us = int((now + wall_s) * 1e6)
            batch = Batch.build(self._me, self._topic, first, self._open, time_us=time_us)
            if countOf(map(type, self._open), bytes) == len(self._open):
                batch = OwnBatch.of(batch, cast(list[bytes], self._open))
            assert self.window.add(first, stop, batch, batch.head.length)
            self._open = []
            self.closed.append(batch)
        self.measure()

    # -- waiting

    def wait(self, entry: Waiting) -> bool:
        """Queue a send; False at the limit of sends that may wait."""
        if len(self.waiting) >= self._settings.waiting_max:
            return False
        self.waiting.append(entry)
        self.measure()
        return True

    def admit(self, now: float, wall_s: float) -> bool:
        """Let in who waits, in order, as far as there is room. True if anyone moved."""
        moved = False
        self._is_admitting = True
        while self.waiting:
            entry = self.waiting[0]
            accepted = self.fill(entry.payloads, entry.accepted, now, wall_s)
            moved |= accepted > entry.accepted
            entry.accepted = accepted
            if accepted < len(entry.payloads):
                break
            self.waiting.popleft()
            self.ended.append(Sent(entry.ticket))
        self._is_admitting = False
        self.measure()
        return moved

    def expire(self, now: float) -> None:
        """End the waits whose time has run out."""
        if any(entry.deadline <= now for entry in self.waiting):
            over = [entry for entry in self.waiting if entry.deadline <= now]
            self.waiting = deque(entry for entry in self.waiting if entry.deadline > now)
            self.ended += [NotSent(entry.ticket, entry.accepted, is_timeout=True) for entry in over]

    def cancel(self, ticket: Hashable) -> int:
        """The caller gave up waiting: how many of its events had got their seqs."""
        for entry in self.waiting:
            if entry.ticket == ticket:
                self.waiting.remove(entry)
                self.measure()
                return entry.accepted
        return 0

    def refuse_all(self) -> None:
        """Release everyone who waits: the group closed."""
        self.is_closed = True
        self.ended += [NotSent(entry.ticket, entry.accepted, is_timeout=False) for entry in self.waiting]
        self.waiting.clear()
        self.measure()

    # -- acks

    def settle(self) -> bool:
        """Purge what everyone has acked. True if there is more room than before."""
        moved = self.window.ack(self.acks.minimum)
        self.window.forget(self.window.acked)
        if moved:
            self.measure()
        return moved
