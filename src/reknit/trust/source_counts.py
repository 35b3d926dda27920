"""How many sources each identity has: those that it owns, and the topics on which it publishes through gateways."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reknit.config.quotas import Quotas, exceeded
from reknit.trust.refusals import Refusals


class SourceCounts:
    """Counts sources where there is a quota for them. A gateway has one source for a topic, whoever publishes there.

    >>> owners = {b"1": "ann"}
    >>> counts = SourceCounts(Quotas(["ann sources=2"]), Refusals())
    >>> counts.follow(lambda: owners)
    >>> counts.publishes("ann", "plant/a"), counts.publishes("ann", "plant/a"), counts.publishes("bob", "plant/b")
    ('', '', '')
    >>> counts.publishes("ann", "plant/b")
    'ann has as many sources as allowed (2): security.quotas'
    """

    def __init__(self, quotas: Quotas, refusals: Refusals) -> None:
        self._quotas = quotas
        self._refusals = refusals
        self._owners: Callable[[], Mapping[bytes, str]] = dict
        self._topics: dict[str, set[str]] = {}
        """By identity: the topics on which it has published through gateways since the node started."""

    def follow(self, owners: Callable[[], Mapping[bytes, str]]) -> None:
        """The owners of sources are these."""
        self._owners = owners

    def objection(self, who: str) -> str:
        """Why an identity may not have another source; empty if it may."""
        limit = self._quotas.of(who).sources
        return exceeded(who, "sources", limit) if limit and self._count(who) >= limit else ""

    def publishes(self, who: str, topic: str, events: int = 1) -> str:
        """An identity publishes on a topic through a gateway. Returns why it may not; empty if it may."""
        if not self._quotas.of(who).sources or topic in self._topics.get(who, ()):
            return ""
        if why := self.objection(who):
            self._refusals.count(who, "quota", why, events)
            return why
        self._topics.setdefault(who, set()).add(topic)
        return ""

    def _count(self, who: str) -> int:
        owned = sum(owner == who for owner in self._owners().values())
        return owned + len(self._topics.get(who, ()))
