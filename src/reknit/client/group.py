"""Groups: programs that send events to each other, each to all, reliably and in order.

async with Group.join("robots") as group:
    await group.send(b"hello")
    async for event in group:
        print(group.name_of(event.source), event.payload)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from time import monotonic, time
from types import TracebackType
from typing import Protocol

import msgspec

from reknit.batch import Batch
from reknit.errors import Closed, Full, MalformedFrame, ReknitError
from reknit.event import Event
from reknit.frame import Buffer
from reknit.protocol.group_effects import (
    DeadLettered,
    Deliver,
    EvictSlow,
    GroupEffect,
    Left,
    Lost,
    NotSent,
    Send,
    SendBatch,
    SendTo,
    Sent,
    Viewed,
)
from reknit.protocol.group_member import GroupMember
from reknit.protocol.group_messages import Hello
from reknit.protocol.group_settings import GroupSettings
from reknit.protocol.membership import Membership
from reknit.protocol.view import Member, View
from reknit.topic import check_topic
from reknit.transport.bundle import Bundler, group_hash, unbundle
from reknit.transport.udp import OnDatagram, UdpConfig, UdpTransport
from reknit.transport.udp_over_tcp import TcpConfig, TcpDatagrams

SETTLE_S = 5.0
"""How long closing waits for the members to ack what was sent."""


class GroupTransport(Protocol):
    """What carries a group's datagrams: to all, or to one."""

    warnings: list[str]
    is_reply_possible: bool
    """Whether the address that a datagram comes from is one where its sender can be reached."""
    buffer_bytes: int
    datagram_bytes: int
    piece_bytes: int

    @property
    def address(self) -> str: ...
    async def listen(self) -> None: ...
    async def open(self, on_datagram: OnDatagram, on_turn: Callable[[], None]) -> None: ...
    async def close(self) -> None: ...
    def set_peers(self, addresses: Sequence[str]) -> None: ...
    def send_all(self, datagrams: list[bytes]) -> None: ...
    def send(self, datagrams: list[bytes], address: str) -> None: ...


class Group:
    """A member of a group. Make one with `join`.

    A member gets its own events too, in order, unless it says `discard_own`. What it does not read holds up the
    senders, because an ack means that the application has the event.
    """

    def __init__(
        self,
        name: str,
        transport: GroupTransport,
        *,
        member: str = "",
        seeds: Sequence[str] = (),
        settings: GroupSettings | None = None,
        discard_own: bool = False,
    ) -> None:
        self.name = check_topic(name)
        self.lost: deque[Lost] = deque(maxlen=1024)
        """The latest ranges that could not be had any more."""
        self.on_view: Callable[[View], None] = lambda view: None
        self.on_lost: Callable[[Lost], None] = lambda lost: None
        self.on_dead_letter: Callable[[DeadLettered], None] = lambda letter: None
        self._transport = transport
        self._discard_own = discard_own
        self._seeds = seeds
        self._member_name = member
        self._wanted = settings if settings is not None else GroupSettings()
        self._items: deque[Batch | Lost] = deque()
        self._events: deque[Event] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._joined: asyncio.Future[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        self._left: asyncio.Future[None] | None = None
        self._why_left: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._is_turn_due = False
        self._addresses: dict[bytes, str] = {}
        self._bundlers: dict[str, Bundler] = {}

    @classmethod
    def join(
        cls,
        name: str,
        *,
        udp: UdpConfig | None = None,
        tcp: TcpConfig | None = None,
        member: str = "",
        seeds: Sequence[str] = (),
        settings: GroupSettings | None = None,
        discard_own: bool = False,
    ) -> Group:
        """A group over UDP multicast, or over TCP where `tcp` is given; enter it with `async with`.

        Without multicast, `seeds` are the addresses of some members ("HOST:PORT") to find the others by.
        """
        transport: GroupTransport = TcpDatagrams(tcp) if tcp is not None else UdpTransport(udp or UdpConfig())
        return cls(name, transport, member=member, seeds=seeds, settings=settings, discard_own=discard_own)

    # -- joining and leaving

    async def __aenter__(self) -> Group:
        loop = self._loop = asyncio.get_running_loop()
        await self._transport.listen()
        settings = msgspec.structs.replace(
            self._wanted,
            piece_bytes=self._transport.piece_bytes,
            buffer_bytes=self._transport.buffer_bytes,
        )
        me = Member(os.urandom(16), self._member_name, self._transport.address)
        self._id = me.id
        self._hash = group_hash(self.name)
        rng = Random(me.id)
        membership = Membership(me, settings, rng, self._seeds, monotonic())
        self._machine = GroupMember(self.name, settings, membership, rng, time() - monotonic())
        self._sender = self._machine.multicast.sender
        self._box = self._sender.outbox
        self._joined, self._left = loop.create_future(), loop.create_future()
        await self._transport.open(self._on_datagram, self._turn)
        self._turn()
        await self._joined
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(settle_s=0.0 if error is not None else SETTLE_S)

    async def close(self, settle_s: float = SETTLE_S) -> None:
        """Wait until the members have what was sent, say goodbye, and leave."""
        if self._left is not None and not self._left.done():
            if settle_s and not self._box.is_closed:
                await self._settle(settle_s)
            self._machine.leave(monotonic())
            self._turn()
            await self._left
        if self._timer is not None:
            self._timer.cancel()
        await self._transport.close()

    async def settled(self) -> None:
        """Wait until every member's application has everything that we sent so far."""
        self._turn()
        if not self._sender.is_settled:
            if self._settled is None or self._settled.done():
                self._settled = self._loop.create_future()
            await asyncio.shield(self._settled)

    async def _settle(self, settle_s: float) -> None:
        self._discard_own = True
        self._hand_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settle_s):
                await self.settled()

    def _hand_all(self) -> None:
        """Nobody will read what is left: let it hold up no one."""
        if self._events:
            self._handed(self._events[-1].batch)
            self._events.clear()
        while self._items:
            self._handed(self._items.popleft())

    # -- who is here

    @property
    def members(self) -> tuple[Member, ...]:
        """The members by rank, we among them."""
        return () if self._machine.view is None else self._machine.view.members

    @property
    def id(self) -> bytes:
        """Our id, which is the source of the events that we send."""
        return self._id

    def name_of(self, source: bytes) -> str:
        """A member's name, or its id where it has none or is gone."""
        return next((m.name for m in self.members if m.id == source and m.name), source.hex())

    @property
    def address(self) -> str:
        """Where we can be reached; a seed for others."""
        return self._transport.address

    @property
    def warnings(self) -> list[str]:
        """What the transport found at its start that makes it slower than it could be."""
        return self._transport.warnings

    @property
    def counts(self) -> dict[str, int]:
        """What happened so far: asked, answered, duplicates, lost, dropped."""
        return dict(self._machine.multicast.counts)

    # -- sending

    async def send(self, payload: Buffer, timeout_s: float | None = None) -> None:
        """Send an event to all members; wait while the window is full, for at most `timeout_s`."""
        if not self._box.offer(payload):
            await self.send_many([payload], timeout_s)
        elif not self._is_turn_due:
            self._turn_soon()

    def send_nowait(self, payload: Buffer) -> bool:
        """Send an event if there is room for it; False if not."""
        accepted = self._machine.multicast.send([payload], monotonic())
        self._send_closed()
        return accepted == 1

    async def send_many(self, payloads: Sequence[Buffer], timeout_s: float | None = None) -> None:
        """Send events to all members, in this order; wait as `send` does."""
        now = monotonic()
        ticket: asyncio.Future[None] = self._loop.create_future()
        deadline = float("inf") if timeout_s is None else now + timeout_s
        accepted = self._machine.multicast.send(payloads, now, ticket, deadline)
        self._send_closed()
        if accepted < len(payloads):
            try:
                await ticket
            except asyncio.CancelledError:
                self._box.cancel(ticket)
                raise

    def _send_closed(self) -> None:
        """Send the batches that are full at once; the open one may grow until the end of the turn."""
        now = monotonic()
        self._sender.send_closed(now)
        self._perform_all(now)
        self._turn_soon()

    # -- receiving

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Events as they come. Whoever stops reading and starts again goes on with the next one."""
        events = self._events
        while True:
            while events:
                event = events.popleft()
                if not events:
                    self._handed(event.batch)
                yield event
            batch = await self._next()
            if batch is None:
                return
            events += batch.events()

    async def batches(self) -> AsyncIterator[Batch]:
        """What comes, a batch at a time."""
        while (batch := await self._next()) is not None:
            self._handed(batch)
            yield batch

    async def _next(self) -> Batch | None:
        """The next batch; None when the group is left and nothing remains."""
        while True:
            while self._items:
                item = self._items.popleft()
                if isinstance(item, Batch):
                    return item
                self._handed(item)
            if self._why_left is not None:
                return None
            self._reader = self._loop.create_future()
            await self._reader

    def _handed(self, item: Batch | Lost) -> None:
        if self._machine.multicast.handed(item.source, item.stop - 1, monotonic()):
            self._turn()
        else:
            self._turn_soon()

    # -- the driver

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _on_datagram(self, data: bytes | memoryview, address: tuple[str, int]) -> None:
        try:
            sender, items = unbundle(data, self._hash)
            if sender == self._id:
                return
            now = monotonic()
            for item in items:
                self._machine.receive(item, sender, now)
                if type(item) is Hello:
                    self._addresses[sender] = item.member.address
            if sender not in self._addresses and self._transport.is_reply_possible:
                self._addresses[sender] = f"{address[0]}:{address[1]}"
        except MalformedFrame:
            self._machine.multicast.counts["dropped"] += 1

    def _turn(self) -> None:
        """The end of a turn: what gathered is sent, what came is handed on, and the timer is set."""
        self._is_turn_due = False
        now = monotonic()
        self._machine.tick(now)
        self._perform_all(now)
        if self._settled is not None and self._sender.is_settled and not self._settled.done():
            self._settled.set_result(None)
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        deadline = self._machine.next_deadline()
        if self._why_left is not None or deadline is None:
            return
        if deadline <= now:
            self._turn_soon()
        elif deadline < self._timer_at or self._timer_at <= now:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.call_later(deadline - now, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_at = float("inf")
        self._turn()

    def _perform_all(self, now: float) -> None:
        while effects := self._machine.take_effects(now):
            for effect in effects:
                self._perform(effect)
        self._flush()

    def _perform(self, effect: GroupEffect) -> None:
        match effect:
            case Deliver():
                self._deliver(effect.batch)
            case SendBatch():
                self._bundler(effect.peer).add_batch(effect.batch, effect.size, effect.pieces)
            case Send():
                self._bundler(effect.peer).add(effect.message)
            case SendTo():
                self._bundlers.setdefault(effect.address, self._new_bundler()).add(effect.message)
            case Lost():
                self.lost.append(effect)
                self._deliver(effect)
                self.on_lost(effect)
            case Sent():
                if not effect.ticket.done():
                    effect.ticket.set_result(None)
            case NotSent():
                self._not_sent(effect)
            case DeadLettered():
                self.on_dead_letter(effect)
            case Viewed():
                self._viewed(effect.view)
            case Left():
                self._leave(effect.why)
            case EvictSlow():
                pass

    def _deliver(self, item: Batch | Lost) -> None:
        if self._discard_own and item.source == self._id:
            self._handed(item)
            return
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _not_sent(self, effect: NotSent) -> None:
        if not effect.ticket.done():
            error: ReknitError = Closed(f"group {self.name!r}", "join it again")
            if effect.is_timeout:
                error = Full(f"the group's window had no room in time ({effect.accepted} events were sent)",
                             "group.capacity_events, group.window_bytes or the timeout")  # fmt: skip
            effect.ticket.set_exception(error)

    def _viewed(self, view: View) -> None:
        self._addresses |= {member.id: member.address for member in view.members}
        self._transport.set_peers([member.address for member in view.members])
        if self._joined is not None and not self._joined.done():
            self._joined.set_result(None)
        self.on_view(view)

    def _leave(self, why: str) -> None:
        self._why_left = why
        self._machine.multicast.close(monotonic())
        for effect in self._machine.multicast.take_effects():
            self._perform(effect)
        for future in (self._reader, self._left, self._joined, self._settled):
            if future is not None and not future.done():
                future.set_result(None)

    # -- datagrams

    def _new_bundler(self) -> Bundler:
        return Bundler(self._hash, self._id, self._transport.datagram_bytes)

    def _bundler(self, peer: bytes | None) -> Bundler:
        address = "" if peer is None else self._addresses.get(peer, "?")
        bundler = self._bundlers.get(address)
        if bundler is None:
            bundler = self._bundlers[address] = self._new_bundler()
        return bundler

    def _flush(self) -> None:
        stable = self._box.window.acked
        for address, bundler in self._bundlers.items():
            datagrams = bundler.take(stable)
            if not datagrams or address == "?":
                continue
            if address:
                self._transport.send(datagrams, address)
            else:
                self._transport.send_all(datagrams)
