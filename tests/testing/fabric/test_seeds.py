"""Seeds that once failed, each with the cause: they stay good."""

from __future__ import annotations

import pytest

from reknit.testing.fabric.run import run

SEEDS = {
    12: "the rest of an ordered delivery arrived after the program had given back an event before it",
    38: "retention removed dead letters that wait, where it may remove events that subscribers are owed",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_seed_stays_good(seed: int) -> None:
    assert run(seed).problems == [], SEEDS[seed]
