"""A member as a sender: it sends batches, tracks acks, announces itself when quiet, and deals with slow members.

send -> batches and waiting sends      acked -> room, waiting sends are served
install -> members start and leave     tick -> closed batches, `GroupStart` repeated, `GroupAnnounce` when quiet,
                                               slow members by policy
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import assert_never

from reknit.errors import Closed, Full, LocalError
from reknit.frame import Buffer
from reknit.outcome import Reason
from reknit.protocol.multicast.effects import (
    DeadLetteredEvents,
    DeliverBatch,
    EvictSlow,
    MulticastEffect,
    SendBatch,
    SendToGroup,
)
from reknit.protocol.multicast.outbox import Outbox, WaitingSend
from reknit.protocol.multicast.settings import GroupSettings, SlowMember
from reknit.view import View
from reknit.wire.groups import GroupAnnounce, GroupStart

NEVER = float("inf")


class GroupSender:
    """The sending side of `Multicast`. `emit` takes its effects; `now + wall_s` is the time of day."""

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
        """Take as many events as fit. With a ticket the rest waits. Raises `Closed`, `Full`, `LocalError`."""
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
            text = f"an event of {largest} bytes is over group.event_bytes_max ({limit})"
            raise LocalError(f"{text}: split it, or raise that limit and group.window_bytes on all members")

    def close_batch(self, now: float) -> None:
        """Deliver the open batch to ourselves, and send it to all."""
        if self.outbox.has_open:
            self.outbox.close_batch(now, self._wall_s)
        self.send_closed(now)

    def send_closed(self, now: float) -> None:
        """Deliver and send the batches that are full. The open one may still grow."""
        closed = self.outbox.take_closed()
        if not closed:
            return
        for batch in closed:
            self._emit(DeliverBatch(self.me, batch))
            self._emit(SendBatch(None, batch, self._settings.piece_bytes))
        self._quiet_s = self._settings.quiet_s
        self._quiet_at = now + self._quiet_s

    def close(self) -> None:
        """Fail all waiting sends; nothing more is sent."""
        self.outbox.refuse_all()
        self._take_ended()

    @property
    def is_settled(self) -> bool:
        """True if everyone has everything that we sent, and no send waits."""
        return self.outbox.acks.all_have(self.outbox.high) and not self.outbox.waiting

    # -- acks

    def acked(self, member: bytes, seq: int, now: float) -> None:
        """A member has everything up to and including seq. When the lowest ack of all rises, that makes room."""
        acks = self.outbox.acks
        if member not in acks or seq > self.outbox.window.high:
            return
        if seq >= acks[member]:
            self._starting.pop(member, None)  # an earlier ack does not show that it knows its start
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
        for ended in self.outbox.take_ended():
            self._emit(ended)

    # -- views

    def install(self, view: View, now: float) -> None:
        """Stop waiting for members that left. Fix where new members start, and tell them."""
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
        """Repeated until the member acks. The seq is its place in our ack table, so events after it are not purged."""
        settings = self._settings
        self._starting[member] = now + settings.repeat_s
        seq = self.outbox.acks[member]
        start = GroupStart(seq, settings.capacity_events, settings.window_bytes, settings.buffer_bytes)
        self._emit(SendToGroup(member, start))

    def set_buffer(self, member: bytes, buffer_bytes: int) -> None:
        self._buffers[member] = max(1, buffer_bytes)

    def share_buffers(self, senders: int) -> None:
        """Keep the unacked bytes of all senders below the smallest socket buffer."""
        buffer = min([self._settings.buffer_bytes, *self._buffers.values()])
        self.outbox.limit_bytes(min(self._settings.window_bytes, buffer // senders))

    # -- time

    def tick(self, now: float) -> None:
        """Send everything that is due."""
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
        """After a quiet interval, announce our last seq: the last events, or their acks, may have been lost."""
        window = self.outbox.window
        is_ack_wanted = not self.outbox.acks.all_have(window.high)
        self._quiet_at = NEVER
        if is_ack_wanted:
            self._quiet_at = now + self._quiet_s
            self._quiet_s = min(2 * self._quiet_s, self._settings.quiet_s_max)
        if is_ack_wanted or window.acked > self._stable_told:
            self._stable_told = window.acked
            self._emit(SendToGroup(None, GroupAnnounce(window.high, window.acked, is_ack_wanted)))

    def _wait_on(self, now: float) -> None:
        self.outbox.expire(now)
        self.outbox.admit(now, self._wall_s)
        self._take_ended()
        if self.outbox.waiting and now >= self._progress_at + self._settings.slow_s:  # as in `next_deadline`
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
                self._emit(DeadLetteredEvents(member, acked + 1, high + 1, Reason.EGRESS_FULL))
                self.acked(member, high, now)
                self._starting[member] = now
            case policy:
                assert_never(policy)
