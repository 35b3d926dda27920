"""The goals of reknit beside its peers. They are judged from the rounds of one run and reported, never enforced."""

from __future__ import annotations

import statistics

import msgspec

from bench.cases import CASES, Case
from bench.rounds import Taken, ratio_of

BY_NAME = {case.name: case for case in CASES}


class Goal(msgspec.Struct, frozen=True):
    """A limit for reknit's figure in `case` over the peer's in `peer_case`, or for the figure itself without a peer."""

    title: str
    case: str
    peer: str = ""
    peer_case: str = ""
    at_least: float | None = None
    below: float | None = None


class Verdict(msgspec.Struct, frozen=True):
    title: str
    value: float
    is_met: bool


GOALS = (
    Goal("100 B one by one: ≥ 2x pyzmq PUB/SUB", "single-100", "pyzmq-pubsub", at_least=2),
    Goal("100 B one by one: ≥ 20x JetStream", "single-100", "jetstream", at_least=20),
    Goal("100 B as batches: ≥ 5x pyzmq PUB/SUB", "batch-100", "pyzmq-pubsub", "single-100", at_least=5),
    Goal("1 KiB one by one: ≥ 1x pyzmq PUB/SUB", "single-1k", "pyzmq-pubsub", at_least=1),
    Goal("node CPU an event, 100 B one by one: < 0.3 µs", "node-cpu-100", below=0.3),
    Goal("median latency: ≤ 1/2 of JetStream's", "latency-p50", "jetstream", below=0.5),
    Goal("memory for 1 M waiting events: < their own 95 MiB", "stalled-memory", below=95),
)


def judge(goal: Goal, taken: Taken) -> Verdict | None:
    """Judge a goal. None if the run has not measured it."""
    value = value_of(goal, BY_NAME[goal.case], taken)
    if value is None:
        return None
    is_met = value >= goal.at_least if goal.at_least is not None else value < (goal.below or 0)
    return Verdict(goal.title, float(f"{value:.4g}"), is_met)


def value_of(goal: Goal, case: Case, taken: Taken) -> float | None:
    mine = taken.by_round(case, "reknit")
    if not goal.peer:
        return statistics.median(mine.values()) if mine else None
    return ratio_of(mine, taken.by_round(BY_NAME[goal.peer_case or goal.case], goal.peer))
