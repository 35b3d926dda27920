"""The plan of a campaign follows from its seed, and leaves a fabric to recover."""

from __future__ import annotations

from reknit.testing.chaos.plan import AWAY_MAX, SUSPENSION_S_MAX, Kind, Plan, Targets, make_plan

TARGETS = Targets(("n1", "n2", "n3", "n4", "n5"), ("n1-n2", "n2-n3"), ("p1", "s1"), ("pipeline",))


def plans() -> list[Plan]:
    return [make_plan(seed, 600.0, TARGETS) for seed in range(20)]


def test_every_kind_of_fault_is_planned() -> None:
    assert {fault.kind for plan in plans() for fault in plan.faults} == set(Kind)


def test_no_target_has_two_faults_at_a_time_and_few_nodes_are_away() -> None:
    for plan in plans():
        for fault in plan.faults:
            others = [
                other
                for other in plan.faults
                if other is not fault and other.at_s <= fault.at_s < other.at_s + other.lasts_s
            ]
            assert fault.target not in {other.target for other in others}
            if fault.target in TARGETS.nodes:
                assert len({other.target for other in others}.intersection(TARGETS.nodes)) < AWAY_MAX


def test_faults_end_within_the_campaign() -> None:
    for plan in plans():
        assert all(fault.at_s + fault.lasts_s <= plan.seconds for fault in plan.faults)
        assert all(fault.lasts_s <= SUSPENSION_S_MAX for fault in plan.faults)


def test_a_plan_is_printed_with_every_fault() -> None:
    plan = make_plan(7, 600.0, TARGETS)
    assert len(str(plan).splitlines()) == len(plan.faults) + 1
