"""Nodes that come back with an older copy of their disk, or an empty one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reknit.protocol.subscribe.series_progress import SeriesProgress
from reknit.testing.fabric.plans.plan import FabricPlan, Shape
from reknit.testing.fabric.run import run

PLAN = FabricPlan(seed=0, nodes=1, replace_rate=0.4, empty_share=0.0, down_s_max=1.0)
ROUGH = replace(
    PLAN,
    empty_share=0.5,
    ephemerals=2,
    release=0.5,
    reject=0.2,
    reset_rate=0.5,
    crash_rate=0.3,
    program_crash_rate=0.3,
)


def test_a_restored_node_delivers_what_it_forgot_and_reports_what_it_lost() -> None:
    assert run(4, plan=replace(PLAN, seed=4)).problems == []


@pytest.mark.parametrize("shape", ["mesh", "star"])
def test_the_other_nodes_of_a_fabric_lose_nothing(shape: Shape) -> None:
    for seed in (7, 35):
        plan = replace(ROUGH, seed=seed, nodes=4, shape=shape)
        assert run(seed, plan=plan).problems == []


def test_events_that_a_subscriber_drops_as_known_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeriesProgress, "forget", lambda self: None)
    assert any("ledgers_balance" in problem for problem in run(4, plan=replace(PLAN, seed=4)).problems)
