"""The quotas of identities, as the core applies them: to what is published, and to subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reknit.config.quotas import Quotas, exceeded
from reknit.ledger import ANYCAST, Ledger
from reknit.protocol.machine import Peer
from reknit.protocol.publish.rate_quotas import PublishQuotas, RateQuotas, Rates
from reknit.trust.refusals import Refusals
from reknit.trust.rules import ANONYMOUS
from reknit.wire.messages import Subscribe

Who = Callable[[Peer], str]
"""The identity of a peer; empty for the node's own parts, which have no quota."""


OpenSubscriptions = Callable[[], Iterable[tuple[Peer, int]]]
"""The subscriptions that are open: each is a peer and a number."""


class CoreQuotas:
    """Made where there is a quota at all. `publishing` is None where nobody has one for publishing."""

    def __init__(self, quotas: Quotas, who: Who, ledger: Ledger, refusals: Refusals) -> None:
        self._refusals = refusals
        self._quotas = quotas
        self.who = who
        self._ledger = ledger
        self._open: list[OpenSubscriptions] = []
        self._clients: dict[str, int] = {}
        """How many subscriptions the clients of gateways have, by identity."""
        self.rates = RateQuotas(self._rates)
        is_limited = quotas.limits("events_per_s", "bytes_per_s")
        self.publishing = PublishQuotas(self.rates, who) if is_limited else None

    def _rates(self, who: str) -> Rates:
        quota = self._quotas.of(who)
        return Rates(quota.events_per_s, quota.bytes_per_s)

    def count_in(self, open_: OpenSubscriptions) -> None:
        """Count these subscriptions, too."""
        self._open.append(open_)

    def subscribing(self, request: Subscribe, peer: Peer) -> str:
        """Why a peer may not have another subscription; empty if it may."""
        return self._objection(self.who(peer), request.account)

    def client_subscribes(self, who: str, name: str) -> str:
        """A client of a gateway wants a subscription, durable if it has a name. Returns why it may not have it."""
        why = self._objection(who, name)
        if not why:
            self._clients[who] = self._clients.get(who, 0) + 1
        return why

    def client_unsubscribed(self, who: str) -> None:
        """A client of a gateway has ended a subscription."""
        self._clients[who] -= 1
        if not self._clients[who]:
            del self._clients[who]

    def _objection(self, who: str, name: str) -> str:
        """Why an identity may not have another subscription, durable if it has a name; empty if it may."""
        quota = self._quotas.of(who)
        if quota.subscriptions and self._subscriptions(who) >= quota.subscriptions:
            return self._refuse(who, "subscriptions", quota.subscriptions)
        is_new = bool(name) and name not in self._ledger.accounts
        if quota.durable_names and is_new and self._durable_names(who) >= quota.durable_names:
            return self._refuse(who, "durable_names", quota.durable_names)
        return ""

    def _refuse(self, who: str, name: str, limit: int) -> str:
        text = exceeded(who, name, limit)
        self._refusals.count(who, "quota", text)
        return text

    def _subscriptions(self, who: str) -> int:
        native = sum(self.who(peer) == who for open_ in self._open for peer, _ in open_())
        return native + self._clients.get(who, 0)

    def _durable_names(self, who: str) -> int:
        """How many durable subscribers an identity owns. Those without an owner are everybody's who has no name."""
        owners = (who, "") if who == ANONYMOUS else (who,)
        accounts = self._ledger.accounts.items()
        return sum(one.owner in owners for name, one in accounts if not name.startswith(ANYCAST))
