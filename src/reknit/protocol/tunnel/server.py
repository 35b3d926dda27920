"""A server's tunnels: who is at the live edge and gets the same bytes as everyone there, who is behind and reads
the journal at its own pace, and who has to go.

A tunnel that does not take what it is sent falls behind and costs a cursor, not a queue. One that takes nothing
for too long is closed with a reason, and can go on later from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, assert_never

import msgspec

from reknit.protocol.machine import Peer
from reknit.protocol.tunnel.place import Place


class State(Enum):
    """Where a tunnel is."""

    LIVE = "live"
    """It has everything up to the live edge, and gets what comes."""
    BEHIND = "behind"
    """It reads what it missed."""
    BLOCKED = "blocked"
    """Its buffer is full: it gets nothing until that drains."""


class Open(msgspec.Struct, frozen=True):
    """A tunnel was granted a place. Tunnels of one `group` get the same bytes."""

    group: Hashable
    address: str
    place: Place
    journal: str = ""
    """The client's journal that it is on: only one tunnel may be."""


class Closed(msgspec.Struct, frozen=True):
    """The tunnel's connection is gone."""


class Blocked(msgspec.Struct, frozen=True):
    """The tunnel's buffer is full, or has room again."""

    is_blocked: bool


class Grown(msgspec.Struct, frozen=True):
    """The live edge moved: whoever is live has been or is being sent what is before it."""

    position: int


class Caught(msgspec.Struct, frozen=True):
    """A tunnel that was behind has been or is being sent what is before this place."""

    place: Place


Input = Open | Closed | Blocked | Grown | Caught


class Read(msgspec.Struct, frozen=True):
    """Send the tunnel what follows this place, then tell with `Caught`."""

    peer: Peer
    place: Place


class Close(msgspec.Struct, frozen=True):
    """Tell the tunnel why, and close it."""

    peer: Peer
    why: str


class Refuse(msgspec.Struct, frozen=True):
    """The tunnel can't be opened now, and why."""

    peer: Peer
    why: str


Effect = Read | Close | Refuse

TRANSITIONS: Final[dict[tuple[State, type[Any], bool], State]] = {
    (State.LIVE, Blocked, True): State.BLOCKED,
    (State.BEHIND, Blocked, True): State.BLOCKED,
    (State.BLOCKED, Blocked, False): State.BEHIND,
    (State.BEHIND, Caught, False): State.BEHIND,
    (State.BEHIND, Caught, True): State.LIVE,  # it reached the live edge
    (State.BLOCKED, Caught, False): State.BLOCKED,
    (State.BLOCKED, Caught, True): State.BLOCKED,
}


@dataclass(slots=True, eq=False)
class Tunnel:
    """One tunnel, as the machine knows it."""

    group: Hashable
    address: str
    journal: str
    state: State
    place: Place
    """Behind what it was sent; of a live one it is the live edge."""
    blocked_at: float = 0.0


class TunnelServer:
    """All tunnels of one node.

    >>> server = TunnelServer("a1", position=64)
    >>> server.receive(Open("simple what/chat", "10.0.0.7", Place("a1", 64)), "ann", 0.0)
    >>> server.live("simple what/chat")
    {'ann': None}
    >>> server.receive(Open("simple what/chat", "10.0.0.7", Place("a1", 0)), "bob", 0.0)
    >>> server.take_effects()
    [Read(peer='bob', place=Place(epoch='a1', position=0, index=0))]
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
        self._tunnels: dict[Peer, Tunnel] = {}
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
        """Who is at the live edge of a group, oldest first."""
        return self._live.get(group, {})

    def groups(self) -> list[Hashable]:
        """The groups that have somebody at the live edge."""
        return list(self._live)

    def tunnel(self, peer: Peer) -> Tunnel | None:
        return self._tunnels.get(peer)

    def counts(self) -> dict[str, int]:
        """How many tunnels there are in each state."""
        live = sum(map(len, self._live.values()))
        blocked = len(self._blocked)
        return {"live": live, "behind": len(self._tunnels) - live - blocked, "blocked": blocked}

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """About a tunnel, or from the journal."""
        match message:
            case Grown(position=position):
                self.position = position
            case Caught(place=place):
                self._caught(peer, place)
            case Blocked(is_blocked=is_blocked):
                self._block(peer, is_blocked, now)
            case Open():
                self._open(message, peer)
            case Closed():
                self._forget(peer)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Close those that took nothing for too long."""
        for peer in list(self._blocked):
            blocked_s = now - self._tunnels[peer].blocked_at
            if blocked_s < self._stall_s_max:
                break  # the others are blocked for less
            self._dismiss(
                peer, f"slow: it took nothing for {blocked_s:.0f} s; go on from the last checkpoint"
            )

    def next_deadline(self) -> float | None:
        for peer in self._blocked:
            return self._tunnels[peer].blocked_at + self._stall_s_max
        return None

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- opening and closing

    def refusal(self, address: str) -> str:
        """Why one more tunnel from this address can't be opened now, or nothing."""
        if len(self._tunnels) >= self._tunnels_max:
            return f"the server has {self._tunnels_max} tunnels (http.tunnels_max)"
        if self._by_address.get(address, 0) >= self._per_address_max:
            return f"{address} has {self._per_address_max} tunnels (http.tunnels_per_address_max)"
        return ""

    def _open(self, request: Open, peer: Peer) -> None:
        rival = self._by_journal.get(request.journal) if request.journal else None
        if rival is not None:
            # the old connection's later timeout finds no tunnel, and changes nothing
            self._dismiss(rival, "another tunnel was opened on this journal")
        if why := self.refusal(request.address):
            self._effects.append(Refuse(peer, why))
            return
        if request.journal:
            self._by_journal[request.journal] = peer
        self._by_address[request.address] = self._by_address.get(request.address, 0) + 1
        tunnel = Tunnel(request.group, request.address, request.journal, State.BEHIND, request.place)
        self._tunnels[peer] = tunnel
        if self._is_at_edge(request.place):
            self._join(peer, tunnel)
        else:
            self._effects.append(Read(peer, request.place))

    def _is_at_edge(self, place: Place) -> bool:
        return place.position >= self.position and not place.index

    def _join(self, peer: Peer, tunnel: Tunnel) -> None:
        tunnel.state = State.LIVE
        self._live.setdefault(tunnel.group, {})[peer] = None

    def _part(self, peer: Peer, tunnel: Tunnel) -> None:
        members = self._live.get(tunnel.group)
        if members is not None:
            members.pop(peer, None)
            if not members:
                del self._live[tunnel.group]

    def _dismiss(self, peer: Peer, why: str) -> None:
        self._forget(peer)
        self._effects.append(Close(peer, why))

    def _forget(self, peer: Peer) -> None:
        tunnel = self._tunnels.pop(peer, None)
        if tunnel is None:
            return
        self._part(peer, tunnel)
        self._blocked.pop(peer, None)
        if self._by_journal.get(tunnel.journal) == peer:
            del self._by_journal[tunnel.journal]
        left = self._by_address[tunnel.address] - 1
        if left:
            self._by_address[tunnel.address] = left
        else:
            del self._by_address[tunnel.address]

    def lose(self, peer: Peer, why: str) -> None:
        """What the tunnel has to read next is not there any more."""
        if peer in self._tunnels:
            self._dismiss(peer, why)

    # -- pace

    def _block(self, peer: Peer, is_blocked: bool, now: float) -> None:
        tunnel = self._tunnels.get(peer)
        if tunnel is None:
            return
        state = TRANSITIONS.get((tunnel.state, Blocked, is_blocked))
        if state is None:
            return
        if tunnel.state is State.LIVE:
            tunnel.place = Place(self._epoch, self.position)
            self._part(peer, tunnel)
        tunnel.state = state
        if is_blocked:
            tunnel.blocked_at = now
            self._blocked[peer] = None
        else:
            self._blocked.pop(peer, None)
            self._effects.append(Read(peer, tunnel.place))

    def _caught(self, peer: Peer, place: Place) -> None:
        tunnel = self._tunnels.get(peer)
        if tunnel is None:
            return
        tunnel.place = place
        state = TRANSITIONS.get((tunnel.state, Caught, self._is_at_edge(place)))
        if state is State.LIVE:
            self._join(peer, tunnel)
        elif state is State.BEHIND:
            self._effects.append(Read(peer, place))
