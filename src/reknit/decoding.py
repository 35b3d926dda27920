"""Decoding of packed values that came from a network or a file: they are valid, or one known error is raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from reknit.errors import MalformedFrame
from reknit.frame import Buffer

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Everything that msgspec raises for bytes that it can't decode: text that is not UTF-8 and values that are nested too
deeply have errors of their own."""

T = TypeVar("T")


def decode_packed(decode: Callable[[Buffer], T], data: Buffer, what: str) -> T:
    """What `decode` makes of the bytes. Raises `MalformedFrame`, which names `what` can't be read, and nothing else.

    >>> decode_packed(msgspec.msgpack.Decoder(str).decode, b"\\xa2hi", "a name")
    'hi'
    """
    try:
        return decode(data)
    except UNREADABLE as error:
        raise MalformedFrame(f"{what} can't be read ({error})", f"{len(data)} bytes") from None
