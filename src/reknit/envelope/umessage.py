"""Events as uProtocol's `UMessage` in protobuf. Needs the extra `uprotocol`.

The types are described here and built on first use, in a pool of their own: there is no generated code, and no conflict
with a program that uses uProtocol's own library.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from uuid import UUID

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from reknit.address import Address
from reknit.envelope.attributes import Attributes, Format, Kind, Priority, check
from reknit.errors import InvalidAddress, InvalidAttributes
from reknit.outcome import Code

_Field: Final = descriptor_pb2.FieldDescriptorProto
_PACKAGE: Final = "uprotocol.v1"
_FIXED64, _UINT32, _ENUM = _Field.TYPE_FIXED64, _Field.TYPE_UINT32, _Field.TYPE_INT32
_STRING, _BYTES, _MESSAGE = _Field.TYPE_STRING, _Field.TYPE_BYTES, _Field.TYPE_MESSAGE

_TYPES: Final[dict[str, list[tuple[str, int, Any]]]] = {
    "UUID": [("msb", 1, _FIXED64), ("lsb", 2, _FIXED64)],
    "UUri": [
        ("authority_name", 1, _STRING),
        ("ue_id", 2, _UINT32),
        ("ue_version_major", 3, _UINT32),
        ("resource_id", 4, _UINT32),
    ],
    "UAttributes": [
        ("id", 1, "UUID"),
        ("type", 2, _ENUM),
        ("source", 3, "UUri"),
        ("sink", 4, "UUri"),
        ("priority", 5, _ENUM),
        ("ttl?", 6, _UINT32),
        ("permission_level?", 7, _UINT32),
        ("commstatus?", 8, _ENUM),
        ("reqid", 9, "UUID"),
        ("token?", 10, _STRING),
        ("traceparent?", 11, _STRING),
        ("payload_format", 12, _ENUM),
    ],
    "UMessage": [("attributes", 1, "UAttributes"), ("payload?", 2, _BYTES)],
    "UStatus": [("code", 1, _ENUM), ("message?", 2, _STRING)],
}
"""Fields by name, number and type; `?` marks an optional field. An enum is declared as int32, which has the same
encoding, so that unknown numbers can be refused with a clear error."""


@cache
def message_type(name: str) -> Any:
    """The class of a uProtocol type.

    >>> message_type("UUID")(msb=1, lsb=2).SerializeToString().hex()
    '090100000000000000110200000000000000'
    """
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="reknit/uprotocol.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _TYPES.items():
        described = file.message_type.add(name=name)
        for title, number, kind in fields:
            _describe(described, title, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _describe(described: Any, title: str, number: int, kind: Any) -> None:
    name = title.removesuffix("?")
    field = described.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if isinstance(kind, str):
        field.type, field.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = kind
    if title.endswith("?"):
        field.proto3_optional = True
        field.oneof_index = len(described.oneof_decl)
        described.oneof_decl.add(name=f"_{name}")


# -- writing


def to_umessage(attributes: Attributes, payload: bytes) -> bytes:
    """An event as the bytes of a `UMessage`. Raises `InvalidAttributes`."""
    head: dict[str, Any] = {
        "id": uuid_message(attributes.id),
        "type": int(attributes.type),
        "source": uri_message(attributes.source),
        "sink": None if attributes.sink is None else uri_message(attributes.sink),
        "priority": attributes.priority + 1,
        "ttl": attributes.ttl_ms or None,
        "permission_level": attributes.permission_level,
        "commstatus": None if attributes.commstatus is None else int(attributes.commstatus),
        "reqid": None if attributes.reqid is None else uuid_message(attributes.reqid),
        "token": attributes.token,
        "traceparent": attributes.traceparent,
        "payload_format": int(attributes.payload_format),
    }
    there = {name: value for name, value in head.items() if value is not None}
    body = payload if payload or attributes.payload_format else None
    try:
        message = message_type("UMessage")(attributes=message_type("UAttributes")(**there), payload=body)
        return bytes(message.SerializeToString())
    except (ValueError, TypeError, EncodeError) as error:
        raise InvalidAttributes("token", f"can't be written: {error}") from None


def uuid_message(value: UUID) -> Any:
    """An id as a `UUID`."""
    return message_type("UUID")(msb=value.int >> 64, lsb=value.int & ((1 << 64) - 1))


def uri_message(address: Address) -> Any:
    """An address as a `UUri`."""
    return message_type("UUri")(
        authority_name=address.authority,
        ue_id=address.entity,
        ue_version_major=address.version,
        resource_id=address.resource,
    )


# -- reading


def from_umessage(data: bytes) -> tuple[Attributes, bytes]:
    """The event in the bytes of a `UMessage`, validated. Raises `InvalidAttributes`."""
    try:
        message = message_type("UMessage").FromString(data)
    except DecodeError as error:
        raise InvalidAttributes("message", f"can't be read: {error}") from None
    head = message.attributes
    for name in ("id", "source"):
        if not head.HasField(name):
            raise InvalidAttributes(name, "is missing")
    if head.payload_format and not message.HasField("payload"):
        raise InvalidAttributes("payload_format", "is set, but there is no payload")
    attributes = Attributes(
        id=uuid_of(head.id),
        type=_one_of(Kind, head.type, "type"),
        source=address_of(head.source, "source"),
        sink=address_of(head.sink, "sink") if head.HasField("sink") else None,
        priority=_one_of(Priority, head.priority - 1, "priority") if head.priority else Priority.CS1,
        ttl_ms=head.ttl,
        permission_level=head.permission_level if head.HasField("permission_level") else None,
        commstatus=_one_of(Code, head.commstatus, "commstatus") if head.HasField("commstatus") else None,
        reqid=uuid_of(head.reqid) if head.HasField("reqid") else None,
        token=head.token if head.HasField("token") else None,
        traceparent=head.traceparent if head.HasField("traceparent") else None,
        payload_format=_one_of(Format, head.payload_format, "payload_format"),
    )
    return check(attributes), bytes(message.payload)


def uuid_of(message: Any) -> UUID:
    """The id in a `UUID`, of any version."""
    return UUID(int=message.msb << 64 | message.lsb)


def address_of(message: Any, name: str = "source") -> Address:
    """The address in a `UUri`. Raises `InvalidAttributes`."""
    try:
        return Address(message.authority_name, message.ue_id, message.ue_version_major, message.resource_id)
    except InvalidAddress as error:
        raise InvalidAttributes(name, f"is not valid: {error}") from None


def _one_of(kind: Any, number: int, name: str) -> Any:
    try:
        return kind(number)
    except ValueError:
        raise InvalidAttributes(name, f"can't be {number}") from None
