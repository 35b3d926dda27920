"""Seeds of the simulation: an event is reported as lost only if no living cache holds it.

`REKNIT_SEEDS=20000 pytest tests/protocol/recovery/test_simulation.py` looks further.
"""

from __future__ import annotations

import os

import pytest

from tests.protocol.recovery.simulation import Simulation

SEEDS = int(os.environ.get("REKNIT_SEEDS", "60"))


def test_only_what_no_living_cache_holds_is_lost() -> None:
    delivered = lost = 0
    for seed in range(SEEDS):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except AssertionError as error:
            pytest.fail(f"{error}; replay with: python -m tests.protocol.recovery.simulation {seed}")
        delivered += simulation.delivered
        lost += len(simulation.lost)
    assert delivered > lost > 0
