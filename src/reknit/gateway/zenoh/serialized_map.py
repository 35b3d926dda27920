"""Zenoh's serialized map of text, which the headers of an event are in as an attachment.

Zenoh's own reader takes a length for true before the bytes are there, and ends the process if memory does not suffice.
"""

from __future__ import annotations

from typing import Final

LENGTH_BYTES_MAX: Final = 5
"""A length has 7 bits in each byte: 35 bits are more than any attachment has bytes."""


def read_map(data: bytes) -> dict[str, str]:
    """The texts. Raises `ValueError` if these bytes are not a map of text.

    >>> read_map(b"\\x02\\x01a\\x01b\\x02cc\\x00")
    {'a': 'b', 'cc': ''}
    """
    count, at = _length(data, 0)
    found: dict[str, str] = {}
    for _ in range(count):
        name, at = _text(data, at)
        found[name], at = _text(data, at)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes are left over")
    return found


def _text(data: bytes, at: int) -> tuple[str, int]:
    size, at = _length(data, at)
    if at + size > len(data):
        raise ValueError(f"a text of {size} bytes ends after the map")
    return data[at : at + size].decode(), at + size


def _length(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for index, byte in enumerate(data[at : at + LENGTH_BYTES_MAX]):
        found |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return found, at + index + 1
    raise ValueError("a length does not end")
