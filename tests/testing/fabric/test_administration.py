"""An operator at work while a fabric runs: what it does really happens, and every promise holds."""

from __future__ import annotations

from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import FabricSimulation

BUSY = FabricPlan(
    seed=1,
    nodes=2,
    run_s=4.0,
    durables=3,
    reject=0.5,
    release=0.3,
    order="source",
    attempts_max=5,
    pause_rate=1.0,
    redrive_rate=2.0,
    drop_rate=0.3,
    link_rate=1.0,
)


def simulate(plan: FabricPlan) -> tuple[FabricSimulation, list[str]]:
    with Fabric(plan.seed) as fabric:
        simulation = FabricSimulation(fabric, plan)
        return simulation, fabric.run(simulation.run())


def test_dead_letters_are_redriven_while_topics_pause_and_links_go() -> None:
    simulation, problems = simulate(BUSY)
    record = simulation.scene.record
    assert problems == []
    assert record.letters
    assert record.redriven
    assert any(node.node.core.dead_letters.letters.dropped for node in simulation.fabric.nodes.values())
