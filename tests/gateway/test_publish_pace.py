"""The pace of a gateway's clients, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from reknit.gateway.publish_pace import PublishPace
from reknit.protocol.publish.rate_quotas import RateQuotas, Rates
from reknit.testing.fabric.virtual.loop import VirtualLoop


def run(program: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    loop.run_until_complete(program)
    loop.close()


def quotas() -> RateQuotas:
    return RateQuotas(lambda who: Rates(events=10) if who == "ann" else Rates())


def test_a_request_waits_until_its_identity_may_publish() -> None:
    async def program() -> None:
        pace, now = PublishPace(quotas()), asyncio.get_running_loop().time
        start = now()
        assert await pace.wait("ann", 30, 0, 60.0) == ""
        assert now() == start, "what was not used may be used at once"
        assert await pace.wait("ann", 1, 0, 60.0) == ""
        assert 2.0 <= now() - start <= 2.1, "20 events too many, at 10 a second"
        assert await pace.wait("bob", 1_000_000, 0, 0.0) == ""

    run(program())


def test_a_request_that_would_wait_too_long_is_told_the_quota_and_costs_nothing() -> None:
    async def program() -> None:
        pace = PublishPace(quotas())
        pace.charge("ann", 110, 0)
        for _ in range(5):
            assert "events_per_s=10" in await pace.wait("ann", 50, 0, 5.0)
        assert 9.9 <= pace.delay_s("ann") <= 10.0

    run(program())


def test_without_quotas_nobody_waits() -> None:
    async def program() -> None:
        pace = PublishPace(None)
        assert (pace.charge("ann", 1 << 40, 1 << 40), pace.delay_s("ann")) == (0.0, 0.0)
        assert await pace.wait("ann", 1, 1, 0.0) == ""

    run(program())
