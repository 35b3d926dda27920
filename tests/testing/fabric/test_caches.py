"""Caches that lie or hang, subscribers that leave in mid-delivery, and clocks that drift."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reknit.protocol.recovery.cache_requests import OpenRequest
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import run

LIARS = FabricPlan(seed=1, nodes=2, run_s=3.0, liars=2, recoverers=2)
QUITTERS = FabricPlan(
    seed=3, nodes=2, run_s=3.0, senders=1, workers=3, release=0.3, reject=0.1, quit_share=0.1, drift_max=0.2
)


def test_caches_that_lie_or_hang_change_nobodys_result() -> None:
    plan = replace(LIARS, reset_rate=0.5, crash_rate=0.3, program_crash_rate=0.3)
    assert run(1, plan=plan).problems == []


def test_events_that_nobody_asked_for_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber took whatever a cache sent, and learned of topics that it never subscribed to."""
    monkeypatch.setattr(OpenRequest, "asked_for", lambda self, head: True)
    monkeypatch.setattr(OpenRequest, "asked_about", lambda self, span: True)
    assert any("a lie" in problem for problem in run(1, plan=LIARS).problems)


@pytest.mark.parametrize("seed", range(3))
def test_subscribers_and_workers_leave_in_mid_delivery(seed: int) -> None:
    assert run(seed, plan=replace(QUITTERS, seed=seed)).problems == []


def test_a_clock_drifts_without_a_step() -> None:
    with Fabric(seed=1) as fabric:
        host = fabric.host("a")
        fabric.loop.now = 100.0
        before = host.time_us()
        host.drift_clock(0.1)
        assert host.time_us() == before
        fabric.loop.now = 110.0
        assert host.time_us() == pytest.approx(before + 11e6, abs=2)
        host.drift_clock(-0.1)
        fabric.loop.now = 120.0
        assert host.time_us() == pytest.approx(before + 20e6, abs=4)
