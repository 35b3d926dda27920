"""The pace of a gateway's clients: the quotas for publishing, for those who enter the node through a gateway."""

from __future__ import annotations

import asyncio
import math

from reknit.protocol.publish.rate_quotas import RateQuotas


class PublishPace:
    """Counts what the clients of a gateway publish for the quota of their identity. Without quotas it does nothing."""

    def __init__(self, rates: RateQuotas | None) -> None:
        self._rates = rates
        self._now = asyncio.get_running_loop().time

    def charge(self, who: str, events: int, size: int) -> float:
        """An identity published; returns for how many seconds it has to wait now."""
        if self._rates is None:
            return 0.0
        self._rates.charge(who, events, size, self._now())
        delay_s = self.delay_s(who)
        if delay_s > 0:
            self._rates.waited(who)
        return delay_s

    def delay_s(self, who: str) -> float:
        """For how many seconds an identity has to wait; 0 if it may publish."""
        if self._rates is None:
            return 0.0
        now = self._now()
        return self._rates.ready(who, now)[0] - now

    def retry_after_s(self, who: str) -> int:
        """In how many whole seconds an identity may publish again; 1 at least."""
        return max(1, math.ceil(self.delay_s(who)))

    async def wait(self, who: str, events: int, size: int, wait_s_max: float) -> str:
        """Wait until an identity may publish, and count that it does. Returns why it may not in this time, if so."""
        if self._rates is None:
            return ""
        until = self._now() + wait_s_max
        while (delay_s := self.delay_s(who)) > 0:
            if self._now() + delay_s > until:
                self._rates.waited(who)
                quota = self._rates.ready(who, self._now())[1]
                return f"{who} has published as much as allowed ({quota}): security.quotas"
            await asyncio.sleep(delay_s)
        self._rates.charge(who, events, size, self._now())
        return ""
