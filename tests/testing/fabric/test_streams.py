"""Streams in a simulated fabric: read as a whole by one reader, or given up."""

from __future__ import annotations

from reknit.testing.fabric.checks.rules import streams_are_whole
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import FabricSimulation

PLAN = FabricPlan(
    seed=4,
    nodes=3,
    run_s=3.0,
    stream_writers=2,
    stream_readers=2,
    give_up_share=0.3,
    release=0.6,
    reset_rate=0.5,
)


def test_released_streams_go_to_the_next_reader_and_broken_ones_to_nobody() -> None:
    with Fabric(PLAN.seed) as fabric:
        simulation = FabricSimulation(fabric, PLAN)
        problems = fabric.run(simulation.run())
    films = simulation.scene.record.films
    assert problems == []
    assert {"ACCEPTED", "GIVEN UP"} <= {film.result for film in films.values()}
    film = next(film for film in films.values() if film.result == "GIVEN UP")
    film.readers.append("somebody")
    assert list(streams_are_whole(simulation.scene)) == [
        f"{film.name} is GIVEN UP, and ['somebody'] read it to its end"
    ]
