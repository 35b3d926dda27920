"""Subscriptions over connections that share events with others: each is a path of anycast."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reknit.config import Config
from reknit.errors import InvalidTopic
from reknit.node.anycast.distributions import JOURNAL, Distributions
from reknit.node.anycast.local_paths import LocalPaths
from reknit.node.anycast.promises import SubscriptionKey
from reknit.node.core.core_quotas import CoreQuotas
from reknit.node.streams.streams import NodeStreams
from reknit.outcome import Code
from reknit.protocol.anycast.inputs import Attach, Grant, Stall, SubscriberOutcomes
from reknit.protocol.machine import Peer
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.wire.messages import (
    Credit,
    Message,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)


class SharedSubscriptions:
    """All shared subscriptions of one node, by (connection, number)."""

    def __init__(
        self,
        *,
        config: Config,
        journal: Journal,
        distributions: Distributions,
        paths: LocalPaths,
        streams: NodeStreams,
        say: Callable[[Peer, Message], None],
        quotas: CoreQuotas | None = None,
    ) -> None:
        self._quotas = quotas
        if quotas is not None:
            quotas.count_in(lambda: self._patterns)
        self._subscriptions_max = config.limits.subscriptions_max
        self._journal = journal
        self._distributions = distributions
        self._paths = paths
        self._streams = streams
        self._say = say
        self._patterns: dict[SubscriptionKey, Pattern] = {}
        self.settled: dict[SubscriptionKey, int] = {}
        """The last `Settle` of each subscription that is not confirmed yet."""

    def __len__(self) -> int:
        return len(self._patterns)

    def take(self, item: Credit | Settle | Subscribe | Unsubscribe, peer: Peer, peer_name: str) -> bool:
        """Take a message about a subscription that shares events with others; returns whether it was one."""
        key = (peer, item.sub)
        if isinstance(item, Subscribe):
            return self._distributions.is_on and self._subscribe(item, peer, peer_name)
        if key not in self._patterns:
            return False
        match item:
            case Credit(total=total, is_paused=is_paused):
                self._paths.give(Grant(0 if is_paused else total), key)
            case Settle(number=number, rows=rows):
                checked = self._streams.checked(rows) if self._streams.topics else rows
                self._paths.give(SubscriberOutcomes(checked), key)
                self.settled[key] = number
            case Unsubscribe():
                self._drop(key, is_clean=True)
                self._say(peer, Unsubscribed(item.sub, is_forgotten=item.forget))
        return True

    @property
    def patterns(self) -> Mapping[SubscriptionKey, Pattern]:
        """The topics of each subscription."""
        return self._patterns

    def end(self, key: SubscriptionKey, code: Code, text: str) -> bool:
        """The node ends a subscription, and says why; returns whether it was one that shares events."""
        if key not in self._patterns:
            return False
        self._drop(key, is_clean=True)
        self._say(key[0], Unsubscribed(key[1], code, text))
        return True

    def _subscribe(self, request: Subscribe, peer: Peer, peer_name: str) -> bool:
        try:
            if self._reads_journal(request):
                return False
        except InvalidTopic:
            return False
        problem = self._problem(request, peer)
        if problem is not None:
            self._say(peer, Unsubscribed(request.sub, *problem))
            return True
        key, pattern = (peer, request.sub), Pattern(request.pattern)
        self._say(peer, Subscribed(request.sub, self._journal.end, False, is_shared=True))
        self._patterns[key] = pattern
        self._paths.attach(key, Attach(pattern, "bytes", request.credit, peer_name, request.takes_streams))
        return True

    def _reads_journal(self, request: Subscribe) -> bool:
        """Whether the subscription gets every event from the journal. Raises `InvalidTopic`."""
        start = request.start
        is_past = start.history or start.position is not None or start.checkpoint is not None
        if request.account or is_past:
            return True
        return self._distributions.of_all(Pattern(request.pattern)) == JOURNAL

    def _problem(self, request: Subscribe, peer: Peer) -> tuple[Code, str] | None:
        if (peer, request.sub) in self._patterns:
            return (
                Code.ALREADY_EXISTS,
                f"subscription {request.sub} exists already on this connection: use another number",
            )
        if len(self._patterns) >= self._subscriptions_max:
            text = f"the node has {self._subscriptions_max} subscriptions (limits.subscriptions_max)"
            return Code.RESOURCE_EXHAUSTED, text
        if self._quotas is not None and (text := self._quotas.subscribing(request, peer)):
            return Code.RESOURCE_EXHAUSTED, text
        return None

    def take_settled(self) -> dict[SubscriptionKey, int]:
        """The settlements to confirm, once the outcomes in them are durable."""
        settled, self.settled = self.settled, {}
        return settled

    def confirm(self, key: SubscriptionKey, number: int) -> None:
        """The outcomes of a subscription are durable, up to this number."""
        if key in self._patterns:
            self._say(key[0], Settled(key[1], number))

    def _drop(self, key: SubscriptionKey, is_clean: bool) -> None:
        self._paths.detach(key, self._patterns.pop(key), is_clean)

    def left(self, peer: Peer) -> None:
        """A connection is gone, with the events that it did not settle."""
        for key in [key for key in self._patterns if key[0] == peer]:
            self._drop(key, is_clean=False)

    def blocked(self, peer: Peer, is_blocked: bool) -> None:
        """A connection's send buffer is full, or has room again."""
        for key in self._patterns:
            if key[0] == peer:
                self._paths.give(Stall(is_blocked), key)
