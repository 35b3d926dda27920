"""Datagrams of a group: items come out as they went in, and invalid datagrams are refused."""

from __future__ import annotations

import contextlib
import os
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.batch import Batch
from reknit.errors import MalformedFrame
from reknit.view import Member, View
from reknit.wire.bundle import ENVELOPE, Bundler, is_for, unbundle
from reknit.wire.groups import GroupAck, GroupAnnounce, GroupHello, GroupInstall, GroupPiece, GroupRecover

ME = b"m" * 16
OTHER = b"o" * 16


def batch(source: bytes, size: int) -> Batch:
    return Batch.build(source, "robots", 1, [os.urandom(size)], time_us=1)


def unpack(datagrams: list[bytes]) -> list[object]:
    return [item for datagram in datagrams for item in unbundle(datagram, 7)[1]]


def test_messages_to_one_place_share_a_datagram() -> None:
    bundler = Bundler(7, ME, 1472)
    messages = [
        GroupAck(3),
        GroupAnnounce(9, 8, is_ack_wanted=True),
        GroupRecover(OTHER, ME, [(1, 4)], [(7, [(0, 2)])]),
        GroupHello(Member(ME, "a", "10.0.0.1:7")),
        GroupInstall(View(2, ME, (Member(ME), Member(OTHER)))),
    ]
    for message in messages:
        bundler.add(message)  # type: ignore[arg-type]
    datagrams = bundler.take(0)
    assert len(datagrams) == 1
    assert unpack(datagrams) == messages


@given(st.integers(1, 9_000), st.sampled_from([ME, OTHER]))
def test_a_batch_is_cut_and_carries_all_of_its_bytes(size: int, source: bytes) -> None:
    made = batch(source, size)
    bundler = Bundler(7, ME, 1472)
    bundler.add_batch(made, 1_392)
    datagrams = bundler.take(5)
    assert all(len(datagram) <= 1472 for datagram in datagrams)
    pieces = [item for item in unpack(datagrams) if isinstance(item, GroupPiece)]
    assert b"".join(piece.data for piece in pieces) == bytes(made.data)
    assert {piece.stable for piece in pieces} == {5 if source == ME else 0}
    assert {piece.source for piece in pieces} == {source}


def test_only_the_pieces_that_are_wanted_are_sent() -> None:
    bundler = Bundler(7, ME, 1472)
    bundler.add_batch(batch(ME, 9_000), 1_000, [(2, 4), (6, 7)])
    assert [item.index for item in unpack(bundler.take(0)) if isinstance(item, GroupPiece)] == [2, 3, 6]


def test_datagrams_of_full_pieces_have_one_size_for_the_kernel_to_cut() -> None:
    bundler = Bundler(7, ME, 1472)
    bundler.add_batch(batch(ME, 50_000), 1_392)
    sizes = [len(datagram) for datagram in bundler.take(0)]
    assert len(set(sizes[:-1])) == 1
    assert sizes[-1] <= sizes[0]


def test_another_group_is_passed_over() -> None:
    bundler = Bundler(8, ME, 1472)
    bundler.add(GroupAck(1))
    assert unbundle(bundler.take(0)[0], 7) == (ME, [])


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_empty_and_never_breaks(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        unbundle(data, 7)


@given(st.integers(0, 1_400), st.integers(0, 255), st.integers(0, 1_400))
def test_a_damaged_datagram_is_refused_or_read_as_something_else(at: int, value: int, cut: int) -> None:
    bundler = Bundler(7, ME, 1472)
    bundler.add(GroupAck(1))
    bundler.add_batch(batch(ME, 500), 1_392)
    damaged = bytearray(bundler.take(0)[0])
    damaged[at % len(damaged)] = value
    with contextlib.suppress(MalformedFrame):
        unbundle(bytes(damaged[: max(1, cut)]), 7)


def packed(message: list[object]) -> bytes:
    """A datagram with one message that nobody checked."""
    body = msgspec.msgpack.encode(message)
    return ENVELOPE.pack(0x4752, 1, 0, 0, 7, ME, 0) + struct.Struct("<BBHI").pack(2, 0, 0, len(body)) + body


@pytest.mark.parametrize(
    "address",
    ["nonsense", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.256:1", "a.test:7", ":7"],
)
def test_a_member_whose_address_is_no_address_is_refused(address: str) -> None:
    assert unbundle(packed([16, [ME, "a", "10.0.0.1:7"]]), 7)[1] == [
        GroupHello(Member(ME, "a", "10.0.0.1:7"))
    ]
    with pytest.raises(MalformedFrame, match="address"):
        unbundle(packed([16, [ME, "a", address]]), 7)


def test_text_that_is_not_utf_8_is_refused() -> None:
    datagram = packed([24, "why?"]).replace(b"why?", b"\xff\xfey?")
    with pytest.raises(MalformedFrame, match="utf-8"):
        unbundle(datagram, 7)


def test_datagram_for_one_member_is_not_for_another_at_its_address() -> None:
    """Seed 10055: a process that was started again took what was meant for the one before it for its own."""
    for to, expected in ((0, (True, True)), (int.from_bytes(ME, "little"), (True, False))):
        bundler = Bundler(7, b"o" * 16, 1472, to)
        bundler.add(GroupAck(3))
        [datagram] = bundler.take(0)
        assert (is_for(datagram, ME), is_for(datagram, b"another process!")) == expected
