"""Batches: what goes in comes out, and lengths that do not fit are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.batch import HEADER_BYTES, Batch
from reknit.delivery import Delivery
from reknit.errors import LocalError, MalformedFrame
from reknit.frame import PREFIX_BYTES, checksum
from reknit.outcome import Outcome

SOURCE = bytes(16)
TOPIC = "abcdefgh"
LENGTHS_AT = HEADER_BYTES + len(TOPIC)


def batch_of(lengths: list[int]) -> Batch:
    payloads = [bytes([number % 256]) * length for number, length in enumerate(lengths)]
    return Batch.build(SOURCE, TOPIC, 1, payloads, time_us=1)


def with_lengths(batch: Batch, lengths: list[int]) -> bytes:
    """The same bytes with other lengths, and a checksum that fits them."""
    frame = bytearray(batch.data)
    struct.pack_into(f"<{len(lengths)}I", frame, LENGTHS_AT, *lengths)
    struct.pack_into("<Q", frame, PREFIX_BYTES - 8, checksum(frame))
    return bytes(frame)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60)
    | st.builds(lambda n, m: [n] * m, *[st.integers(1, 60)] * 2)
)
def test_payloads_come_out_as_they_went_in(lengths: list[int]) -> None:
    parsed = Batch.parse(bytes(batch_of(lengths).data))
    assert parsed.payloads() == [bytes([n % 256]) * length for n, length in enumerate(lengths)]
    assert [event.payload for event in parsed.events()] == parsed.payloads()


@pytest.mark.parametrize("lengths", [[20] * 32, [20] * 31 + [19]])
@pytest.mark.parametrize("wrong", [12, 28, (1 << 32) - 1])
def test_lengths_that_do_not_fill_the_batch_are_refused(lengths: list[int], wrong: int) -> None:
    batch = batch_of(lengths)
    assert Batch.parse(with_lengths(batch, lengths)).payloads() == batch.payloads()
    for bad in ([wrong] * 32, [*lengths[:-1], wrong]):
        with pytest.raises(MalformedFrame, match="do not fill a batch"):
            Batch.parse(with_lengths(batch, bad))


def test_a_batch_is_frozen_and_another_delivery_is_another_value() -> None:
    batch = batch_of([1, 2, 3])
    with pytest.raises(AttributeError):
        batch.position = 7  # type: ignore[misc]
    again = batch.delivered(Delivery(attempt=3, counted=False))
    assert (batch.attempt, batch.counted) == (1, True)
    assert (again.attempt, again.counted, again.data is batch.data) == (3, False, True)


def test_a_part_keeps_the_attempt_but_can_not_be_settled() -> None:
    settled: list[object] = []
    whole = batch_of([1, 2, 3]).delivered(
        Delivery(attempt=2, ordered_to=9, settle=lambda *args: settled.append(args))
    )
    part = whole.cut(whole.first + 1, whole.stop)
    assert (part.attempt, part.ordered_to, part.settle) == (2, 9, None)
    with pytest.raises(LocalError, match="not delivered by a subscription"):
        part.accept()
    whole.accept()
    assert settled == [(whole, whole.first, whole.stop, Outcome.ACCEPTED)]
