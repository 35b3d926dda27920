"""AMQP's types and messages, without a connection."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.batch import Batch
from reknit.delivery import Delivery
from reknit.gateway.amqp.codec.encoding import (
    DEPTH_MAX,
    Described,
    MalformedValue,
    Symbol,
    Timestamp,
    decode,
    encode,
    skip,
)
from reknit.gateway.amqp.codec.messages import (
    SECTIONS_HEADER,
    DecodedMessage,
    columns,
    decode_message,
    encode_messages,
)
from reknit.gateway.amqp.codec.sections import FIELDS

simple = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.text(max_size=300),
    st.binary(max_size=300), st.uuids(), st.integers(0, 1 << 50).map(Timestamp),
    st.text("abc:-", min_size=1, max_size=20).map(Symbol),
)  # fmt: skip
values = st.recursive(
    simple,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
)


@given(values)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    data = encode(value)
    assert decode(data) == (value, len(data))
    assert skip(data, 0) == len(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    try:
        _, end = decode(data)
        assert end <= len(data)
    except MalformedValue:
        pass


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        taken = decode_message(data)
    except MalformedValue:
        return
    assert decode_message(again(taken)) == taken


@given(values, st.integers(0, 60), st.integers(0, 255))
def test_a_garbled_message_is_a_message_or_malformed(value: Any, at: int, byte: int) -> None:
    data = bytearray(
        message(properties=encode([None, None, "to", "subject"]), body=b"\x00\x53\x77" + encode(value))
    )
    data[at % len(data)] = byte
    try:
        taken = decode_message(bytes(data))
    except MalformedValue:
        return
    assert decode_message(again(taken)) == taken


def test_nesting_has_an_end() -> None:
    deep = b"\x45"
    for _ in range(DEPTH_MAX + 5):
        deep = b"\xc0" + bytes((len(deep) + 1, 1)) + deep
    with pytest.raises(MalformedValue, match="nested"):
        decode(deep)


BODY = bytes.fromhex("005375a00178")


def message(properties: bytes = b"", application: bytes = b"", body: bytes = BODY) -> bytes:
    made = b""
    if properties:
        made += b"\x00\x53\x73" + properties
    if application:
        made += b"\x00\x53\x74" + application
    return made + body


def again(taken: DecodedMessage) -> bytes:
    """The message that another AMQP client gets."""
    batch = Batch.build(bytes(16), "a", 1, [taken.payload], time_us=0, columns=columns([taken]))
    [data] = encode_messages(batch, 0)
    return data


@given(
    st.dictionaries(st.text(max_size=10), simple.filter(lambda one: not isinstance(one, list)), max_size=5)
)
def test_application_properties_go_through_as_they_are(properties: dict[str, Any]) -> None:
    taken = decode_message(message(application=encode(properties)))
    section = again(taken)
    assert not properties or encode(properties) in section
    assert decode_message(section).headers == taken.headers


def test_headers_are_text_and_properties_win() -> None:
    properties = encode([UUID(int=1), b"\x01", "there", "news", None, 7, Symbol("text/plain")])
    application = encode({"subject": "mine", "hot": True, "n": 5})
    taken = decode_message(message(properties, application))
    assert taken.payload == b"x"
    assert taken.to == "there"
    assert taken.headers == {
        "message-id": "00000000-0000-0000-0000-000000000001", "user-id": "01", "to": "there", "subject": "news",
        "correlation-id": "7", "content-type": "text/plain", "app-subject": "mine", "hot": "true", "n": "5",
    }  # fmt: skip


def test_a_body_that_is_neither_text_nor_bytes_stays_encoded() -> None:
    body = b"\x00\x53\x77" + encode({"a": 1})
    taken = decode_message(body)
    assert taken.payload == body
    assert taken.headers == {SECTIONS_HEADER: "sections"}
    two = b"\x00\x53\x75\xa0\x01x\x00\x53\x75\xa0\x01y"
    assert decode_message(two).payload == two


@pytest.mark.parametrize(
    "data",
    [
        message(properties=encode([5.5])),
        message(properties=encode([None] * (len(FIELDS) + 1))),
        message(properties=encode({"no": "list"})),
        message(application=encode({"nested": [1]})),
        message(application=encode(["no map"])),
        message(application=encode({"a": "first"}))[:-6] + message(application=encode({"a": "again"})),
        message(application=encode({"a": 1}))[:-6] + message(properties=encode(["after"])),
        b"\x00\x53\x77\xa1\x02\xff\xfe",
        b"\x00\x53\x99\x40",
        b"\x40",
        b"\x00\x53",
    ],
)
def test_what_a_reader_could_choke_on_is_not_taken(data: bytes) -> None:
    with pytest.raises(MalformedValue):
        decode_message(data)


@given(st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 9), st.none()), min_size=1, max_size=4))
def test_a_column_written_by_others_never_makes_a_bad_message(metas: list[Any]) -> None:
    """Any publisher can write the column `amqp`. An AMQP client gets a valid message all the same."""
    batch = Batch.build(bytes(16), "a", 1, [b"x"] * len(metas), time_us=0, columns={"amqp": metas})
    for data in encode_messages(batch, 0, with_topic=True):
        decode_message(data)


def test_native_headers_become_properties_and_back() -> None:
    headers = {
        "subject": "s",
        "content-type": "text/plain",
        "line": "3",
        "creation-time": "1000",
        "group-sequence": "x",
    }
    batch = Batch.build(bytes(16), "a", 1, [b"x"], time_us=0, columns={"headers": [headers]})
    taken = decode_message(encode_messages(batch, 0)[0])
    assert taken.headers == {key: value for key, value in headers.items() if key != "group-sequence"}


def test_the_time_to_live_gets_shorter_on_the_way() -> None:
    batch = Batch.build(bytes(16), "a", 1, [b"x"], time_us=1_000_000, ttl_ms=5_000)
    assert decode_message(encode_messages(batch, 3_000_000)[0]).ttl_ms == 3_000


def test_a_repeated_attempt_says_so() -> None:
    batch = Batch.build(bytes(16), "a", 1, [b"x"], time_us=0)
    header, _ = decode(encode_messages(batch.delivered(Delivery(4)), 0)[0])
    assert header == Described(0x70, [True, 4, None, False, 3])


def test_a_section_may_be_named_by_its_symbol() -> None:
    name = encode(Symbol("amqp:message-annotations:map"))
    taken = decode_message(b"\x00" + name + encode({Symbol("x-opt-a"): 1}) + BODY)
    batch = Batch.build(bytes(16), "a", 1, [taken.payload], time_us=0, columns=columns([taken]))
    [data] = encode_messages(batch, 0, with_topic=True)
    _, at = decode(data)
    annotations, _ = decode(data, at)
    assert annotations == Described(0x72, {"x-opt-a": 1, "x-opt-reknit-topic": "a"})


def test_message_with_a_section_that_amqp_does_not_have_is_malformed() -> None:
    with pytest.raises(MalformedValue, match="section"):
        decode_message(b"\x00\x53\x99\x45")
