"""Rounds alternate all subjects, and ratios are made within a round."""

import asyncio
from collections.abc import Awaitable

from bench.cases import CASES, Case, choose
from bench.goals import GOALS, judge
from bench.harness import Measured
from bench.job import Job, Load
from bench.peers.base import AsyncPublisher, Peer, Publisher, Sink
from bench.processes import Failed
from bench.rounds import Taken, Turn, plan, ratio_of, run

CASE = next(case for case in CASES if case.name == "single-100")


class Still(Peer):
    """A subject that is planned for, and never started."""

    name = "still"
    keeps = "nothing"
    packages = ()

    def publisher(self, job: Job) -> Publisher | Awaitable[AsyncPublisher]:
        raise NotImplementedError

    def subscribe(self, job: Job, sink: Sink) -> None:
        raise NotImplementedError


def measured(events_per_s: float) -> Measured:
    return Measured(events=1, elapsed_s=1.0, events_per_s=events_per_s)


def taken_of(case: Case, mine: list[float], peer: str, theirs: list[float]) -> Taken:
    runs = {
        (name, case.load): {number: measured(value) for number, value in enumerate(values)}
        for name, values in (("reknit", mine), (peer, theirs))
    }
    return Taken(runs, {})


def test_subjects_alternate_and_each_round_starts_one_further_on() -> None:
    turns = plan([CASE], {"reknit": Still(), "nats": Still()}, rounds=2)
    assert [(turn.subject, turn.round) for turn in turns] == [
        ("reknit", 0),
        ("nats", 0),
        ("nats", 1),
        ("reknit", 1),
    ]


def test_cases_that_share_a_load_share_its_runs() -> None:
    both = choose(["single-100", "node-cpu-100"], is_quick=False)
    assert len(plan(both, {"reknit": Still(), "nats": Still()}, rounds=1)) == 2


def test_a_peer_runs_once_for_both_of_our_journals() -> None:
    both = choose(["single-100", "single-100-memory"], is_quick=False)
    turns = plan(both, {"reknit": Still(), "zenoh": Still()}, rounds=1)
    assert sorted(turn.subject for turn in turns) == ["reknit", "reknit", "zenoh"]


def test_a_ratio_is_the_median_of_ratios_within_rounds() -> None:
    """The machine halves its speed in the second round: the medians' own ratio would be 1.5."""
    assert ratio_of({0: 4.0, 1: 2.0, 2: 6.0}, {0: 2.0, 1: 1.0, 2: 3.0}) == 2.0
    assert ratio_of({0: 4.0}, {1: 2.0}) is None


def test_a_failed_run_is_told_once_and_does_not_stop_the_others() -> None:
    async def measure(peer: Peer, load: Load) -> Measured:
        if isinstance(peer, Broken):
            raise Failed("it broke")
        return measured(10.0)

    class Broken(Still):
        pass

    told: list[str] = []
    peers: dict[str, Peer] = {"reknit": Still(), "nats": Broken()}

    def tell(turn: Turn, news: str) -> None:
        told.append(f"{turn.subject} {news}".strip())

    taken = asyncio.run(run(plan([CASE], peers, rounds=2), peers, measure, tell))
    assert told == ["reknit 10 events/s", "nats failed: it broke", "nats", "reknit 10 events/s"]
    assert taken.failures == {("nats", CASE.load): "it broke"}
    assert taken.by_round(CASE, "reknit") == {0: 10.0, 1: 10.0}


def test_goals_are_judged_from_the_same_rounds() -> None:
    goal = next(goal for goal in GOALS if goal.case == "single-100" and goal.peer == "jetstream")
    met = judge(goal, taken_of(CASE, [40.0, 20.0], "jetstream", [2.0, 1.0]))
    missed = judge(goal, taken_of(CASE, [30.0, 10.0], "jetstream", [2.0, 1.0]))
    assert met is not None
    assert missed is not None
    assert (met.is_met, missed.is_met) == (True, False)
    assert judge(goal, Taken({}, {})) is None


def test_every_goal_compares_cases_of_one_group() -> None:
    groups = {case.name: case.group for case in CASES}
    assert all(groups[goal.case] == groups[goal.peer_case or goal.case] for goal in GOALS)
