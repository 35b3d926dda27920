"""How much memory the peers of a node may take: what was sent to them and not taken yet, and what they sent in part.

    one peer has more than half of its share   its requests wait until it reads
    one peer has more than its share           its connection is closed before more is sent to it
    all peers have more than their budget      the connection of the peer with the most is closed
    those of an identity have more than its    the same, among these
      quota (`waiting_bytes`)

Where there are permissions, a peer that presented neither a token nor a certificate has a quarter of the budget that all
such peers share. So does a peer that has not introduced itself yet. Clients of the HTTP and AMQP gateways are in the
same budget; what waits for them is looked at with every round of housekeeping.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from reknit.config import LimitSettings
from reknit.config.quotas import Quotas
from reknit.outcome import Code

ANONYMOUS_PART: Final = 4
"""The budget of all unauthenticated peers is this many shares."""


class BudgetedPeer(Protocol):
    """A peer, as the budget sees it."""

    @property
    def held_bytes(self) -> int:
        """What is held for it now."""

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody knows who it is, though that matters here."""

    @property
    def quota_name(self) -> str:
        """The identity whose quotas it uses."""

    @property
    def is_leaving(self) -> bool:
        """Whether its connection is being closed."""

    def end(self, code: Code, text: str) -> None:
        """Close its connection at once, and drop what it was sent."""


class PeerBudget:
    """The memory that the peers of one node take. It asks only those whose connections are full."""

    def __init__(self, limits: LimitSettings | None = None, quotas: Quotas | None = None) -> None:
        self._limits = limits or LimitSettings()
        self._quotas = quotas if quotas is not None and quotas.limits("waiting_bytes") else None
        self._held: dict[BudgetedPeer, int] = {}
        self._total = 0
        self._clients: set[BudgetedPeer] = set()
        """Those clients of gateways for which something was held at the last review."""

    @property
    def total(self) -> int:
        """What is held for all peers, as of the last look at each."""
        return self._total

    def share(self, peer: BudgetedPeer) -> int:
        """How much may be held for one peer."""
        limits = self._limits
        if peer.is_anonymous:
            return min(limits.peer_bytes_max, limits.anonymous_bytes_max // ANONYMOUS_PART)
        return limits.peer_bytes_max

    def is_short(self, peer: BudgetedPeer) -> bool:
        """Whether a peer has to read before it is answered further."""
        return peer.held_bytes > self.share(peer) // 2

    def admits(self, peer: BudgetedPeer) -> bool:
        """Whether more may be sent to a peer whose connection is full. If not, its connection was closed."""
        held = self._look(peer)
        if held > self.share(peer):
            name = "anonymous_bytes_max" if peer.is_anonymous else "peer_bytes_max"
            self._end(peer, f"it does not read, and {held:,} bytes wait for it (limits.{name})")
            return False
        self._keep_within()
        if self._quotas is not None:
            self._keep_quota(peer.quota_name, self._quotas)
        return not peer.is_leaving

    def review(self, peers: Iterable[BudgetedPeer]) -> None:
        """Look at all peers: their queues may be shorter by now, and parts of messages have arrived."""
        for peer in peers:
            self._look(peer)
        self._keep_all_within()

    def review_clients(self, clients: Iterable[BudgetedPeer]) -> None:
        """Look at the clients of gateways. One that has more than its share is closed; those that are gone are not
        in `clients`."""
        found = set(clients)
        for gone in self._clients - found:
            self.forget(gone)
        self._clients = found
        for client in found:
            self.admits(client)

    def _keep_all_within(self) -> None:
        self._keep_within()
        if self._quotas is not None:
            for name in sorted({peer.quota_name for peer in self._held}):
                self._keep_quota(name, self._quotas)

    def forget(self, peer: BudgetedPeer) -> None:
        """A peer is gone."""
        self._total -= self._held.pop(peer, 0)

    def _look(self, peer: BudgetedPeer) -> int:
        held = peer.held_bytes
        self._total += held - self._held.pop(peer, 0)
        if held:
            self._held[peer] = held
        return held

    def _keep_within(self) -> None:
        limits = self._limits
        if self._total > limits.anonymous_bytes_max:
            anonymous = [peer for peer in self._held if peer.is_anonymous]
            self._shed(anonymous, limits.anonymous_bytes_max, "limits.anonymous_bytes_max")
        if self._total > limits.peers_bytes_max:
            self._shed(list(self._held), limits.peers_bytes_max, "limits.peers_bytes_max")

    def _keep_quota(self, name: str, quotas: Quotas) -> None:
        bytes_max = quotas.of(name).waiting_bytes
        if bytes_max and self._total > bytes_max:
            theirs = [peer for peer in self._held if peer.quota_name == name]
            self._shed(theirs, bytes_max, f"security.quotas: {name} waiting_bytes={bytes_max}")

    def _shed(self, peers: list[BudgetedPeer], bytes_max: int, name: str) -> None:
        """Close the connections of those with the most, until the others are within their budget."""
        total = sum(self._held[peer] for peer in peers)
        for peer in sorted(peers, key=self._held.__getitem__, reverse=True):
            if total <= bytes_max:
                return
            held = self._held[peer]
            text = f"{total:,} bytes wait for peers, most of them ({held:,}) for this one ({name})"
            self._end(peer, text)
            total -= held

    def _end(self, peer: BudgetedPeer, text: str) -> None:
        self.forget(peer)
        peer.end(Code.RESOURCE_EXHAUSTED, text)
