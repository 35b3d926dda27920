"""Simulated publishers that repeat events in other batches."""

from reknit.batch import Batch
from reknit.protocol.ttl import deadlines_of
from reknit.testing.publishers import _ttl_column


def test_events_that_are_repeated_in_one_batch_expire_as_before() -> None:
    """Seed 20295: the batch had the time of the last event, and the others lived longer than their ttl."""
    times_us = [1_000_000, 1_000_000, 1_250_000]
    batch = Batch.build(
        b"s" * 16, "plant/a", 1, [b"x"] * 3, times_us[0], ttl_ms=500, columns=_ttl_column(500, times_us)
    )
    deadlines = [due for _, _, due in deadlines_of(batch.head, batch.columns(), 0, now_us=2_000_000)]
    assert deadlines == [1_500_000, 1_500_000, 1_750_000]


def test_events_of_one_time_need_no_ttl_of_their_own() -> None:
    assert _ttl_column(500, [7, 7]) is None
    assert _ttl_column(0, [7, 9]) is None
