"""Events as CloudEvents in JSON, as uProtocol maps them.

`data` holds a JSON or text payload, `data_base64` any other. The bytes of a JSON payload are carried unchanged. Other
attributes than uProtocol's (`hash`, `dataschema`, `time` …) are passed through.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from reknit.address import Address
from reknit.decoding import UNREADABLE
from reknit.envelope.attributes import TTL_MS_MAX, Attributes, Format, Kind, Priority, check
from reknit.envelope.ids import parse_id
from reknit.errors import InvalidAddress, InvalidAttributes
from reknit.outcome import Code

SPEC_VERSION: Final = "1.0"
CONTENT_TYPE: Final = "application/cloudevents+json"
TYPES: Final = {
    Kind.PUBLISH: "up-pub.v1",
    Kind.REQUEST: "up-req.v1",
    Kind.RESPONSE: "up-res.v1",
    Kind.NOTIFICATION: "up-not.v1",
}
KINDS: Final = {
    **{text: kind for kind, text in TYPES.items()},
    "pub.v1": Kind.PUBLISH,
    "req.v1": Kind.REQUEST,
    "res.v1": Kind.RESPONSE,
}
"""Including names from earlier versions of uProtocol."""
PLAIN_TYPE: Final = "reknit.v1"
"""The type of events without attributes."""
_OURS: Final = frozenset(
    [
        "specversion",
        "type",
        "id",
        "source",
        "sink",
        "priority",
        "ttl",
        "plevel",
        "commstatus",
        "reqid",
        "token",
        "traceparent",
        "pformat",
        "data",
        "data_base64",
    ]
)

_encoder = msgspec.json.Encoder()
_rows = msgspec.json.Decoder(dict[str, msgspec.Raw])
_json = msgspec.json.Decoder()
_any_json = msgspec.json.Decoder(msgspec.Raw)


def to_json(attributes: Attributes, payload: bytes) -> bytes:
    """An event as a CloudEvent. A payload that does not match its format is carried in base64.

    >>> from reknit.envelope.ids import make_id
    >>> source = Address.parse("//vcu/10/1/8001")
    >>> event = Attributes(id=make_id(1, 2), type=Kind.PUBLISH, source=source, payload_format=Format.TEXT)
    >>> to_json(event, b"open")[-62:].decode()
    '"type":"up-pub.v1","priority":"CS1","pformat":7,"data":"open"}'
    """
    row: dict[str, Any] = {
        "specversion": SPEC_VERSION,
        "id": str(attributes.id),
        "source": str(attributes.source),
        "sink": None if attributes.sink is None else str(attributes.sink),
        "type": TYPES[attributes.type],
        "priority": attributes.priority.name,
        "ttl": attributes.ttl_ms or None,
        "plevel": attributes.permission_level,
        "commstatus": attributes.commstatus,
        "reqid": None if attributes.reqid is None else str(attributes.reqid),
        "token": attributes.token,
        "traceparent": attributes.traceparent,
        "pformat": attributes.payload_format or None,
    }
    row |= {name: value for name, value in attributes.extensions.items() if name not in _OURS}
    row |= _data(attributes.payload_format, payload)
    return _encoder.encode({name: value for name, value in row.items() if value is not None})


def _data(form: Format, payload: bytes) -> dict[str, Any]:
    try:
        if form is Format.JSON and bytes(raw := _any_json.decode(payload)) == payload:
            return {"data": raw}
        if form is Format.TEXT:
            return {"data": payload.decode()}
    except UNREADABLE:
        pass
    return {"data_base64": base64.b64encode(payload).decode()} if payload or form else {}


class PlainEvent(Protocol):
    """The parts of an event that become a CloudEvent: `reknit.batch.Event` is one."""

    @property
    def id(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def time(self) -> datetime: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def attributes(self) -> Attributes | None: ...


def event_to_json(event: PlainEvent) -> bytes:
    """Any event as a CloudEvent. Without attributes, its id is its source and seq, and its source is its topic.

    >>> from reknit.batch import Batch
    >>> event_to_json(Batch.build(bytes(16), "plant/temp", 7, [b"21"], time_us=0).events()[0])[-42:].decode()
    '"time":"1970-01-01T00:00:00Z","data":"21"}'
    """
    attributes = event.attributes
    if attributes is not None:
        return to_json(attributes, event.payload)
    row = {
        "specversion": SPEC_VERSION,
        "id": event.id,
        "source": f"/{quote(event.topic)}",
        "type": PLAIN_TYPE,
    }
    row["time"] = event.time.isoformat().replace("+00:00", "Z")
    return _encoder.encode({**row, **_data(Format.TEXT, event.payload)})


def from_json(data: bytes | str) -> tuple[Attributes, bytes]:
    """The event in a CloudEvent, validated. Raises `InvalidAttributes`."""
    try:
        rows = _rows.decode(data)
        content = rows.pop("data", None)
        found: dict[str, Any] = {name: _json.decode(raw) for name, raw in rows.items()}
    except UNREADABLE as error:
        raise InvalidAttributes("specversion", f"can't be read: {error}") from None
    found = {name: value for name, value in found.items() if value is not None}
    if found.get("specversion") != SPEC_VERSION:
        raise InvalidAttributes(
            "specversion", f"must be {SPEC_VERSION!r}, not {found.get('specversion')!r:.40}"
        )
    form, payload = _payload(found, None if content is None else bytes(content))
    return check(_attributes(found, form)), payload


def _attributes(found: dict[str, Any], form: Format) -> Attributes:
    kind = KINDS.get(_text(found, "type") or "")
    if kind is None:
        raise InvalidAttributes("type", f"must be one of {', '.join(KINDS)}, not {found.get('type')!r:.40}")
    source, reqid = _address(found, "source"), _text(found, "reqid")
    if source is None:
        raise InvalidAttributes("source", "is missing")
    status = _integer(found, "commstatus", 16)
    return Attributes(
        id=parse_id(_text(found, "id") or ""),
        type=kind,
        source=source,
        sink=_address(found, "sink"),
        priority=_priority(_text(found, "priority")),
        ttl_ms=_integer(found, "ttl", TTL_MS_MAX) or 0,
        permission_level=_integer(found, "plevel", (1 << 32) - 1),
        commstatus=None if status is None else Code(status),
        reqid=None if reqid is None else parse_id(reqid, "reqid"),
        token=_text(found, "token"),
        traceparent=_text(found, "traceparent"),
        payload_format=form,
        extensions=_extensions(found),
    )


def _text(found: dict[str, Any], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidAttributes(name, f"must be text, not {value!r:.40}")
    return value


def _integer(found: dict[str, Any], name: str, high: int) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= high:
        raise InvalidAttributes(name, f"must be an integer from 0 to {high}, not {value!r:.40}")
    return value


def _address(found: dict[str, Any], name: str) -> Address | None:
    text = _text(found, name)
    try:
        return None if text is None else Address.parse(text)
    except InvalidAddress as error:
        raise InvalidAttributes(name, f"is not valid: {error}") from None


def _priority(text: str | None) -> Priority:
    if text is None:
        return Priority.CS1
    try:
        return Priority[text]
    except KeyError:
        raise InvalidAttributes("priority", f"must be from CS0 to CS6, not {text!r:.40}") from None


def _extensions(found: dict[str, Any]) -> dict[str, str | int | bool]:
    rest = {name: value for name, value in found.items() if name not in _OURS}
    for name, value in rest.items():
        if not isinstance(value, str | int):
            raise InvalidAttributes(name, f"must be text, an integer, true or false, not {value!r:.40}")
    return rest


def _payload(found: dict[str, Any], content: bytes | None) -> tuple[Format, bytes]:
    """The payload and its format. `data` without a format is JSON, as CloudEvents specifies."""
    number, packed = _integer(found, "pformat", max(Format)), _text(found, "data_base64")
    if content is not None and packed is not None:
        raise InvalidAttributes("data", "and data_base64 must not both be set")
    if packed is not None:
        try:
            return Format(number or 0), base64.b64decode(packed, validate=True)
        except binascii.Error as error:
            raise InvalidAttributes("data_base64", f"can't be read: {error}") from None
    if content is None:
        if number:
            raise InvalidAttributes("pformat", "is set, but there is no data")
        return Format.UNSPECIFIED, b""
    if not _is_utf8(content):
        raise InvalidAttributes("data", "is not UTF-8")
    if number == Format.TEXT:
        return Format.TEXT, _utf8(_json.decode(content))
    if number not in (None, 0, Format.JSON):
        raise InvalidAttributes("data", f"must be in data_base64 for pformat {number}")
    return Format.JSON, content


def _is_utf8(content: bytes) -> bool:
    """msgspec checks a text when it decodes it, and `data` is passed on as it came."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _utf8(text: Any) -> bytes:
    try:
        if isinstance(text, str):
            return text.encode()
    except UnicodeEncodeError:
        pass
    raise InvalidAttributes("data", "must be text, because pformat is 7")
