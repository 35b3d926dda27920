"""A member as a sender: what it sends and has acked, what it says when quiet, and whom it waits for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import assert_never

from reknit.errors import Closed, Full, LocalError
from reknit.frame import Buffer
from reknit.outcome import Reason
from reknit.protocol.multicast.effects import (
    DeliverBatch,
    EvictSlow,
    MulticastEffect,
    ReportDeadLettered,
    SendBatch,
    SendMessage,
)
from reknit.protocol.multicast.outbox import Outbox, WaitingSend
from reknit.protocol.multicast.settings import GroupSettings, SlowMember
from reknit.view import View
from reknit.wire.groups import GroupAnnounce, GroupStart

NEVER = float("inf")


class GroupSender:
    """The sending side of `Multicast`. `emit` takes its effects; `wall_s` makes `now` a time of day."""

    def __init__(
        self,
        me: bytes,
        topic: str,
        settings: GroupSettings,
        wall_s: float,
        emit: Callable[[MulticastEffect], None],
    ) -> None:
        self.me = me
        self.outbox = Outbox(me, topic, settings)
        self._topic = topic
        self._settings = settings
        self._wall_s = wall_s
        self._emit = emit
        self.outbox.measure()
        self._starting: dict[bytes, float] = {}
        self._buffers: dict[bytes, int] = {}
        self._quiet_at = NEVER
        self._quiet_s = settings.quiet_s
        self._stable_told = 0
        self._progress_at = 0.0

    # -- sending

    def send(self, payloads: Sequence[Buffer], now: float, ticket: Hashable, deadline: float) -> int:
        """Take as many as fit; with a ticket the rest waits."""
        box = self.outbox
        if box.is_closed:
            raise Closed(f"group {self._topic!r}", "join it again")
        self._check(payloads)
        accepted = 0 if box.waiting else box.fill(payloads, 0, now, self._wall_s)
        if accepted < len(payloads) and ticket is not None:
            if not box.waiting:
                self._progress_at = now
            if not box.wait(WaitingSend(ticket, payloads, accepted, deadline)):
                raise Full(f"{len(box.waiting)} sends wait for room in the group", "group.waiting_max")
        return accepted

    def _check(self, payloads: Sequence[Buffer]) -> None:
        largest, limit = max(map(len, payloads), default=0), self._settings.event_bytes_max
        if largest > limit:
            raise LocalError(f"an event of {largest} bytes is over group.event_bytes_max ({limit}); split it")

    def close_batch(self, now: float) -> None:
        """Deliver to ourselves and send to all what was gathered."""
        if self.outbox.has_open:
            self.outbox.close_batch(now, self._wall_s)
        self.send_closed(now)

    def send_closed(self, now: float) -> None:
        """The same for batches that are full; the open one may still grow."""
        box = self.outbox
        if not box.closed:
            return
        for batch in box.closed:
            self._emit(DeliverBatch(self.me, batch))
            self._emit(SendBatch(None, batch, self._settings.piece_bytes))
        box.closed.clear()
        box.window.take()
        self._quiet_s = self._settings.quiet_s
        self._quiet_at = now + self._quiet_s

    def close(self) -> None:
        """Release every waiting sender; nothing more is sent."""
        self.outbox.refuse_all()
        self._take_ended()

    @property
    def is_settled(self) -> bool:
        """True if everyone has everything that we sent."""
        return self.outbox.acks.all_have(self.outbox.high) and not self.outbox.waiting

    # -- acks

    def acked(self, member: bytes, seq: int, now: float) -> None:
        """A member has everything up to and including seq. The lowest ack of all purges and makes room."""
        acks = self.outbox.acks
        if member not in acks or seq > self.outbox.window.high:
            return
        if seq >= acks[member]:
            self._starting.pop(member, None)  # an ack from before it was told where to start proves nothing
        if acks.ack(member, seq):
            self._progress_at = now
            self._quiet_s = self._settings.quiet_s
            self._settle(now)

    def _settle(self, now: float) -> None:
        if self.outbox.settle() and self.outbox.waiting:
            self.outbox.admit(now, self._wall_s)
            self._take_ended()
        if self.outbox.window.acked > self._stable_told or not self.is_settled:
            self._quiet_at = min(self._quiet_at, now + self._quiet_s)

    def _take_ended(self) -> None:
        for ended in self.outbox.ended:
            self._emit(ended)
        self.outbox.ended.clear()

    # -- views

    def install(self, view: View, now: float) -> None:
        """Nobody waits for who left; who joined starts at a seq that is fixed here and told to it."""
        self.close_batch(now)
        box = self.outbox
        for member in [member for member in box.acks.members if member not in view]:
            box.acks.leave(member)
            self._starting.pop(member, None)
            self._buffers.pop(member, None)
        for member in view.ids:
            if member not in box.acks:
                box.acks.join(member, box.window.high)
                self._starting[member] = now
        self._settle(now)

    def restart(self, member: bytes, now: float) -> None:
        """A member lacks our `GroupStart`."""
        if member in self.outbox.acks and member != self.me:
            self._starting[member] = now

    def _tell_start(self, member: bytes, now: float) -> None:
        """Said again until the member acks. The seq is its place in our ack table, so it is never purged."""
        settings = self._settings
        self._starting[member] = now + settings.repeat_s
        seq = self.outbox.acks[member]
        start = GroupStart(seq, settings.capacity_events, settings.window_bytes, settings.buffer_bytes)
        self._emit(SendMessage(member, start))

    def set_buffer(self, member: bytes, buffer_bytes: int) -> None:
        self._buffers[member] = max(1, buffer_bytes)

    def share_buffers(self, senders: int) -> None:
        """Bytes in flight stay below the smallest socket buffer, shared among those who send."""
        buffer = min([self._settings.buffer_bytes, *self._buffers.values()])
        limit = min(self._settings.window_bytes, buffer // senders)
        if limit != self.outbox.bytes_limit:
            self.outbox.bytes_limit = limit
            self.outbox.measure()

    # -- time

    def tick(self, now: float) -> None:
        """Whatever is due."""
        if self.outbox.waiting:
            self._wait_on(now)
        self.close_batch(now)
        for member in [member for member, at in self._starting.items() if at <= now]:
            self._tell_start(member, now)
        if self._quiet_at <= now:
            self._announce(now)

    def next_deadline(self) -> float:
        times = [self._quiet_at, *self._starting.values()]
        if self.outbox.waiting:
            times.append(self._progress_at + self._settings.slow_s)
            times += [entry.deadline for entry in self.outbox.waiting]
        return min(times)

    def _announce(self, now: float) -> None:
        """After a quiet interval, say how far we got: the last events may be lost, and acks too."""
        window = self.outbox.window
        is_ack_wanted = not self.outbox.acks.all_have(window.high)
        self._quiet_at = NEVER
        if is_ack_wanted:
            self._quiet_at = now + self._quiet_s
            self._quiet_s = min(2 * self._quiet_s, self._settings.quiet_s_max)
        if is_ack_wanted or window.acked > self._stable_told:
            self._stable_told = window.acked
            self._emit(SendMessage(None, GroupAnnounce(window.high, window.acked, is_ack_wanted)))

    def _wait_on(self, now: float) -> None:
        self.outbox.expire(now)
        self.outbox.admit(now, self._wall_s)
        self._take_ended()
        if self.outbox.waiting and now - self._progress_at >= self._settings.slow_s:
            self._progress_at = now
            for member in self.outbox.acks.lowest():
                if member != self.me:
                    self._slow(member, now)

    def _slow(self, member: bytes, now: float) -> None:
        acked, high = self.outbox.acks[member], self.outbox.window.high
        match self._settings.slow_member:
            case SlowMember.BLOCK:
                pass
            case SlowMember.EVICT:
                why = f"took nothing after {acked} of {high} for {self._settings.slow_s} s"
                self._emit(EvictSlow(member, why))
            case SlowMember.DEAD_LETTER:
                self._emit(ReportDeadLettered(member, acked + 1, high + 1, Reason.EGRESS_FULL))
                self.acked(member, high, now)
                self._starting[member] = now
            case policy:
                assert_never(policy)
