"""Events as CloudEvents and as UMessages: there and back, and whatever comes in."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from reknit.address import Address
from reknit.batch import Batch
from reknit.envelope.attributes import Attributes, Format, Kind, Priority
from reknit.envelope.cloudevents import event_to_json, from_json, to_json
from reknit.envelope.status import to_status
from reknit.envelope.umessage import (
    address_of,
    from_umessage,
    message_type,
    to_umessage,
    uri_message,
    uuid_message,
    uuid_of,
)
from reknit.errors import InvalidAttributes
from reknit.outcome import Code
from tests.envelope.samples import CLIENT, METHOD, SOUND, changed, sound, texts
from tests.envelope.vectors import URI_BYTES, UUID_BYTES

ID = "00000000-0001-7000-8010-101010101a1a"
PUBLISHED = {"specversion": "1.0", "type": "up-pub.v1", "id": ID, "source": "//vcu/10/1/8001"}

# -- CloudEvents


@given(sound(), st.binary(max_size=30))
def test_any_event_survives_being_a_cloudevent(attributes: Attributes, payload: bytes) -> None:
    assert from_json(to_json(attributes, payload)) == (attributes, payload)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.PUBLISH, "up-pub.v1"),
        (Kind.REQUEST, "up-req.v1"),
        (Kind.RESPONSE, "up-res.v1"),
        (Kind.NOTIFICATION, "up-not.v1"),
    ],
)
def test_a_cloudevents_type_says_which_type_of_event(kind: Kind, name: str) -> None:
    row = json.loads(to_json(SOUND[kind], b""))
    assert (row["specversion"], row["type"]) == ("1.0", name)
    if kind is not Kind.NOTIFICATION:
        row["type"] = name.removeprefix("up-")
        assert from_json(json.dumps(row))[0] == SOUND[kind]


def test_attributes_have_the_types_that_the_mapping_says() -> None:
    made = changed(Kind.RESPONSE, commstatus=Code.UNAVAILABLE, permission_level=3, token="t")
    row = json.loads(to_json(made, b"\x00"))
    assert (row["ttl"], row["plevel"], row["commstatus"]) == (5, 3, 14)
    assert (row["priority"], row["token"]) == ("CS4", "t")
    assert row["reqid"] == str(made.reqid)
    assert row["source"] == "up://vcu.my_vin/10010/1/7"
    assert row["sink"] == "up://phone/20/1/0"
    assert row["data_base64"] == "AA=="


@given(texts)
def test_text_is_data_and_stays_the_same_bytes(text: str) -> None:
    made = changed(Kind.PUBLISH, payload_format=Format.TEXT)
    written = to_json(made, text.encode())
    assert json.loads(written)["data"] == text
    assert from_json(written) == (made, text.encode())


@pytest.mark.parametrize("payload", [b'{"a" : [1,  2.50]}', b"17", b'"x"', b"null", b'"\\u0041"'])
def test_json_is_data_and_stays_the_same_bytes(payload: bytes) -> None:
    made = changed(Kind.PUBLISH, payload_format=Format.JSON)
    written = to_json(made, payload)
    assert json.loads(written)["data"] == json.loads(payload)
    assert from_json(written) == (made, payload)


@pytest.mark.parametrize(
    ("form", "payload"), [(Format.JSON, b"{"), (Format.JSON, b" 17\n"), (Format.TEXT, b"\xff")]
)
def test_a_payload_that_is_not_what_its_format_says_goes_through(form: Format, payload: bytes) -> None:
    made = changed(Kind.PUBLISH, payload_format=form)
    assert "data_base64" in json.loads(to_json(made, payload))
    assert from_json(to_json(made, payload)) == (made, payload)


def test_the_hash_and_other_extensions_go_through_as_they_came() -> None:
    more = {"hash": "not what it would be", "dataschema": "type.x/y", "time": "2026-01-01T00:00:00Z", "n": 7}
    attributes, payload = from_json(json.dumps({**PUBLISHED, **more, "pformat": 7, "data": "open"}))
    assert payload == b"open"
    assert attributes.extensions == more
    row = json.loads(to_json(attributes, b"changed"))
    assert {name: row[name] for name in more} == more


@pytest.mark.parametrize(
    "changes",
    [
        {"specversion": "0.3"},
        {"specversion": None},
        {"type": "com.example"},
        {"type": 5},
        {"id": "cf8b1bcd-30bd-43be-a8d3-ad1cde652e10"},
        {"id": None},
        {"source": "//VCU.VIN/body.access/1/door"},
        {"source": None},
        {"sink": "nowhere"},
        {"priority": "CS9"},
        {"priority": 4},
        {"ttl": "10"},
        {"ttl": -1},
        {"ttl": 1 << 32},
        {"plevel": 1.5},
        {"commstatus": 17},
        {"reqid": "x"},
        {"traceparent": "x"},
        {"pformat": 9},
        {"pformat": 7},
        {"pformat": 7, "data": 5},
        {"pformat": 7, "data": "\ud800"},
        {"pformat": 6, "data": "x"},
        {"data": 1, "data_base64": "AA=="},
        {"data_base64": "A"},
        {"data_base64": 5},
        {"other": {"deep": 1}},
        {"type": "up-req.v1"},
    ],
)
def test_a_cloudevent_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidAttributes):
        from_json(json.dumps({**PUBLISHED, **changes}))


@pytest.mark.parametrize("form", [{}, {"pformat": 2}, {"pformat": 7}])
def test_data_that_is_not_utf_8_is_refused(form: dict[str, int]) -> None:
    """It was an internal error, or was passed on as JSON."""
    text = json.dumps({**PUBLISHED, **form, "data": "ab"}).encode()
    with pytest.raises(InvalidAttributes, match="UTF-8"):
        from_json(text.replace(b'"ab"', b'"\xff\xfe"'))


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_text_is_a_cloudevent_or_refused(data: bytes | str) -> None:
    with pytest.raises(InvalidAttributes):
        from_json(data)


def test_an_event_without_attributes_is_a_cloudevent_too() -> None:
    event = Batch.build(b"s" * 16, "plant/line 1", 7, [b"21", b"\xff"], time_us=1_500_000).events()
    row = json.loads(event_to_json(event[0]))
    assert (row["id"], row["source"], row["type"]) == (event[0].id, "/plant/line%201", "reknit.v1")
    assert (row["specversion"], row["time"], row["data"]) == ("1.0", "1970-01-01T00:00:01.500000Z", "21")
    assert json.loads(event_to_json(event[1]))["data_base64"] == "/w=="


# -- UMessage


@given(sound(), st.binary(max_size=30))
def test_any_event_survives_being_a_umessage(attributes: Attributes, payload: bytes) -> None:
    plain = structs.replace(attributes, extensions={})
    assert from_umessage(to_umessage(attributes, payload)) == (plain, payload)


@pytest.mark.parametrize(("authority", "entity", "version", "resource", "data"), URI_BYTES)
def test_uri_in_protobuf_is_as_specified(
    authority: str, entity: int, version: int, resource: int, data: str
) -> None:
    address = Address(authority, entity, version, resource)
    kind = message_type("UUri")
    assert address_of(kind.FromString(bytes.fromhex(data))) == address
    assert address_of(kind.FromString(uri_message(address).SerializeToString())) == address


@pytest.mark.parametrize(("msb", "lsb", "data"), UUID_BYTES)
def test_uuid_in_protobuf_is_as_specified(msb: int, lsb: int, data: str) -> None:
    value = UUID(int=msb << 64 | lsb)
    kind = message_type("UUID")
    assert uuid_of(kind.FromString(bytes.fromhex(data))) == value
    assert uuid_of(kind.FromString(uuid_message(value).SerializeToString())) == value


def test_priorities_are_one_more_in_protobuf() -> None:
    made = message_type("UMessage").FromString(to_umessage(SOUND[Kind.REQUEST], b"x"))
    assert made.attributes.priority == Priority.CS4 + 1
    assert (made.attributes.type, made.payload) == (2, b"x")


def message(**changes: Any) -> bytes:
    made = message_type("UMessage").FromString(to_umessage(SOUND[Kind.PUBLISH], b"x"))
    for name, value in changes.items():
        if value is None:
            made.attributes.ClearField(name)
        elif isinstance(value, int | str):
            setattr(made.attributes, name, value)
        else:
            getattr(made.attributes, name).CopyFrom(value)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        message(id=None),
        message(source=None),
        message(type=0),
        message(type=5),
        message(priority=8),
        message(payload_format=99),
        message(commstatus=17),
        message(sink=uri_message(CLIENT)),
        message(source=uri_message(METHOD)),
        message(id=message_type("UUID")(msb=1, lsb=1)),
        message(source=message_type("UUri")(authority_name="VCU")),
        message(source=message_type("UUri")(ue_version_major=256)),
    ],
)
def test_a_umessage_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidAttributes):
        from_umessage(data)


def test_a_format_without_a_payload_is_refused_and_nothing_at_all_is_not() -> None:
    made = message_type("UMessage").FromString(to_umessage(SOUND[Kind.PUBLISH], b""))
    assert not made.HasField("payload")
    assert from_umessage(made.SerializeToString()) == (SOUND[Kind.PUBLISH], b"")
    made.attributes.payload_format = 6
    with pytest.raises(InvalidAttributes, match="payload"):
        from_umessage(made.SerializeToString())


@given(st.sampled_from(Code), texts)
def test_a_status_is_uprotocols(code: Code, text: str) -> None:
    found = message_type("UStatus").FromString(to_status(code, text))
    assert (found.code, found.message) == (code, text)


def test_nothing_but_the_umessage_needs_protobuf() -> None:
    code = (
        "import sys; sys.modules['google.protobuf'] = None\n"
        "import reknit.client.session, reknit.node.node, reknit.envelope.columns, reknit.envelope.cloudevents"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
