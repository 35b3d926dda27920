"""The simple format, byte for byte, fed byte by byte and cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.errors import MalformedFrame
from reknit.protocol.tunnel.elements import fingerprint, is_hop_by_hop
from reknit.protocol.tunnel.simple_format import SimpleDecoder, encode, quote, unquote

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda name: name != "kn_payload"
)
values = st.text(st.characters(codec="utf-8"), max_size=12)
events = st.lists(st.tuples(st.dictionaries(names, values, max_size=4), st.binary(max_size=40)), max_size=5)


def test_an_event_byte_for_byte() -> None:
    encoded = encode([("kn_id", "m1"), ("a:b", "x=1: y")], b"pay\nload")
    assert encoded == b"37\nkn_id: m1\na=3Ab: x=3D1=3A y\n\npay\nload\n"


def test_colon_equals_sign_and_outer_spaces_are_always_escaped() -> None:
    assert quote(b" a:b=c ") == b"=20a=3Ab=3Dc=20"
    assert quote(b"a b") == b"a b"


def test_any_byte_may_have_been_escaped_when_reading() -> None:
    assert unquote(b"=61=C3=A9=zz=") == "aé=zz=".encode()


def test_names_and_values_may_be_escaped_beyond_need_and_in_the_middle_of_a_character() -> None:
    body = "a=20b=0Ac: =E3=83=81ャ=3a\nkn_id: 1\n\nline\nκ".encode()
    [event] = SimpleDecoder().feed(b"%d\n%b\n" % (len(body), body))
    assert event == {"a b\nc": "チャ:".encode(), "kn_id": b"1", "kn_payload": "line\nκ".encode()}


def test_a_reader_splits_at_the_first_colon_and_space() -> None:
    [event] = SimpleDecoder().feed(b"12\na: b: c: d\n\n\n")
    assert event == {"a": b"b: c: d", "kn_payload": b""}


def test_the_count_is_of_bytes_not_characters() -> None:
    encoded = encode([("n", "ü")], "κ".encode())
    assert encoded == "9\nn: ü\n\nκ\n".encode()


def test_white_space_between_events_is_a_heartbeat() -> None:
    one = encode([("kn_id", "1")], b"x")
    assert len(SimpleDecoder().feed(b"\n \r\n" + one + b"\n\n\t" + one + b"   ")) == 2


@pytest.mark.parametrize("bad", [b"abc\n", b"-1\n", b"1x", b"9999999999999\n", b"99999999\n", b"1\n\nx"])
def test_bytes_that_are_not_an_event_are_malformed_at_once(bad: bytes) -> None:
    with pytest.raises(MalformedFrame):
        SimpleDecoder(1 << 20).feed(bad)


@given(events)
def test_encoded_events_are_decoded_byte_by_byte(written: list[tuple[dict[str, str], bytes]]) -> None:
    stream = b"\n".join(encode(elements.items(), payload) for elements, payload in written)
    decoder = SimpleDecoder()
    read = [event for at in range(len(stream)) for event in decoder.feed(stream[at : at + 1])]
    assert read == [
        {**{name: value.encode() for name, value in elements.items()}, "kn_payload": payload}
        for elements, payload in written
    ]


@given(events, st.data())
def test_a_cut_anywhere_gives_whole_events_only(
    written: list[tuple[dict[str, str], bytes]], data: st.DataObject
) -> None:
    pieces = [encode(elements.items(), payload) for elements, payload in written]
    stream = b"".join(pieces)
    cut = data.draw(st.integers(0, len(stream)))
    whole, size = 0, 0
    for piece in pieces:
        size += len(piece)
        whole += size <= cut
    assert len(SimpleDecoder().feed(stream[:cut])) == whole


def test_the_hash_is_over_everything_other_than_kn_routed_from_and_headers_with_a_kn_route_prefix() -> None:
    event = {"kn_id": b"m1", "kn_payload": b"first", "kn_time_t": b"1794768337"}
    expected = "df902d51cda0f80f4a40a82e0568caf439ffc90bd1ed87630f1a48766f3b7a23"
    assert fingerprint(event) == expected
    hop = {
        "kn_route_location": b"/x",
        "kn_route_checkpoint": b"1",
        "kn_routed_from": b"/y",
        "kn_event_hash": b"z",
    }
    assert fingerprint(event | hop) == expected
    assert fingerprint(event | {"kn_route": b""}) != expected
    assert fingerprint(event | {"kn_id": b"m2"}) != expected


def test_no_other_header_is_hop_by_hop() -> None:
    assert [
        n for n in ("kn_id", "kn_route", "kn_routed", "kn_time_t", "route_x", "kn_route_") if is_hop_by_hop(n)
    ] == ["kn_route_"]
