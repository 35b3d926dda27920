"""Nodes beside a fabric: every way of feeding them brings every event, once."""

from __future__ import annotations

import pytest

from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.plans.plan import FabricPlan, Feed
from reknit.testing.fabric.run import FabricSimulation


def simulate(plan: FabricPlan) -> tuple[FabricSimulation, list[str]]:
    with Fabric(plan.seed) as fabric:
        simulation = FabricSimulation(fabric, plan)
        return simulation, fabric.run(simulation.run())


@pytest.mark.parametrize("feed", ["relay", "push", "pull", "align"])
def test_outposts_get_every_event(feed: Feed) -> None:
    plan = FabricPlan(seed=3, nodes=2, publishers=4, lasting_share=1.0, feeds=(feed, "relay"), is_ring=True)
    simulation, problems = simulate(plan)
    record = simulation.scene.record
    assert problems == []
    wanted = {sent.payload for sent in record.sent.values() if sent.topic.startswith("plant/")}
    assert wanted
    assert set(record.seen["od0"].received) == set(record.seen["od1"].received) == wanted


def test_what_came_over_a_bridge_does_not_go_back() -> None:
    plan = FabricPlan(seed=3, nodes=1, publishers=4, lasting_share=1.0, feeds=("push",), is_ring=True)
    simulation, problems = simulate(plan)
    assert problems == []
    [row] = simulation.fabric.nodes["o0"].node.bridges.rows()
    assert 0 < row["events"] < len(simulation.scene.record.sent)
