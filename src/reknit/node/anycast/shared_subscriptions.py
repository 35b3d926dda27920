"""Subscriptions over connections that share events with others: each is a path of anycast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reknit.errors import InvalidTopic
from reknit.node.anycast.distributions import JOURNAL
from reknit.node.peers.peers import PeerState
from reknit.outcome import Code
from reknit.protocol.anycast.inputs import Attach, Grant, Stall, SubscriberOutcomes
from reknit.topic import Pattern
from reknit.wire.messages import Credit, Settle, Settled, Subscribe, Subscribed, Unsubscribe, Unsubscribed

if TYPE_CHECKING:
    from reknit.node.anycast.anycast import NodeAnycast
    from reknit.node.node import Node


class SharedSubscriptions:
    """All of one node, by (connection, number)."""

    def __init__(self, node: Node, anycast: NodeAnycast) -> None:
        self._node = node
        self._anycast = anycast
        self._patterns: dict[tuple[int, int], Pattern] = {}

    def take(self, item: Credit | Settle | Subscribe | Unsubscribe, peer: PeerState) -> bool:
        """Whether this was for here: about a subscription that shares events with others."""
        key = (peer.id, item.sub)
        if isinstance(item, Subscribe):
            return self._anycast.distributions.is_on and self._subscribe(item, peer)
        if key not in self._patterns:
            return False
        match item:
            case Credit(total=total):
                self._anycast.give(Grant(total), key)
            case Settle(number=number, rows=rows):
                streams = self._anycast.streams
                self._anycast.give(SubscriberOutcomes(streams.checked(rows) if streams.topics else rows), key)
                peer.send(Settled(item.sub, number))
            case Unsubscribe():
                self._drop(key, is_clean=True)
                peer.send(Unsubscribed(item.sub, is_forgotten=item.forget))
        return True

    def _subscribe(self, request: Subscribe, peer: PeerState) -> bool:
        try:
            if self._watches(request):
                return False
        except InvalidTopic:
            return False
        problem = self._problem(request, peer)
        if problem is not None:
            peer.send(Unsubscribed(request.sub, *problem))
            return True
        key, pattern = (peer.id, request.sub), Pattern(request.pattern)
        peer.send(Subscribed(request.sub, self._node.journal.end, False, is_shared=True))
        self._patterns[key] = pattern
        self._anycast.attach(key, Attach(pattern, "bytes", request.credit, str(peer), request.takes_streams))
        return True

    def _watches(self, request: Subscribe) -> bool:
        """Whether it is to get every event from the journal. Raises `InvalidTopic`."""
        start = request.start
        is_past = start.history or start.position is not None or start.checkpoint is not None
        return bool(request.name) or is_past or self._anycast.distribution(request.pattern) == JOURNAL

    def _problem(self, request: Subscribe, peer: PeerState) -> tuple[Code, str] | None:
        if (peer.id, request.sub) in self._patterns:
            return Code.ALREADY_EXISTS, f"subscription {request.sub} is there already on this connection"
        subscriptions_max = self._node.config.limits.subscriptions_max
        if len(self._patterns) >= subscriptions_max:
            text = f"the node has {subscriptions_max} subscriptions (limits.subscriptions_max)"
            return Code.RESOURCE_EXHAUSTED, text
        return None

    def _drop(self, key: tuple[int, int], is_clean: bool) -> None:
        self._anycast.detach(key, self._patterns.pop(key), is_clean)

    def left(self, peer_id: int) -> None:
        """A connection is gone, with what it had in hand."""
        for key in [key for key in self._patterns if key[0] == peer_id]:
            self._drop(key, is_clean=False)

    def blocked(self, peer_id: int, is_blocked: bool) -> None:
        """A connection takes nothing for now, or takes something again."""
        for key in self._patterns:
            if key[0] == peer_id:
                self._anycast.give(Stall(is_blocked), key)
