"""Runs the machine of one member on an asyncio loop: datagrams in, effects out, one timer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from random import Random
from time import monotonic, time
from typing import Final, Protocol

import msgspec

from reknit.errors import LocalError, MalformedFrame
from reknit.protocol.multicast.effects import (
    GroupEffect,
    SendBatch,
    SendPieces,
    SendToAddress,
    SendToGroup,
    ViewInstalled,
)
from reknit.protocol.multicast.member import GivenMembership, GroupMember
from reknit.protocol.multicast.membership import Membership
from reknit.protocol.multicast.settings import GroupSettings
from reknit.transport.udp import OnDatagram
from reknit.view import Member
from reknit.wire.bundle import Bundler, Datagram, group_hash, unbundle
from reknit.wire.groups import GroupHello

NEVER: Final = float("inf")
ADDRESSES_MAX: Final = 4096
"""So many places are remembered that datagrams came from or went to, members or not."""

PIECES_MAX: Final = 43
"""Into so many pieces a batch is cut at most: those of an Ethernet frame's size that one system call sends."""

_TO_ALL: Final = ""
_NOWHERE: Final = "?"


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
    def send_all(self, datagrams: list[Datagram]) -> None: ...
    def send(self, datagrams: list[Datagram], address: str) -> None: ...


class GroupDriver:
    """Sends what the machine says, and passes the effects that are for the application to `on_effect`."""

    def __init__(
        self, name: str, topic: str, transport: GroupTransport, on_effect: Callable[[GroupEffect], None]
    ) -> None:
        self.transport = transport
        self.is_turn_due = False
        self._topic = topic
        self._hash = group_hash(name)
        self._on_effect = on_effect
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._is_stopped = False
        self._addresses: dict[bytes, str] = {}
        self._bundlers: dict[str, Bundler] = {}

    async def start(
        self, member: str, seeds: Sequence[str], wanted: GroupSettings, *, is_given: bool = False
    ) -> None:
        """Open the transport and make the machine. `is_given`: the members will be told from outside."""
        self._loop = asyncio.get_running_loop()
        await self.transport.listen()
        piece_bytes = self.transport.piece_bytes
        settings = msgspec.structs.replace(
            wanted,
            piece_bytes=piece_bytes,
            buffer_bytes=self.transport.buffer_bytes,
            batch_bytes_max=min(wanted.batch_bytes_max, PIECES_MAX * piece_bytes),
        )
        self._ack_s = settings.ack_s
        me = Member(os.urandom(16), member, self.transport.address)
        self.id = me.id
        rng = Random(me.id)
        membership = GivenMembership(me) if is_given else Membership(me, settings, rng, seeds, monotonic())
        self.machine = GroupMember(self._topic, settings, membership, rng, time() - monotonic())
        self.multicast = self.machine.multicast
        self.sender = self.multicast.sender
        await self.transport.open(self._on_datagram, self._on_drained)
        if isinstance(membership, GivenMembership):
            membership.give([me])
        self.turn()

    def give(self, members: Sequence[Member]) -> None:
        """Who the members are, where that is told from outside."""
        membership = self.machine.membership
        if not isinstance(membership, GivenMembership):
            raise LocalError("the members of this group find each other: join it with is_given=True")
        if self.id not in [member.id for member in members]:
            raise LocalError("a member must be among those that it is given: add group.me")
        membership.give(list(members))
        self.turn()

    async def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        await self.transport.close()

    # -- turns

    def handed(self, source: bytes, seq: int) -> None:
        """The application has these events. Most often that is only noted, and acked with others later."""
        now = monotonic()
        if self.multicast.handed(source, seq, now):
            self.turn()
        elif not self.is_turn_due and self._timer_at > now + self._ack_s:
            # all that may have become due is an ack, and not before that
            self._set_timer(now, self.machine.next_deadline())

    def turn_soon(self) -> None:
        if not self.is_turn_due:
            self.is_turn_due = True
            self._loop.call_soon(self.turn)

    def _on_drained(self) -> None:
        """Datagrams came. Pieces of a batch that is not whole yet need no turn, but perhaps an earlier timer."""
        now = monotonic()
        deadline = self.machine.next_deadline()
        if deadline is not None and deadline <= now:
            self.turn()
        else:
            self._set_timer(now, deadline)

    def turn(self) -> None:
        """The end of a turn: what gathered is sent, what came is handed on, and the timer is set."""
        self.is_turn_due = False
        if self._is_stopped:
            return
        now = monotonic()
        self.machine.tick(now)
        self._perform_all(now)
        self._set_timer(now, self.machine.next_deadline())

    def send_closed(self) -> None:
        """Send the batches that are full at once; the open one may grow until the end of the turn."""
        now = monotonic()
        self.sender.send_closed(now)
        self._perform_all(now)
        self.turn_soon()

    def _set_timer(self, now: float, deadline: float | None) -> None:
        if deadline is None:
            return
        if deadline <= now:
            self.turn_soon()
        elif deadline < self._timer_at or self._timer_at <= now:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.call_later(deadline - now, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_at = NEVER
        self.turn()

    # -- effects

    def _perform_all(self, now: float) -> None:
        while effects := self.machine.take_effects():
            for effect in effects:
                self._perform(effect)
        self._flush()

    def _perform(self, effect: GroupEffect) -> None:
        match effect:
            case SendBatch():
                self._bundler(self._where(effect.peer)).add_batch(effect.batch, effect.size, effect.pieces)
            case SendPieces():
                bundler = self._bundler(self._where(effect.peer))
                for piece in effect.pieces:
                    bundler.add_piece(piece)
            case SendToGroup():
                self._bundler(self._where(effect.peer)).add(effect.message)
            case SendToAddress():
                self._bundler(effect.address).add(effect.message)
            case ViewInstalled():
                members = effect.view.members
                self._addresses = {member.id: member.address for member in members}
                self.transport.set_peers([member.address for member in members])
                self._on_effect(effect)
            case _:
                self._on_effect(effect)

    # -- datagrams

    def _on_datagram(self, data: bytes | memoryview, address: tuple[str, int]) -> None:
        try:
            sender, items = unbundle(data, self._hash)
        except MalformedFrame:
            self.multicast.dropped()
            return
        if sender == self.id:
            return
        if sender not in self._addresses and len(self._addresses) < ADDRESSES_MAX:
            self._learn(sender, items[0] if items else None, address)
        now = monotonic()
        for item in items:
            self.machine.receive(item, sender, now)

    def _learn(self, sender: bytes, item: object, address: tuple[str, int]) -> None:
        if self.transport.is_reply_possible:
            self._addresses[sender] = f"{address[0]}:{address[1]}"
        elif isinstance(item, GroupHello):
            self._addresses[sender] = item.member.address

    def _where(self, peer: bytes | None) -> str:
        return _TO_ALL if peer is None else self._addresses.get(peer, _NOWHERE)

    def _bundler(self, address: str) -> Bundler:
        bundler = self._bundlers.get(address)
        if bundler is None:
            bundler = self._bundlers[address] = Bundler(self._hash, self.id, self.transport.datagram_bytes)
        return bundler

    def _flush(self) -> None:
        stable = self.sender.outbox.window.acked
        for address, bundler in self._bundlers.items():
            datagrams = bundler.take_parts(stable)
            if not datagrams or address == _NOWHERE:
                continue
            if address == _TO_ALL:
                self.transport.send_all(datagrams)
            else:
                self.transport.send(datagrams, address)
        if len(self._bundlers) > ADDRESSES_MAX:
            self._bundlers.clear()
