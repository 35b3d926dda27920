"""A status: why a request failed, as the payload of its response.

It is uProtocol's `UStatus` in protobuf (a code as field 1, a text as field 2). It is small enough to encode and decode
here, so that a node does not need protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

TEXT_BYTES_MAX: Final = 1024
"""A longer text is truncated."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def to_status(code: int, text: str) -> bytes:
    r"""The bytes of a status.

    >>> to_status(14, "away")
    b'\x08\x0e\x12\x04away'
    """
    words = text.encode("utf-8", "replace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()
    return b"\x08" + _varint(code) + b"\x12" + _varint(len(words)) + words


def from_status(data: bytes) -> tuple[int, str] | None:
    """Code and text of a status; None if the bytes are not a status.

    >>> from_status(to_status(14, "away"))
    (14, 'away')
    >>> from_status(b"oops") is None
    True
    """
    code, text = 0, ""
    try:
        for number, value in _fields(data):
            if number == 1 and isinstance(value, int):
                code = value
            elif number == 2 and isinstance(value, bytes):
                text = value.decode()
    except (ValueError, IndexError):
        return None
    return code, text


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _read_varint(data, at)
            yield tag >> 3, number
            continue
        if kind == _LENGTH:
            size, at = _read_varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"field type {kind} is unknown")
        if tag >> 3 == 0 or at + size > len(data):
            raise ValueError("a field is cut off")
        yield tag >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 70:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("a number has more than 64 bits")
