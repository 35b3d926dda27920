"""What a path has and has not settled, also where two deliveries have the same events."""

from __future__ import annotations

from reknit.batch import Batch
from reknit.protocol.anycast.delivery import AnycastDelivery, DeliveryTerms
from reknit.protocol.anycast.path import UnsettledDeliveries

SOURCE = b"s" * 16
SERIES = ("orders/new", SOURCE)


def delivery(start: int, stop: int) -> AnycastDelivery:
    batch = Batch.build(SOURCE, "orders/new", start, [b"x"] * (stop - start), time_us=0)
    terms = DeliveryTerms("orders/new", SOURCE, "a", "balanced")
    return AnycastDelivery(
        terms, start, stop, batch, batch.head.length, "a", resend=True, visited=frozenset(("a",))
    )


def taken(unsettled: UnsettledDeliveries, start: int, stop: int) -> list[tuple[int, int]]:
    return sorted((one.start, one.stop) for one in unsettled.take(SERIES, start, stop))


def test_an_outcome_settles_every_copy_of_an_event() -> None:
    unsettled = UnsettledDeliveries()
    for bounds in ((1, 5), (1, 3), (3, 5), (5, 6)):
        unsettled.add(delivery(*bounds))
    assert taken(unsettled, 2, 3) == [(2, 3), (2, 3)]
    assert taken(unsettled, 1, 2) == [(1, 2), (1, 2)]
    assert taken(unsettled, 4, 6) == [(4, 5), (4, 5), (5, 6)]
    assert taken(unsettled, 1, 9) == [(3, 4), (3, 4)]
    assert (unsettled.events, unsettled.bytes, list(unsettled)) == (0, 0, [])


def test_a_delivery_is_split_where_only_a_part_of_it_is_settled() -> None:
    unsettled = UnsettledDeliveries()
    unsettled.add(delivery(1, 5))
    assert taken(unsettled, 2, 3) == [(2, 3)]
    assert [(one.start, one.stop) for one in unsettled] == [(1, 2), (3, 5)]
    assert unsettled.events == 3
