"""A network that misbehaves: ordered streams that can be cut, as TCP's can, and datagrams that come as they like.

A stream never loses or reorders bytes while it stands. When it is cut, what was in flight arrives up to some point
and no further, and each side finds out in its own time. A partition stops the bytes; if it lasts, both sides give up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan


class StreamUser(Protocol):
    """Who is told what happens on its side of a stream."""

    def opened(self, end: End) -> None:
        """The stream stands."""

    def received(self, end: End, data: bytes) -> None:
        """Bytes came, in order, cut anywhere."""

    def blocked(self, end: End, is_blocked: bool) -> None:
        """The way out is full, or free again."""

    def lost(self, end: End) -> None:
        """The stream is gone. The last call for it."""


class End:
    """One side of a stream."""

    def __init__(self, network: Network, number: int, host: str, user: StreamUser) -> None:
        self.number = number
        self.host = host
        self.user = user
        self.other: End
        self.is_open = True
        """This side has not given the stream up, and was not told that it is gone."""
        self.is_cut = False
        """Nothing more gets through in either direction."""
        self.arrives_at = 0.0
        self.in_flight = 0
        self.is_blocked = False
        self.stalled: list[bytes] = []
        """What waits for the end of a partition."""
        self._network = network

    def send(self, data: bytes) -> None:
        """Send bytes to the other side; they may get there."""
        if self.is_open:
            self._network.carry(self, data)

    def close(self) -> None:
        """Give the stream up at once; the other side finds out."""
        if self.is_open:
            self.is_open = False
            self._network.cut(self)


class Network:
    """Hosts, the streams between them, and datagrams."""

    def __init__(self, clock: Clock, plan: FaultPlan, rng: Random) -> None:
        self._clock = clock
        self._plan = plan
        self._rng = rng
        self._listening: dict[str, StreamUser] = {}
        self._streams: dict[int, tuple[End, End]] = {}
        self._blocked: set[tuple[str, str]] = set()
        """(from, to) pairs of hosts between which nothing gets through."""
        self._count = 0

    # -- streams

    def listen(self, host: str, user: StreamUser) -> None:
        """Take connections to a host."""
        self._listening[host] = user

    def fall_silent(self, host: str) -> None:
        """A host crashes: nobody listens there, and its streams are gone without a goodbye."""
        self._listening.pop(host, None)
        for ends in list(self._streams.values()):
            for end in ends:
                if end.host == host and end.is_open:
                    end.is_open = False
                    self.cut(end)

    def connect(self, host: str, to: str, user: StreamUser) -> bool:
        """Open a stream; False if nobody answers. The one who opened it is told first."""
        accepting = self._listening.get(to)
        if accepting is None or (host, to) in self._blocked or (to, host) in self._blocked:
            return False
        self._count += 1
        here, there = End(self, self._count, host, user), End(self, self._count, to, accepting)
        here.other, there.other = there, here
        self._streams[self._count] = (here, there)
        there.user.opened(there)
        user.opened(here)
        return True

    def carry(self, end: End, data: bytes) -> None:
        """Bring bytes to the other side, in order."""
        if end.is_cut:
            return
        end.in_flight += len(data)
        if end.in_flight > self._plan.buffer_bytes and not end.is_blocked:
            end.is_blocked = True
            self._clock.after(0.0, partial(self._say_blocked, end, True))
        pieces = [data]
        if len(data) > 1 and self._rng.random() < self._plan.split_share:
            at = self._rng.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            due = self._clock.now + self._rng.uniform(self._plan.delay_s_min, self._plan.delay_s_max)
            end.arrives_at = max(end.arrives_at, due)
            self._clock.at(end.arrives_at, partial(self._arrive, end, piece))

    def _arrive(self, end: End, data: bytes) -> None:
        other = end.other
        if end.arrives_at < 0 or not other.is_open:  # cut off
            return
        if (end.host, other.host) in self._blocked or end.stalled:
            end.stalled.append(data)
            return
        self._pass_on(end, data)

    def _pass_on(self, end: End, data: bytes) -> None:
        end.in_flight -= len(data)
        if end.other.is_open:
            end.other.user.received(end.other, data)
        if end.is_blocked and end.in_flight <= self._plan.buffer_bytes // 2:
            end.is_blocked = False
            self._say_blocked(end, False)

    def _say_blocked(self, end: End, is_blocked: bool) -> None:
        if end.is_open and end.is_blocked is is_blocked:
            end.user.blocked(end, is_blocked)

    # -- faults

    def cut(self, end: End) -> None:
        """Break a stream. What is in flight arrives up to a point; then each side that is still there is told."""
        for side in (end, end.other):
            if side.is_cut:
                continue
            side.is_cut = True
            notice_s = self._rng.uniform(0.0, self._plan.notice_s_max)
            last = self._clock.now + self._rng.choice((0.0, notice_s))
            self._clock.at(last, partial(self._silence, side))
            self._clock.at(max(last, self._clock.now + notice_s), partial(self._tell_lost, side.other))
        self._forget(end)

    def _forget(self, end: End) -> None:
        """A stream is forgotten when both sides know that it is gone."""
        if not end.is_open and not end.other.is_open:
            self._streams.pop(end.number, None)

    def _silence(self, end: End) -> None:
        end.arrives_at = -1.0
        end.stalled.clear()

    def _tell_lost(self, end: End) -> None:
        if end.is_open:
            end.is_open = False
            self._forget(end)
            end.user.lost(end)

    def cut_any(self) -> str:
        """Break one of the streams; gives which."""
        standing = [ends for ends in self._streams.values() if not ends[0].is_cut]
        if not standing:
            return "nothing"
        here, there = self._rng.choice(standing)
        self.cut(here)
        return f"{here.host} - {there.host}"

    def partition(self, ones: set[str], others: set[str], one_way: bool) -> None:
        """Let nothing through from these hosts to those (and back)."""
        for one in sorted(ones):
            for other in sorted(others):
                self._blocked.add((one, other))
                if not one_way:
                    self._blocked.add((other, one))
        for ends in list(self._streams.values()):
            for end in ends:
                if (end.other.host, end.host) in self._blocked:
                    give_up_s = self._rng.uniform(0.2, 1.0) * self._plan.notice_s_max + 0.1
                    self._clock.after(give_up_s, partial(self._give_up, end))

    def _give_up(self, end: End) -> None:
        """A heartbeat is missed for too long."""
        if end.is_open and (end.other.host, end.host) in self._blocked:
            end.is_open = False
            self.cut(end)
            end.user.lost(end)

    def heal(self) -> None:
        """End all partitions: what waited goes on its way."""
        self._blocked.clear()
        for ends in list(self._streams.values()):
            for end in ends:
                delay_s = self._rng.uniform(0.0, self._plan.delay_s_max)
                self._clock.after(delay_s, partial(self._drain, end))

    def _drain(self, end: End) -> None:
        """What waited arrives, before anything that was sent later."""
        while end.stalled and (end.host, end.other.host) not in self._blocked:
            self._pass_on(end, end.stalled.pop(0))

    # -- datagrams

    def send_datagram(self, host: str, to: str, deliver: Callable[[], None]) -> None:
        """Bring a datagram to a host: perhaps never, perhaps twice, perhaps late."""
        plan, rng = self._plan, self._rng
        if (host, to) in self._blocked or rng.random() < plan.loss_share:
            return
        for _ in range(2 if rng.random() < plan.duplicate_share else 1):
            delay_s = rng.uniform(plan.delay_s_min, plan.delay_s_max)
            if rng.random() < plan.reorder_share:
                delay_s *= rng.uniform(2.0, 10.0)
            self._clock.after(delay_s, deliver)
