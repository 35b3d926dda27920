"""Small fabrics have the faults of their plans, and fewer programs."""

from __future__ import annotations

from dataclasses import asdict

from reknit.testing.fabric.plans.families import family_fields
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.plans.sizes import EVENTS_MAX, KINDS
from reknit.testing.shrink import changed

SIZES = {name for absent in KINDS.values() for name in absent} | {"put_rate"}


def test_small_fabric_has_the_faults_and_rules_of_the_large_one() -> None:
    for seed in range(100):
        assert set(changed(FabricPlan.from_seed(seed), FabricPlan.large(seed))) <= SIZES


def test_every_kind_of_program_is_in_some_small_fabric_and_at_most_two_in_one() -> None:
    kinds = [_kinds(FabricPlan.from_seed(seed)) for seed in range(300)]
    assert set.union(*kinds) == set(KINDS)
    assert max(map(len, kinds)) == 2


def test_publishers_of_a_small_fabric_publish_few_events() -> None:
    for seed in (seed for seed in range(100) if not family_fields(seed)):
        plan = FabricPlan.from_seed(seed)
        events = plan.publishers * (1 + plan.burst_max) / 2 * plan.run_s * plan.put_rate
        assert plan.put_rate <= 1.0 or events <= EVENTS_MAX + 1


def _kinds(plan: FabricPlan) -> set[str]:
    fields = asdict(plan)
    return {
        kind for kind, absent in KINDS.items() if any(fields[name] != value for name, value in absent.items())
    }
