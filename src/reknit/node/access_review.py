"""Ends what the peers of a node may no longer do, when the rules have changed. Everything else goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reknit.node.anycast.anycast import NodeAnycast
from reknit.node.core.core import Core
from reknit.node.links.links import Links
from reknit.node.peers.peers import Peers, PeerState
from reknit.node.peers.permissions import Permissions
from reknit.outcome import Code
from reknit.protocol.queues.queue import QueueKey


class AccessReview:
    """The review of one node: `run` is called by its gate."""

    def __init__(
        self,
        *,
        core: Core,
        anycast: NodeAnycast,
        links: Links,
        peers: Peers,
        permissions: Permissions,
        clock: Callable[[], float],
    ) -> None:
        self._core = core
        self._anycast = anycast
        self._links = links
        self._peers = peers
        self._permissions = permissions
        self._clock = clock

    def run(self) -> None:
        """Look at every peer, with its subscriptions, offers and streams."""
        self._core.intake.rights_changed()
        for peer in self._peers:
            if peer.id in self._links and not self._permissions.may_link(peer):
                text = f"{peer.identity} may no longer link to this node (security.allow)"
                peer.dismiss(Code.PERMISSION_DENIED, text)
        for key, pattern, name in list(self._subscriptions()):
            owner = self._peer(key)
            if owner is not None and (why := self._permissions.subscription_objection(owner, pattern, name)):
                self._end(key, f"{why} (the rules have changed)")
        self._core.recovery.caches.withdraw(self._permissions.may_offer)
        self._anycast.streams.end_refused(self._permissions.may_stream)

    def _subscriptions(self) -> Iterator[tuple[QueueKey, str, str]]:
        """Every subscription: its key, its pattern and its durable name."""
        yield from self._core.openings.all()
        yield from ((key, pattern.text, "") for key, pattern in self._anycast.subscriptions.patterns.items())

    def _peer(self, key: QueueKey) -> PeerState | None:
        return self._peers.get(key[0])

    def _end(self, key: QueueKey, text: str) -> None:
        if not self._anycast.subscriptions.end(key, Code.PERMISSION_DENIED, text):
            self._core.end_subscription(key, Code.PERMISSION_DENIED, text, self._clock())
