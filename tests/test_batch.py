"""Batches: what goes in comes out, and lengths that do not fit are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.batch import HEADER_BYTES, Batch
from reknit.errors import MalformedFrame
from reknit.frame import PREFIX_BYTES, checksum

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
