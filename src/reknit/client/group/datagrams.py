"""The datagrams of a group member: messages gather per address, and many of them go out in one datagram."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from reknit.transport.udp import OnDatagram
from reknit.view import Member
from reknit.wire.bundle import Bundler, Datagram
from reknit.wire.groups import GroupBeat, GroupHello
from reknit.wire.sealed import SEAL_BYTES, TO_ALL, to_member

ADDRESSES_MAX: Final = 4096
"""How many addresses are remembered that datagrams came from or went to, members or not."""

_EVERYWHERE: Final = "*"
_NOWHERE: Final = "?"


class GroupTransport(Protocol):
    """Carries a group's datagrams: to all members, or to one address."""

    warnings: list[str]
    is_reply_possible: bool
    """Whether a sender can be reached at the address that its datagrams come from."""
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


class Sealing(Protocol):
    """Seals datagrams; see `reknit.protocol.sealing.seal`."""

    def seal(self, datagrams: list[Datagram], to: int = TO_ALL) -> list[Datagram]:
        """Seal datagrams for everyone, or for one member."""


class GroupDatagrams:
    """The address of each member, and the messages for each member and address."""

    def __init__(
        self, group: int, sender: bytes, transport: GroupTransport, seal: Sealing | None = None
    ) -> None:
        self._group = group
        self._sender = sender
        self._transport = transport
        self._seal = seal
        self._addresses: dict[bytes, str] = {}
        self._bundlers: dict[tuple[str, int], Bundler] = {}

    def set_members(self, members: Iterable[Member]) -> None:
        """The group has these members now."""
        self._addresses = {member.id: member.address for member in members if member.address}
        self._transport.set_peers(list(self._addresses.values()))

    def learn(self, sender: bytes, item: object, address: tuple[str, int]) -> None:
        """A datagram came: remember where its sender is. `item` is the first message in it."""
        if sender in self._addresses or len(self._addresses) >= ADDRESSES_MAX:
            return
        if self._transport.is_reply_possible:
            self._addresses[sender] = f"{address[0]}:{address[1]}"
        elif told := _told_address(item):
            self._addresses[sender] = told

    def to_peer(self, peer: bytes | None) -> Bundler:
        """The messages for one member, or for all."""
        if peer is None:
            return self._bundler(_EVERYWHERE, TO_ALL)
        return self._bundler(self._addresses.get(peer, _NOWHERE), to_member(peer))

    def to_address(self, address: str) -> Bundler:
        """The messages for an address; without one, they go nowhere."""
        return self._bundler(address or _NOWHERE, TO_ALL)

    def _bundler(self, address: str, to: int) -> Bundler:
        bundler = self._bundlers.get((address, to))
        if bundler is None:
            room = self._transport.datagram_bytes - (0 if self._seal is None else SEAL_BYTES)
            bundler = self._bundlers[address, to] = Bundler(self._group, self._sender, room, to)
        return bundler

    def flush(self, stable: int) -> None:
        """Send everything. `stable` is the seq up to which every member has our events."""
        seal = self._seal
        for (address, to), bundler in self._bundlers.items():
            datagrams = bundler.take_parts(stable)
            if not datagrams or address == _NOWHERE:
                continue
            if seal is not None:
                datagrams = seal.seal(datagrams, to)
            if address == _EVERYWHERE:
                self._transport.send_all(datagrams)
            else:
                self._transport.send(datagrams, address)
        if len(self._bundlers) > ADDRESSES_MAX:
            self._bundlers.clear()


def _told_address(item: object) -> str:
    """The address that a sender names as its own, where that of its datagrams is not."""
    match item:
        case GroupHello(member=member):
            return member.address
        case GroupBeat(address=address):
            return address
        case _:
            return ""
