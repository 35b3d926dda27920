"""Identities with quotas in simulated fabrics: they get what they may have, and whoever has more is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reknit.testing.fabric.checks.quotas import rates_are_kept
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.programs.tenants.held_quotas import identities_keep_their_quotas, names_of
from reknit.testing.fabric.run import FabricSimulation, run

PLAN = FabricPlan(seed=1, nodes=1, run_s=4.0, publishers=1, durables=1, tenants=2, burst_max=10)


def simulate(plan: FabricPlan) -> tuple[FabricSimulation, list[str]]:
    with Fabric(plan.seed) as fabric:
        simulation = FabricSimulation(fabric, plan)
        return simulation, fabric.run(simulation.run())


@pytest.mark.parametrize("seed", range(4))
def test_tenants_stay_within_their_quotas_and_get_in_again(seed: int) -> None:
    plan = replace(PLAN, seed=seed, reset_rate=0.5, crash_rate=0.2 * (seed % 2), program_crash_rate=0.3)
    assert run(seed, plan=plan).problems == []


def test_a_tenant_publishes_up_to_its_quota_and_not_beyond() -> None:
    simulation, problems = simulate(PLAN)
    assert problems == []
    scene = simulation.scene
    assert list(rates_are_kept(scene)) == []
    scene.plan = replace(PLAN, quota_events_per_s=1)
    assert any("are allowed" in problem for problem in rates_are_kept(scene))


def test_a_tenant_with_too_many_connections_or_names_is_reported() -> None:
    async def have_one_of_each(fabric: Fabric, simulation: FabricSimulation) -> list[str]:
        await simulation.start_nodes(fabric.rng("test"))
        [node] = fabric.nodes.values()
        async with (
            fabric.session(node.url, token="reknit_tenant0") as session,
            session.subscribe("tenant/tenant0/**", name="mine"),
        ):
            assert names_of(node, "tenant0") == ["mine"]
            assert list(identities_keep_their_quotas(simulation.scene)) == []
            simulation.scene.plan = replace(PLAN, quota_connections=0, quota_names=0)
            return list(identities_keep_their_quotas(simulation.scene))

    with Fabric(seed=1) as fabric:
        simulation = FabricSimulation(fabric, PLAN)
        connections, names = fabric.run(fabric.host("client").run(have_one_of_each(fabric, simulation)))
    assert "tenant0 has 1 connections to n0" in connections
    assert "tenant0 has the durable subscribers ['mine']" in names
