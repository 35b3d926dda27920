"""A faulty network: connections that break, as TCP connections do, and datagrams that are lost, repeated or reordered.

A connection never loses or reorders bytes while it is open. When it is cut, a prefix of the bytes in flight still
arrives, and each side notices after a delay of its own. A partition stops the bytes; if it lasts, both sides give up.

A test of machines that speak in messages rather than bytes sends these as datagrams. It states the faults of datagrams
itself (`DatagramFaults`), and uses `open_link` where both sides learn at once that the other one is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan


class NetworkUser(Protocol):
    """Hears of the events on its side of a connection."""

    def opened(self, end: ConnectionEnd) -> None:
        """The connection is open."""

    def received(self, end: ConnectionEnd, data: bytes) -> None:
        """Bytes arrived, in order, in pieces of any size."""

    def blocked(self, end: ConnectionEnd, is_blocked: bool) -> None:
        """The send buffer is full, or has room again."""

    def lost(self, end: ConnectionEnd) -> None:
        """The connection is lost. This is the last call for it."""


class ConnectionEnd:
    """One side of a connection."""

    def __init__(self, network: Network, number: int, host: str, user: NetworkUser) -> None:
        self.number = number
        self.host = host
        self.user = user
        self.other: ConnectionEnd
        self.is_open = True
        """This side has not closed the connection, and was not told that it is lost."""
        self.is_cut = False
        """Nothing more that this side sends is transmitted."""
        self.is_silent = False
        """Nothing from this side arrives any more."""
        self.is_blocked = False
        self.stalled: list[bytes] = []
        """Bytes that wait for the end of a partition."""
        self._last_arrival = 0.0
        self._in_flight = 0
        self._network = network

    # -- for the user

    def send(self, data: bytes) -> None:
        """Send bytes to the other side. They may not arrive."""
        if self.is_open:
            self._network.transmit(self, data)

    def close(self) -> None:
        """Close the connection at once. The other side notices later."""
        if self.is_open:
            self.is_open = False
            self._network.cut(self)

    # -- for the network

    def join(self, other: ConnectionEnd) -> None:
        """Connect two sides."""
        self.other, other.other = other, self

    def buffer(self, size: int, limit: int) -> bool:
        """Bytes are in flight. True if the buffer has just become full."""
        self._in_flight += size
        if self._in_flight <= limit or self.is_blocked:
            return False
        self.is_blocked = True
        return True

    def unbuffer(self, size: int) -> None:
        """Bytes have arrived."""
        self._in_flight -= size

    def unblock(self, limit: int) -> bool:
        """True if the buffer was full and has just got room again."""
        if not self.is_blocked or self._in_flight > limit:
            return False
        self.is_blocked = False
        return True

    def arrival(self, due: float) -> float:
        """When bytes arrive that are due at a time: not before those that were sent earlier."""
        self._last_arrival = max(self._last_arrival, due)
        return self._last_arrival

    def mark_cut(self) -> None:
        """The connection breaks: bytes in flight may still arrive."""
        self.is_cut = True

    def silence(self) -> None:
        """Drop the bytes in flight."""
        self.is_silent = True
        self.stalled.clear()

    def lose(self) -> None:
        """This side knows that the connection is lost."""
        self.is_open = False


class DatagramFaults(Protocol):
    """Decides whether and when a datagram arrives."""

    def delays_s(self, rng: Random) -> list[float]:
        """The delay of each copy that arrives. An empty list loses the datagram."""


class PlannedDatagramFaults:
    """Loses, repeats and delays datagrams as often as a plan says."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan

    def delays_s(self, rng: Random) -> list[float]:
        """The delay of each copy that arrives: one, none or two, and some late."""
        plan = self._plan
        if rng.random() < plan.loss_share:
            return []
        copies = 2 if rng.random() < plan.duplicate_share else 1
        return [self._delay_s(rng) for _ in range(copies)]

    def _delay_s(self, rng: Random) -> float:
        delay_s = rng.uniform(self._plan.delay_s_min, self._plan.delay_s_max)
        if rng.random() < self._plan.reorder_share:
            delay_s *= rng.uniform(2.0, 10.0)
        return delay_s


class DatagramLink:
    """Carries datagrams between two hosts until it is cut.

    >>> clock, seen = Clock(), []
    >>> network = Network(clock, FaultPlan(seed=1), Random(1))
    >>> link = network.open_link()
    >>> link.send("a", "b", lambda: seen.append("in time"))
    >>> clock.run(1.0)
    >>> link.send("b", "a", lambda: seen.append("in flight"))
    >>> link.cut()
    >>> clock.run(2.0)
    >>> seen
    ['in time']
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._is_open = True

    def send(self, host: str, to: str, deliver: Callable[[], None]) -> None:
        """Send a datagram. It is lost if the link is cut before it arrives."""
        self._network.send_datagram(host, to, partial(self._arrive, deliver))

    def _arrive(self, deliver: Callable[[], None]) -> None:
        if self._is_open:
            deliver()

    def cut(self) -> None:
        """Cut the link, with everything that is in flight on it."""
        self._is_open = False


class Network:
    """Hosts, the connections between them, and datagrams."""

    def __init__(
        self, clock: Clock, plan: FaultPlan, rng: Random, datagram_faults: DatagramFaults | None = None
    ) -> None:
        self._clock = clock
        self._plan = plan
        self._rng = rng
        self._datagram_faults = (
            datagram_faults if datagram_faults is not None else PlannedDatagramFaults(plan)
        )
        self._listening: dict[str, NetworkUser] = {}
        self._connections: dict[int, tuple[ConnectionEnd, ConnectionEnd]] = {}
        self._blocked: set[tuple[str, str]] = set()
        """Pairs of hosts (from, to) that a partition separates."""
        self._count = 0

    # -- connections

    def listen(self, host: str, user: NetworkUser) -> None:
        """Accept connections to a host."""
        self._listening[host] = user

    def crash(self, host: str) -> None:
        """A host crashes: it stops listening, and its connections end without a message."""
        self._listening.pop(host, None)
        for ends in list(self._connections.values()):
            for end in ends:
                if end.host == host:
                    end.close()

    def connect(self, host: str, to: str, user: NetworkUser) -> bool:
        """Open a connection; the listener is told first. False if nobody listens, or a partition is in the way."""
        accepting = self._listening.get(to)
        if accepting is None or (host, to) in self._blocked or (to, host) in self._blocked:
            return False
        self._count += 1
        here, there = (
            ConnectionEnd(self, self._count, host, user),
            ConnectionEnd(self, self._count, to, accepting),
        )
        here.join(there)
        self._connections[self._count] = (here, there)
        there.user.opened(there)
        user.opened(here)
        return True

    def transmit(self, end: ConnectionEnd, data: bytes) -> None:
        """Transmit bytes to the other side, in order."""
        if end.is_cut:
            return
        if end.buffer(len(data), self._plan.buffer_bytes):
            self._clock.after(0.0, partial(self._tell_blocked, end, True))
        pieces = [data]
        if len(data) > 1 and self._rng.random() < self._plan.split_share:
            at = self._rng.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            due = self._clock.now + self._rng.uniform(self._plan.delay_s_min, self._plan.delay_s_max)
            self._clock.at(end.arrival(due), partial(self._arrive, end, piece))

    def _arrive(self, end: ConnectionEnd, data: bytes) -> None:
        other = end.other
        if end.is_silent or not other.is_open:
            return
        if (end.host, other.host) in self._blocked or end.stalled:
            end.stalled.append(data)
            return
        self._deliver(end, data)

    def _deliver(self, end: ConnectionEnd, data: bytes) -> None:
        end.unbuffer(len(data))
        if end.other.is_open:
            end.other.user.received(end.other, data)
        if end.unblock(self._plan.buffer_bytes // 2):
            self._tell_blocked(end, False)

    def _tell_blocked(self, end: ConnectionEnd, is_blocked: bool) -> None:
        if end.is_open and end.is_blocked is is_blocked:
            end.user.blocked(end, is_blocked)

    # -- faults

    def cut(self, end: ConnectionEnd) -> None:
        """Break a connection. A prefix of the bytes in flight arrives; then each side that is still open is told."""
        for side in (end, end.other):
            if side.is_cut:
                continue
            side.mark_cut()
            notice_s = self._rng.uniform(0.0, self._plan.notice_s_max)
            last = self._clock.now + self._rng.choice((0.0, notice_s))
            self._clock.at(last, side.silence)
            self._clock.at(max(last, self._clock.now + notice_s), partial(self._tell_lost, side.other))
        self._forget(end)

    def _forget(self, end: ConnectionEnd) -> None:
        """Forget a connection once both sides know that it is lost."""
        if not end.is_open and not end.other.is_open:
            self._connections.pop(end.number, None)

    def _tell_lost(self, end: ConnectionEnd) -> None:
        if end.is_open:
            end.lose()
            self._forget(end)
            end.user.lost(end)

    def cut_any(self) -> str:
        """Break a random connection. Returns its name."""
        standing = [ends for ends in self._connections.values() if not ends[0].is_cut]
        if not standing:
            return "nothing"
        here, there = self._rng.choice(standing)
        self.cut(here)
        return f"{here.host} - {there.host}"

    def partition(self, ones: set[str], others: set[str], one_way: bool) -> None:
        """Separate hosts from others, in one direction or both."""
        for one in sorted(ones):
            for other in sorted(others):
                self._blocked.add((one, other))
                if not one_way:
                    self._blocked.add((other, one))
        for ends in list(self._connections.values()):
            for end in ends:
                if (end.other.host, end.host) in self._blocked:
                    give_up_s = self._rng.uniform(0.2, 1.0) * self._plan.notice_s_max + 0.1
                    self._clock.after(give_up_s, partial(self._give_up, end))

    def _give_up(self, end: ConnectionEnd) -> None:
        """A side has missed heartbeats for too long."""
        if end.is_open and (end.other.host, end.host) in self._blocked:
            end.close()
            end.user.lost(end)

    def heal(self) -> None:
        """End all partitions, and transmit the bytes that waited."""
        self._blocked.clear()
        for ends in list(self._connections.values()):
            for end in ends:
                delay_s = self._rng.uniform(0.0, self._plan.delay_s_max)
                self._clock.after(delay_s, partial(self._drain, end))

    def _drain(self, end: ConnectionEnd) -> None:
        """Deliver the bytes that waited, before anything that was sent later."""
        while end.stalled and (end.host, end.other.host) not in self._blocked:
            self._deliver(end, end.stalled.pop(0))

    # -- datagrams

    def send_datagram(self, host: str, to: str, deliver: Callable[[], None]) -> None:
        """Deliver a datagram to a host: once, never, twice or late."""
        if (host, to) in self._blocked:
            return
        for delay_s in self._datagram_faults.delays_s(self._rng):
            self._clock.after(delay_s, deliver)

    def open_link(self) -> DatagramLink:
        """A link for datagrams, which can be cut alone."""
        return DatagramLink(self)
