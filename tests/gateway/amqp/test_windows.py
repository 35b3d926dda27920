"""The windows of sessions in the frames of a connection."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reknit.gateway.amqp.codec.attach import AttachScanner
from reknit.gateway.amqp.codec.encoding import Described, encode
from reknit.gateway.amqp.codec.windows import SessionWindows

HEADER = b"AMQP\x00\x01\x00\x00"
THEIRS, OURS = 7, 3


def frame(code: int, fields: list[Any], channel: int, payload: bytes = b"") -> bytes:
    body = encode(Described(code, fields)) + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def attach(name: str, is_receiver: bool = False) -> bytes:
    return frame(0x12, [name, 0, is_receiver], OURS)


def transfers(count: int) -> bytes:
    return frame(0x14, [0, 0, b"tag"], OURS, b"payload") * count


def flow(received: int | None, window: int) -> bytes:
    return frame(0x13, [received, window, 0, 100], THEIRS)


def begun(window: int) -> SessionWindows:
    made = SessionWindows()
    made.heard(frame(0x11, [None, 0, window, 100], THEIRS))
    made.sent(HEADER + frame(0x11, [THEIRS, 0, 100, 100], OURS) + attach("film"))
    return made


def test_half_of_a_window_is_for_a_stream() -> None:
    made = begun(10)
    assert made.stream_frames("film") == 5
    made.sent(transfers(4))
    assert made.stream_frames("film") == 1
    made.sent(transfers(6))
    assert made.stream_frames("film") == -5


def test_a_flow_says_how_far_the_client_has_read() -> None:
    made = begun(10)
    made.sent(transfers(8))
    made.heard(flow(8, 10))
    assert made.stream_frames("film") == 5
    made.heard(flow(6, 4))  # two are on the way
    assert made.stream_frames("film") == -3
    made.heard(flow(None, 10))  # it has received nothing yet, and says so late
    assert made.stream_frames("film") == -3


def test_numbers_begin_again_at_zero() -> None:
    made = begun(10)
    made.heard(flow((1 << 32) - 2, 10))
    made._windows[OURS].sent = (1 << 32) - 2
    made.sent(transfers(5))
    assert made.stream_frames("film") == 0


def test_wide_windows_and_links_to_us_are_not_followed() -> None:
    made = begun(1 << 20)
    assert not made
    assert made.stream_frames("film") is None
    made = begun(10)
    made.sent(attach("from the client", is_receiver=True))
    assert made.stream_frames("from the client") is None
    made.sent(frame(0x11, [THEIRS + 1, 0, 100, 100], OURS))  # another session on this channel
    assert made.stream_frames("film") is None


@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_begin_and_flow_are_found_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    said = HEADER + frame(0x11, [None, 0, 10, 100], THEIRS) + transfers(1) + flow(1, 9)
    heard: list[bytes] = []
    scanner, at = AttachScanner(heard.append), 0
    for cut in [*sorted(cuts), len(said)]:
        assert not list(scanner.feed(said[at:cut]))
        at = cut
    assert heard == [frame(0x11, [None, 0, 10, 100], THEIRS), flow(1, 9)]


@given(data=st.binary(max_size=80))
def test_any_frame_is_left_to_proton(data: bytes) -> None:
    made = begun(10)
    for code in (b"\x00\x53\x11", b"\x00\x53\x13"):
        made.heard(b"\x00\x00\x00\x00\x02\x00\x00\x07" + code + data)
