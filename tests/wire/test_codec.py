"""Bytes become messages and batches however they are cut, and decoded values never change later."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.batch import Batch
from reknit.errors import MalformedFrame
from reknit.frame import KIND_MESSAGE, wrap
from reknit.wire import codec
from reknit.wire.codec import AnyMessage, Decoder, Frames, encode
from reknit.wire.messages import Ack, Hello

BUFFER_BYTES = 4096
LENT_BYTES_MIN = 1024
STOWED_BYTES_MAX = 256
LONGEST_BYTES = 3 * BUFFER_BYTES


@pytest.fixture(autouse=True, scope="module")
def small_buffers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "BUFFER_BYTES", BUFFER_BYTES)
        patch.setattr(codec, "LENT_BYTES_MIN", LENT_BYTES_MIN)
        patch.setattr(codec, "STOWED_BYTES_MAX", STOWED_BYTES_MAX)
        patch.setattr(codec, "_spare", codec.SpareBuffers())
        yield


def batch(first: int, sizes: list[int]) -> Batch:
    payloads = [bytes([(first + at) % 256]) * size for at, size in enumerate(sizes)]
    return Batch.build(b"s" * 16, "plant/temp", first, payloads, time_us=1)


sizes = st.one_of(st.integers(0, 200), st.integers(0, 2 * LENT_BYTES_MIN), st.integers(0, LONGEST_BYTES))
batches = st.builds(batch, st.integers(1, 1000), st.lists(sizes, min_size=1, max_size=3))
messages = st.builds(Ack, st.just(b"s" * 16), st.integers(0, 1000))


@settings(deadline=None)
@given(
    st.lists(st.one_of(batches, messages), max_size=12),
    st.lists(st.integers(1, 3000)),
    st.booleans(),
    st.data(),
)
def test_whatever_comes_in_pieces_comes_out_whole(
    sent: list[Batch | Ack], cuts: list[int], lends: bool, data: st.DataObject
) -> None:
    """Some of it is let go at once, the rest is looked at when all has come."""
    stream = b"".join(bytes(item.data) if isinstance(item, Batch) else encode(item) for item in sent)
    decoder = Decoder(lends=lends)
    kept: list[Frames | AnyMessage] = []
    came: list[object] = []
    while stream:
        size = cuts.pop() if cuts else len(stream)
        for item in decoder.feed(stream[:size]):
            assert not isinstance(item, codec.Raw)
            came += contents(item)
            if data.draw(st.booleans()):
                kept.append(item)
        stream = stream[size:]
    assert came == [entry for item in sent for entry in contents(item)]
    assert [entry for item in kept for entry in contents(item) if entry not in came] == []


def contents(item: Frames | AnyMessage | Batch) -> list[object]:
    if isinstance(item, Frames):
        return [entry for batch in item.batches() for entry in contents(batch)]
    return [(item.head, bytes(item.data), item.payloads())] if isinstance(item, Batch) else [item]


def test_long_batches_are_lent_and_short_ones_keep_no_buffer() -> None:
    long, short = batch(1, [LENT_BYTES_MIN]), batch(1, [100])
    [frames] = Decoder(lends=True).feed(bytes(long.data))
    assert isinstance(frames, Frames)
    assert isinstance(frames.data, memoryview)
    assert frames.data.readonly
    for decoder, one in ((Decoder(lends=True), short), (Decoder(), long)):
        [frames] = decoder.feed(bytes(one.data))
        assert isinstance(frames, Frames)
        assert isinstance(frames.data, bytes)


def test_what_was_handed_out_is_not_overwritten() -> None:
    decoder = Decoder(lends=True)
    sent = [batch(first, [LENT_BYTES_MIN]) for first in range(1, 40)]
    held = [decoder.feed(bytes(one.data)) for one in sent]
    assert [bytes(frames.data) for [frames] in held] == [one.data for one in sent]  # type: ignore[union-attr]


def test_a_buffer_is_used_again_when_nobody_reads_from_it() -> None:
    decoder, long = Decoder(lends=True), bytes(batch(1, [LENT_BYTES_MIN] * 2).data)
    seen: set[int] = set()
    for _ in range(20):
        assert decoder.feed(long)
        seen.add(id(decoder._buffer))
    assert len(seen) == 2
    held = [decoder.feed(long) for _ in range(20)]
    assert len({id(frames.data.obj) for [frames] in held}) > 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "body",
    [
        msgspec.msgpack.encode([21, 1, "XYZW", {}]).replace(b"XYZW", b"\xff\xfeZW"),
        msgspec.msgpack.encode([21, 1, "ledger", {"a": "XYZW"}]).replace(b"XYZW", b"\xff\xfeZW"),
        msgspec.msgpack.encode([21, 1, "ledger", {"a": 7}]).replace(b"\x07", b"\x91" * 10_000 + b"\x07"),
    ],
    ids=["text", "text in arguments", "nested too deeply"],
)
def test_what_no_message_can_be_is_refused_with_one_known_error(body: bytes) -> None:
    with pytest.raises(MalformedFrame, match="can't be read"):
        Decoder().feed(wrap(KIND_MESSAGE, body))


@pytest.mark.parametrize("lends", [False, True])
def test_a_silent_connection_holds_no_buffer(lends: bool) -> None:
    decoder = Decoder(lends=lends)
    assert decoder.held_bytes == 0
    ack = Ack(b"s" * 16, 7)
    assert decoder.feed(encode(ack)) == [ack]
    assert decoder.held_bytes == 0


def test_the_start_of_a_message_holds_only_its_own_size() -> None:
    decoder, frame = Decoder(), encode(Ack(b"s" * 16, 7))
    assert decoder.feed(frame[:20]) == []
    assert decoder.held_bytes == 20
    assert decoder.feed(frame[20:]) == [Ack(b"s" * 16, 7)]


def test_many_silent_connections_share_a_few_buffers() -> None:
    decoders, frame = [Decoder() for _ in range(100)], encode(Ack(b"s" * 16, 7))
    for decoder in decoders:
        decoder.feed(frame[:20])
    for decoder in decoders:
        assert len(decoder.feed(frame[20:])) == 1
    assert 0 < len(codec._spare.views) <= codec.SPARE_BUFFERS_MAX


def test_a_read_that_finds_nothing_takes_no_buffer() -> None:
    """The system may have said that there is something to read, or that the other side has closed."""
    decoders = [Decoder() for _ in range(100)]
    spaces = [decoder.space() for decoder in decoders]
    assert len({id(space.obj) for space in spaces}) == 1
    for decoder in decoders:
        decoder.filled(0)
        assert decoder.take() == []
        assert decoder.held_bytes == 0


def test_a_connection_that_reads_long_items_gives_the_buffer_back() -> None:
    decoder = Decoder()
    assert decoder.feed(bytes(batch(1, [LONGEST_BYTES]).data))
    assert decoder.held_bytes == 0


def test_before_hello_no_more_than_its_limit_is_taken() -> None:
    limit = 512
    decoder = Decoder(hello_bytes_max=limit)
    assert len(decoder.space()) == limit
    with pytest.raises(MalformedFrame, match=f"over the limit of {limit}"):
        decoder.feed(bytes(batch(1, [2 * limit]).data))


def test_after_hello_frames_may_be_long_even_in_the_same_bytes() -> None:
    limit, long = 512, batch(1, [LONGEST_BYTES])
    hello = Hello(1, "a")
    first, second = Decoder(hello_bytes_max=limit).feed(encode(hello) + bytes(long.data))
    assert first == hello
    assert isinstance(second, Frames)
    assert second.batches()[0].payloads() == long.payloads()
