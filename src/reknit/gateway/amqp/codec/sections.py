"""The sections of an AMQP message, and the types that each must have."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from reknit.gateway.amqp.codec.encoding import Described, MalformedValue, Symbol, Timestamp, decode

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(
    0x70, 0x79
)
FIELDS: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
_ID: Final = (int, UUID, bytes, str)
_FIELD_TYPES: Final[tuple[Any, ...]] = (
    _ID, bytes, str, str, str, _ID, Symbol, Symbol, Timestamp, Timestamp, str, int, str
)  # fmt: skip
_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
EMPTY: Final = (b"\x45", b"\xc1\x01\x00", b"\xc0\x01\x00", b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00")


def descriptor(data: bytes, at: int) -> tuple[int, int]:
    """The section that begins at `at`, and where its value begins."""
    try:
        if data[at] == 0 and data[at + 1] == 0x53 and HEADER <= data[at + 2] <= FOOTER:
            return data[at + 2], at + 3
        if data[at] == 0:
            found, end = decode(data, at + 1)
            section = _NAMES.get(found, 0) if isinstance(found, str) else found
            if isinstance(section, int) and HEADER <= section <= FOOTER:
                return section, end
    except IndexError:
        raise MalformedValue("ends within a section", at) from None
    raise MalformedValue("a section without its descriptor", at)


def check_section(section: int, value: Any, at: int) -> None:
    """Check the types of a section that is passed on: its receivers rely on them. Raises `MalformedValue`."""
    if section in (HEADER, PROPERTIES):
        is_fine = isinstance(value, list)
        if is_fine and section == PROPERTIES:
            typed = zip(value, _FIELD_TYPES, strict=False)
            is_fine = len(value) <= len(FIELDS) and all(
                one is None or (isinstance(one, kind) and type(one) is not bool) for one, kind in typed
            )
    else:
        is_fine = DELIVERY_ANNOTATIONS <= section <= FOOTER and isinstance(value, dict)
        if is_fine and section == APPLICATION:
            is_fine = all(type(key) is str for key in value) and not any(
                isinstance(one, list | dict | Described) for one in value.values()
            )
    if not is_fine:
        raise MalformedValue(f"section {section:#x} has a value of the wrong type", at)


def check_text(payload: bytes, at: int) -> None:
    """Raises `MalformedValue` if the bytes are not UTF-8."""
    try:
        str(payload, "utf-8")
    except UnicodeDecodeError:
        raise MalformedValue("a text that is not UTF-8", at) from None


def check_body(data: bytes, at: int) -> None:
    """Check the sections of a body that is passed on: its receivers rely on them. Raises `MalformedValue`."""
    while at < len(data):
        section, at = descriptor(data, at)
        if not DATA <= section <= FOOTER:
            raise MalformedValue(f"section {section:#x} after the body", at)
        _, at = decode(data, at)
