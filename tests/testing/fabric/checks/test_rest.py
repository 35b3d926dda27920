"""Fabrics at rest: what is left in memory, routes that come back late and a ttl that ends early are noticed."""

from __future__ import annotations

from msgspec.structs import replace

from reknit.dead_letter import DeadLetterContent
from reknit.testing.fabric.checks.rest import REST_CHECKS
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import FabricSimulation


def test_what_is_not_at_rest_is_noticed() -> None:
    plan = FabricPlan(seed=3, nodes=2, run_s=3.0, publishers=1)
    with Fabric(plan.seed) as fabric:
        simulation = FabricSimulation(fabric, plan)
        assert fabric.run(simulation.run()) == []
        scene, node = simulation.scene, fabric.nodes["n0"].node
        letter = DeadLetterContent("car/1", bytes(16), 7, 1000, b"", "d0", 4, "expired", "", 0, "n0", 1500)
        scene.record.letters["n0", 1] = replace(letter, ttl_ms=1)
        scene.linked_at = scene.calm_at + 100.0
        node.core.intake._expecting.ask(b"s" * 16, "peer", 5)
        found = [check.__name__ for check in REST_CHECKS for _ in check(scene)]
        assert found == ["nodes_forget", "routes_converge", "no_ttl_ends_early"]
