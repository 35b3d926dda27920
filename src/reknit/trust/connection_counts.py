"""How many connections each identity has, at all doors together."""

from __future__ import annotations

from reknit.config.quotas import Quotas, exceeded
from reknit.trust.refusals import Refusals


class ConnectionCounts:
    """Counts connections where there is a quota for them.

    >>> counts = ConnectionCounts(Quotas(["ann connections=1"]), Refusals())
    >>> counts.enter("ann"), counts.enter("bob"), counts.enter("ann")
    ('', '', 'ann has as many connections as allowed (1): security.quotas')
    >>> counts.leave("ann"), counts.enter("ann")
    (None, '')
    """

    def __init__(self, quotas: Quotas, refusals: Refusals) -> None:
        self._quotas = quotas
        self._refusals = refusals
        self.is_on = quotas.limits("connections")
        self._counts: dict[str, int] = {}

    def enter(self, who: str, address: str = "") -> str:
        """Somebody connects. Returns why they may not; empty if they may, and `leave` is called later."""
        limit = self._quotas.of(who).connections
        if not limit:
            return ""
        count = self._counts.get(who, 0)
        if count >= limit:
            text = exceeded(who, "connections", limit)
            self._refusals.count(who, "quota", text, address=address)
            return text
        self._counts[who] = count + 1
        return ""

    def leave(self, who: str) -> None:
        """A connection that was counted is gone."""
        count = self._counts.get(who, 0) - 1
        if count > 0:
            self._counts[who] = count
        else:
            self._counts.pop(who, None)

    def totals(self) -> dict[str, int]:
        """The connections of everybody who has a quota for them."""
        return dict(self._counts)
