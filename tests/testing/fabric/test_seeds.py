"""Seeds that once failed, each with the cause: they stay good."""

from __future__ import annotations

import pytest

from reknit.testing.fabric.run import run

SEEDS = {
    12: "the rest of an ordered delivery arrived after the program had given back an event before it",
    38: "retention removed dead letters that wait, where it may remove events that subscribers are owed",
    15: "a node refused copies of its own events that came back over bridges, and the bridge held them for ever",
    21: "a redriven event that came back over a ring of bridges was stored twice, as the intake did not know it",
    103: "an ordered key stopped when an event that was given back ended before the rest of its delivery came back",
    58: "a link that came back did not look for events before its neighbour's position, which were now meant for it",
    223: "the record took dead letters that were still on their way to the disk for read, and never saw them",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_seed_stays_good(seed: int) -> None:
    assert run(seed).problems == [], SEEDS[seed]
