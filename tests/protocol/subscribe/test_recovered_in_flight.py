"""Recovered events that an application gives back: each comes again once, however its batches were settled."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.delivery import RECOVERED
from reknit.outcome import Outcome
from reknit.protocol.disposition import Disposition
from reknit.protocol.subscribe.recovered_in_flight import RecoveredInFlight

SERIES = ("plant/a", b"s" * 16)


def recovered(first: int, count: int) -> Batch:
    return Batch.build(SERIES[1], SERIES[0], first, [b"x"] * count, 0).delivered(RECOVERED)


def test_event_that_came_again_beside_unsettled_ones_comes_again_once() -> None:
    in_flight = RecoveredInFlight()
    in_flight.deliver(recovered(1, 2))
    for now in (100.0, 200.0, 300.0):  # event 2 is not settled meanwhile, so its batch stays
        in_flight.settle(SERIES, 1, 2, Disposition(Outcome.RELEASED))
        in_flight.tick(now)
        due = in_flight.tick(now + 50.0)
        assert [(batch.first, batch.stop) for batch in due] == [(1, 2)]
    assert due[0].attempt == 4


def test_range_over_several_batches_comes_again_in_order() -> None:
    in_flight = RecoveredInFlight()
    in_flight.deliver(recovered(1, 2))
    in_flight.deliver(recovered(3, 2))
    in_flight.settle(SERIES, 1, 5, Disposition(Outcome.RELEASED))
    in_flight.tick(0.0)
    assert [(batch.first, batch.stop) for batch in in_flight.tick(50.0)] == [(1, 3), (3, 5)]
