"""The quotas of identities for the clients of a gateway: what they have there counts as what they have elsewhere."""

from __future__ import annotations

from typing import Final

from reknit.node.core.core_quotas import CoreQuotas
from reknit.trust.source_counts import SourceCounts

RETRY_AFTER_S: Final = 10
"""When a client that is refused for what it has may try again: something of it may have ended by then."""


class ClientQuotas:
    """Counts subscriptions and sources. Without quotas it does nothing."""

    def __init__(self, quotas: CoreQuotas | None, sources: SourceCounts) -> None:
        self._quotas = quotas
        self._sources = sources

    def subscribe(self, who: str, name: str = "") -> str:
        """Somebody opens a subscription, durable if it has a name. Returns why they may not; empty if they may."""
        return "" if self._quotas is None else self._quotas.client_subscribes(who, name)

    def unsubscribe(self, who: str) -> None:
        """A subscription that was counted has ended."""
        if self._quotas is not None:
            self._quotas.client_unsubscribed(who)

    def publish(self, who: str, topic: str, events: int = 1) -> str:
        """Somebody publishes so many events on a topic. Returns why they may not; empty if they may."""
        return "" if self._quotas is None else self._sources.publishes(who, topic, events)
