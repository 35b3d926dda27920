"""A server's tunnels. Those at the live edge all get the same bytes; those behind read the journal at their own pace.

A tunnel whose client reads slowly falls behind, and costs a cursor rather than a queue. If the client reads nothing
for too long, the tunnel is closed with a reason, and the client can resume later from its checkpoint.

    TunnelOpened       at the live edge -> LIVE; before it -> BEHIND: ReadJournal; over a limit: RefuseTunnel
    LIVE, BEHIND       ── TunnelBlocked(True) ──> BLOCKED
    BLOCKED            ── TunnelBlocked(False) ──> BEHIND: ReadJournal;   after `stall_s_max`: CloseTunnel
    BEHIND             ── TunnelCaughtUp at the live edge ──> LIVE;   before it ──> BEHIND: ReadJournal
    TunnelClosed       the tunnel is forgotten
    LiveEdgeMoved      live tunnels have everything before it

Inputs for an unknown tunnel come late, from a connection that is gone, and are ignored. A repeated report that a tunnel
is blocked, or is not, is ignored too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, assert_never

import msgspec

from reknit.protocol.machine import Machine, Peer
from reknit.protocol.tunnel.journal_place import JournalPlace


class ServedTunnelState(Enum):
    """The state of a tunnel on its server."""

    LIVE = "live"
    """It has everything up to the live edge, and gets new events."""
    BEHIND = "behind"
    """It reads the events that it missed."""
    BLOCKED = "blocked"
    """Its buffer is full: it gets nothing until the buffer drains."""


class TunnelOpened(msgspec.Struct, frozen=True):
    """A tunnel starts at a place. Tunnels of one `group` get the same bytes."""

    group: Hashable
    address: str
    place: JournalPlace
    journal: str = ""
    """The client's journal that it is on, which may have only one tunnel."""


class TunnelClosed(msgspec.Struct, frozen=True):
    """The tunnel's connection was closed or lost."""


class TunnelBlocked(msgspec.Struct, frozen=True):
    """The tunnel's buffer is full, or has room again."""

    is_blocked: bool


class LiveEdgeMoved(msgspec.Struct, frozen=True):
    """The live edge moved. Everything before it was sent to all live tunnels, or is being sent."""

    position: int


class TunnelCaughtUp(msgspec.Struct, frozen=True):
    """Everything before this place was sent to a tunnel that was behind, or is being sent."""

    place: JournalPlace


Input = TunnelOpened | TunnelClosed | TunnelBlocked | LiveEdgeMoved | TunnelCaughtUp


class ReadJournal(msgspec.Struct, frozen=True):
    """Send the tunnel the events after this place, then report `TunnelCaughtUp`."""

    peer: Peer
    place: JournalPlace


class CloseTunnel(msgspec.Struct, frozen=True):
    """Tell the client why, and close the tunnel."""

    peer: Peer
    why: str


class RefuseTunnel(msgspec.Struct, frozen=True):
    """Refuse to open the tunnel now, and say why."""

    peer: Peer
    why: str


Effect = ReadJournal | CloseTunnel | RefuseTunnel

TRANSITIONS: Final[dict[tuple[ServedTunnelState, type[Any], bool], ServedTunnelState]] = {
    (ServedTunnelState.LIVE, TunnelBlocked, True): ServedTunnelState.BLOCKED,
    (ServedTunnelState.BEHIND, TunnelBlocked, True): ServedTunnelState.BLOCKED,
    (ServedTunnelState.BLOCKED, TunnelBlocked, False): ServedTunnelState.BEHIND,
    (ServedTunnelState.BEHIND, TunnelCaughtUp, False): ServedTunnelState.BEHIND,
    (ServedTunnelState.BEHIND, TunnelCaughtUp, True): ServedTunnelState.LIVE,  # it reached the live edge
    (ServedTunnelState.BLOCKED, TunnelCaughtUp, False): ServedTunnelState.BLOCKED,
    (ServedTunnelState.BLOCKED, TunnelCaughtUp, True): ServedTunnelState.BLOCKED,
}


@dataclass(slots=True, eq=False)
class ServedTunnel:
    """One tunnel and its state."""

    group: Hashable
    address: str
    journal: str
    state: ServedTunnelState
    place: JournalPlace
    """After the last event that it was sent. A live tunnel is at the live edge."""
    blocked_at: float = 0.0

    def go_live(self) -> None:
        """It has everything up to the live edge."""
        self.state = ServedTunnelState.LIVE

    def set_blocked(self, is_blocked: bool, edge: JournalPlace, now: float) -> bool:
        """Its buffer is full, or has room again. False if that is not new. A live one stops at the live edge."""
        state = TRANSITIONS.get((self.state, TunnelBlocked, is_blocked))
        if state is None:
            return False
        if self.state is ServedTunnelState.LIVE:
            self.place = edge
        if is_blocked:
            self.blocked_at = now
        self.state = state
        return True

    def catch_up(self, place: JournalPlace, is_at_edge: bool) -> ServedTunnelState | None:
        """It was sent everything before a place. Returns its state; None if it was not behind."""
        self.place = place
        state = TRANSITIONS.get((self.state, TunnelCaughtUp, is_at_edge))
        if state is not None:
            self.state = state
        return state


class TunnelServer:
    """All tunnels of one node.

    >>> server = TunnelServer("a1", position=64)
    >>> server.receive(TunnelOpened("simple what/chat", "10.0.0.7", JournalPlace("a1", 64)), "ann", 0.0)
    >>> server.live("simple what/chat")
    {'ann': None}
    >>> server.receive(TunnelOpened("simple what/chat", "10.0.0.7", JournalPlace("a1", 0)), "bob", 0.0)
    >>> server.take_effects()
    [ReadJournal(peer='bob', place=JournalPlace(epoch='a1', position=0, index=0))]
    """

    def __init__(
        self,
        epoch: str,
        position: int,
        tunnels_max: int = 100_000,
        per_address_max: int = 100_000,
        stall_s_max: float = 30.0,
    ) -> None:
        self.position = position
        """The live edge."""
        self._epoch = epoch
        self._tunnels: dict[Peer, ServedTunnel] = {}
        self._live: dict[Hashable, dict[Peer, None]] = {}
        self._by_journal: dict[str, Peer] = {}
        self._by_address: dict[str, int] = {}
        self._blocked: dict[Peer, None] = {}
        self._tunnels_max = tunnels_max
        self._per_address_max = per_address_max
        self._stall_s_max = stall_s_max
        self._effects: list[Effect] = []

    def __len__(self) -> int:
        return len(self._tunnels)

    def live(self, group: Hashable) -> dict[Peer, None]:
        """The tunnels of a group at the live edge, the oldest first."""
        return self._live.get(group, {})

    def groups(self) -> list[Hashable]:
        """The groups that have tunnels at the live edge."""
        return list(self._live)

    def tunnel(self, peer: Peer) -> ServedTunnel | None:
        return self._tunnels.get(peer)

    def counts(self) -> dict[str, int]:
        """How many tunnels there are in each state."""
        live = sum(map(len, self._live.values()))
        blocked = len(self._blocked)
        return {"live": live, "behind": len(self._tunnels) - live - blocked, "blocked": blocked}

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An input about a tunnel, or about the journal."""
        match message:
            case LiveEdgeMoved(position=position):
                self.position = position
            case TunnelCaughtUp(place=place):
                self._caught(peer, place)
            case TunnelBlocked(is_blocked=is_blocked):
                self._block(peer, is_blocked, now)
            case TunnelOpened():
                self._open(message, peer)
            case TunnelClosed():
                self._forget(peer)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Close the tunnels whose clients read nothing for too long."""
        for peer in list(self._blocked):
            blocked_s = now - self._tunnels[peer].blocked_at
            if blocked_s < self._stall_s_max:
                break  # the others are blocked for less
            self._dismiss(
                peer, f"slow: the client read nothing for {blocked_s:.0f} s; resume from the last checkpoint"
            )

    def next_deadline(self) -> float | None:
        for peer in self._blocked:
            return self._tunnels[peer].blocked_at + self._stall_s_max
        return None

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    # -- opening and closing

    def refusal(self, address: str) -> str:
        """Why another tunnel from this address can't be opened now, or an empty text."""
        if len(self._tunnels) >= self._tunnels_max:
            return f"the server has {self._tunnels_max} tunnels (http.tunnels_max)"
        if self._by_address.get(address, 0) >= self._per_address_max:
            return f"{address} has {self._per_address_max} tunnels (http.tunnels_per_address_max)"
        return ""

    def _open(self, request: TunnelOpened, peer: Peer) -> None:
        rival = self._by_journal.get(request.journal) if request.journal else None
        if rival is not None:
            # when the old connection times out later, it finds no tunnel
            self._dismiss(rival, "another tunnel was opened on this journal")
        if why := self.refusal(request.address):
            self._effects.append(RefuseTunnel(peer, why))
            return
        if request.journal:
            self._by_journal[request.journal] = peer
        self._by_address[request.address] = self._by_address.get(request.address, 0) + 1
        tunnel = ServedTunnel(
            request.group, request.address, request.journal, ServedTunnelState.BEHIND, request.place
        )
        self._tunnels[peer] = tunnel
        if self._is_at_edge(request.place):
            self._join_edge(peer, tunnel)
        else:
            self._effects.append(ReadJournal(peer, request.place))

    def _is_at_edge(self, place: JournalPlace) -> bool:
        return place.position >= self.position and not place.index

    def _join_edge(self, peer: Peer, tunnel: ServedTunnel) -> None:
        tunnel.go_live()
        self._live.setdefault(tunnel.group, {})[peer] = None

    def _leave_edge(self, peer: Peer, tunnel: ServedTunnel) -> None:
        members = self._live.get(tunnel.group)
        if members is not None:
            members.pop(peer, None)
            if not members:
                del self._live[tunnel.group]

    def _dismiss(self, peer: Peer, why: str) -> None:
        self._forget(peer)
        self._effects.append(CloseTunnel(peer, why))

    def _forget(self, peer: Peer) -> None:
        tunnel = self._tunnels.pop(peer, None)
        if tunnel is None:
            return
        self._leave_edge(peer, tunnel)
        self._blocked.pop(peer, None)
        if self._by_journal.get(tunnel.journal) == peer:
            del self._by_journal[tunnel.journal]
        left = self._by_address[tunnel.address] - 1
        if left:
            self._by_address[tunnel.address] = left
        else:
            del self._by_address[tunnel.address]

    def lose(self, peer: Peer, why: str) -> None:
        """The events that the tunnel has to read next were removed."""
        if peer in self._tunnels:
            self._dismiss(peer, why)

    def lose_at(self, position: int, is_concerned: Callable[[Hashable], bool], why: str) -> None:
        """Events at a position can't be read: close every tunnel of these groups that has still to get them."""
        for peer, tunnel in list(self._tunnels.items()):
            is_live = tunnel.state is ServedTunnelState.LIVE
            place = self.position if is_live else tunnel.place.position
            if place <= position and is_concerned(tunnel.group):
                self._dismiss(peer, why)

    # -- pace

    def _block(self, peer: Peer, is_blocked: bool, now: float) -> None:
        tunnel = self._tunnels.get(peer)
        edge = JournalPlace(self._epoch, self.position)
        if tunnel is None or not tunnel.set_blocked(is_blocked, edge, now):
            return
        if is_blocked:
            self._leave_edge(peer, tunnel)
            self._blocked[peer] = None
        else:
            self._blocked.pop(peer, None)
            self._effects.append(ReadJournal(peer, tunnel.place))

    def _caught(self, peer: Peer, place: JournalPlace) -> None:
        tunnel = self._tunnels.get(peer)
        if tunnel is None:
            return
        state = tunnel.catch_up(place, self._is_at_edge(place))
        if state is ServedTunnelState.LIVE:
            self._join_edge(peer, tunnel)
        elif state is ServedTunnelState.BEHIND:
            self._effects.append(ReadJournal(peer, place))


_: type[Machine[Input, Effect]] = TunnelServer
