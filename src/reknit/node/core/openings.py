"""Opens subscriptions: whether a peer may have one, and where it begins, before the dispatcher takes it over.

Where it begins may take long to find. Such a search goes on a step at a time, so nobody waits for it: peers take turns,
and the searches of one peer follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from reknit.config import Config
from reknit.errors import LocalError
from reknit.node.core.core_quotas import CoreQuotas
from reknit.node.core.queue_homes import objection
from reknit.node.core.shell import Edge
from reknit.node.core.start_position import WAIT, Steps, resolve
from reknit.outcome import Code
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.dispatch.inputs import OpenSubscription
from reknit.protocol.machine import Peer
from reknit.protocol.queues.queue import QueueKey
from reknit.store.journal import Journal
from reknit.wire.messages import Message, Subscribe, Unsubscribed

STEP: Final = 2_000
"""How much a search may cost before others have their turn: some milliseconds."""
WAIT_S: Final = 0.02
"""How long a search waits for the journal."""


class Search(msgspec.Struct):
    """Looks for the start of one subscription."""

    request: Subscribe
    steps: Steps
    owner: str
    """The identity for which a gateway opens it; empty: that of the peer."""

    def step(self, budget: int) -> tuple[OpenSubscription | None, bool]:
        """Go on for a while. Gives what was found, if that is all, and whether it waits for the journal.

        Raises `LocalError` if there is no such start.
        """
        while budget > 0:
            try:
                cost = next(self.steps)
            except StopIteration as end:
                found: OpenSubscription = end.value
                return found, False
            if cost == WAIT:
                return None, True
            budget -= cost
        return None, False


class Openings:
    """Every subscription of a node that the dispatcher does not know yet."""

    def __init__(
        self,
        *,
        config: Config,
        journal: Journal,
        epoch: str,
        dispatch: Dispatcher,
        quotas: CoreQuotas | None,
        edge: Edge | None,
        queue_elsewhere: Callable[[str], str],
        say: Callable[[Peer, Message], None],
        now_us: Callable[[], int],
    ) -> None:
        self.claims: dict[str, str] = {}
        """By name of a durable subscriber that a gateway is about to open: the identity that it is for."""
        self.step_cost = STEP
        self._config = config
        self._journal = journal
        self._epoch = epoch
        self._dispatch = dispatch
        self._quotas = quotas
        self._edge = edge
        self._queue_elsewhere = queue_elsewhere
        self._say = say
        self._now_us = now_us
        self._searches: dict[Peer, dict[int, Search]] = {}
        """By peer, in the order of their turns, and by number of the subscription."""
        self._due = 0.0
        if quotas is not None:
            quotas.count_in(lambda: (key for key, _ in dispatch.registry.subscriptions()))
            quotas.count_in(lambda: (key for key, _, _ in self._all()))

    # -- asked for

    def subscribe(self, request: Subscribe, peer: Peer, now: float) -> None:
        """A peer wants a subscription."""
        owner = self.claims.pop(request.account, "")
        if refusal := self._refusal(request, peer):
            self._say(peer, Unsubscribed(request.sub, *refusal))
            return
        search = Search(request, resolve(request, self._journal, self._epoch, self._now_us), owner)
        if not self._step(search, peer, now):
            self._searches.setdefault(peer, {})[request.sub] = search

    def _refusal(self, request: Subscribe, peer: Peer) -> tuple[Code, str] | None:
        """Why a peer can't have a subscription, if it can't."""
        subscriptions_max = self._config.limits.subscriptions_max
        count = self._dispatch.registry.subscription_count + sum(map(len, self._searches.values()))
        if count >= subscriptions_max:
            text = f"the node has {subscriptions_max} subscriptions (limits.subscriptions_max)"
            return Code.RESOURCE_EXHAUSTED, text
        if self._quotas is not None and (text := self._quotas.subscribing(request, peer)):
            return Code.RESOURCE_EXHAUSTED, text
        if request.sub in self._searches.get(peer, ()):
            text = f"subscription {request.sub} exists already on this connection: use another number"
            return Code.ALREADY_EXISTS, text
        return objection(request, self._queue_elsewhere)

    # -- looked for

    def tick(self, now: float) -> Peer | None:
        """A step for the peer whose turn it is. Returns the peer if its subscription was opened, or refused."""
        if not self._searches or now < self._due:
            return None
        peer = next(iter(self._searches))
        mine = self._searches[peer] = self._searches.pop(peer)
        search = next(iter(mine.values()))
        self._due = now
        if not self._step(search, peer, now):
            return None
        self.end((peer, search.request.sub))
        return peer

    def next_deadline(self) -> float | None:
        """When the next step is due."""
        return self._due if self._searches else None

    def _step(self, search: Search, peer: Peer, now: float) -> bool:
        """Go on with a search; returns whether it is over."""
        request = search.request
        try:
            found, is_waiting = search.step(self.step_cost)
        except LocalError as error:
            self._say(peer, Unsubscribed(request.sub, Code.INVALID_ARGUMENT, str(error)))
            return True
        if found is None:
            if is_waiting and len(self._searches) <= 1:
                self._due = now + WAIT_S
            return False
        owner = search.owner
        if request.account and self._edge is not None:
            owner = owner or self._edge.owner(peer, request.pattern)
        self._dispatch.receive(msgspec.structs.replace(found, owner=owner) if owner else found, peer, now)
        return True

    # -- not wanted any more

    def end(self, key: QueueKey) -> bool:
        """A subscription is not wanted any more. Returns whether its start was being looked for."""
        mine = self._searches.get(key[0], {})
        if mine.pop(key[1], None) is None:
            return False
        if not mine:
            del self._searches[key[0]]
        return True

    def left(self, peer: Peer) -> None:
        """A connection is gone."""
        self._searches.pop(peer, None)

    def all(self) -> Iterator[tuple[QueueKey, str, str]]:
        """Every subscription of the node, also one that is not open yet: its key, its pattern and its durable name."""
        yield from self._all()
        yield from self._dispatch.subscribers.all()

    def _all(self) -> Iterator[tuple[QueueKey, str, str]]:
        for peer, searches in self._searches.items():
            for sub, one in searches.items():
                yield (peer, sub), one.request.pattern, one.request.account
