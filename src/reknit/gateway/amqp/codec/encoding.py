"""AMQP 1.0 types: bytes to values and back. Nothing here knows messages or links.

The upper half of a constructor says how long the value is, so that a value can be skipped without decoding it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

import msgspec

from reknit.errors import RemoteError

DEPTH_MAX: Final = 32
"""How deeply values may be nested."""
DESCRIBED: Final = 0x00
_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SMALL: Final = (0xA, 0xC, 0xE)
_LARGE: Final = (0xB, 0xD, 0xF)


class MalformedValue(RemoteError):
    """Bytes that are not an AMQP value.

    >>> print(MalformedValue("ends within a value", 7))
    not AMQP: ends within a value, at byte 7
    """

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what, at)
        self.what, self.at = what, at

    def __str__(self) -> str:
        return f"not AMQP: {self.what}, at byte {self.at}"


class Symbol(str):
    """A name from a fixed set, in ASCII.

    >>> Symbol("amqp:accepted:list")
    'amqp:accepted:list'
    """

    __slots__ = ()


class Described(msgspec.Struct, frozen=True):
    """A value with a descriptor that says what it means.

    >>> Described(0x70, []).descriptor
    112
    """

    descriptor: Any
    value: Any


class Timestamp(int):
    """Milliseconds since 1970.

    >>> Timestamp(1)
    1
    """

    __slots__ = ()


def skip(data: bytes, at: int) -> int:
    """Where the value at `at` ends. Raises `MalformedValue`.

    >>> skip(encode("abc"), 0)
    5
    """
    try:
        code = data[at]
        for _ in range(DEPTH_MAX):
            if code != DESCRIBED:
                break
            at = skip_plain(data, at + 1, data[at + 1])  # the descriptor
            code = data[at]
        return skip_plain(data, at, code)
    except (IndexError, struct.error):
        raise MalformedValue("ends within a value", at) from None


def skip_plain(data: bytes, at: int, code: int) -> int:
    """Like `skip`, for a value without a descriptor whose constructor is known."""
    half = code >> 4
    width = _WIDTHS.get(half)
    if width is not None:
        end = at + 1 + width
    elif half in _SMALL:
        end = at + 2 + data[at + 1]
    elif half in _LARGE:
        end = at + 5 + int(_U32.unpack_from(data, at + 1)[0])
    else:
        raise MalformedValue(f"unknown type {code:#04x}", at)
    if end > len(data):
        raise MalformedValue("ends within a value", at)
    return end


def decode(data: bytes, at: int = 0, depth: int = 0) -> tuple[Any, int]:
    """The value at `at` and where it ends. Raises `MalformedValue`.

    >>> decode(encode({"a": [1, True, None, b"x"]}))[0]
    {'a': [1, True, None, b'x']}
    """
    if depth > DEPTH_MAX:
        raise MalformedValue(f"nested more than {DEPTH_MAX} levels deep", at)
    try:
        code = data[at]
        if code != DESCRIBED:
            return _decode_plain(data, at, code, depth)
        descriptor, at = decode(data, at + 1, depth + 1)
        value, at = decode(data, at, depth + 1)
        return Described(descriptor, value), at
    except (IndexError, struct.error):
        raise MalformedValue("ends within a value", at) from None


def _decode_plain(data: bytes, at: int, code: int, depth: int) -> tuple[Any, int]:
    end = skip_plain(data, at, code)
    read = _READERS.get(code)
    if read is not None:
        try:
            return read(data, at + 1, end), end
        except (ValueError, OverflowError) as error:
            raise MalformedValue(f"a value that can't be decoded ({error})", at) from None
    if code in (0xC0, 0xC1):
        return _compound(data, at + 2, end, data[at + 2], at + 3, code == 0xC1, depth), end
    if code in (0xD0, 0xD1):
        count = _U32.unpack_from(data, at + 5)[0]
        return _compound(data, at + 5, end, count, at + 9, code == 0xD1, depth), end
    if code == 0xE0:
        return _array(data, end, data[at + 2], at + 3, depth), end
    if code == 0xF0:
        return _array(data, end, _U32.unpack_from(data, at + 5)[0], at + 9, depth), end
    raise MalformedValue(f"unknown type {code:#04x}", at)


def _compound(data: bytes, at: int, end: int, count: int, first: int, is_map: bool, depth: int) -> Any:
    if count > end - at:  # an element has at least one byte
        raise MalformedValue(f"{count} elements do not fit", at)
    values: list[Any] = []
    at = first
    for _ in range(count):
        value, at = decode(data, at, depth + 1)
        values.append(value)
    if at > end:
        raise MalformedValue("an element that is longer than its list", at)
    if not is_map:
        return values
    if count % 2:
        raise MalformedValue("a map with a key and no value", at)
    try:
        return dict(zip(values[::2], values[1::2], strict=True))
    except TypeError:
        raise MalformedValue("a map whose key is a list or a map", at) from None


def _array(data: bytes, end: int, count: int, at: int, depth: int) -> list[Any]:
    """Decode an array: its elements share one constructor."""
    if depth > DEPTH_MAX:
        raise MalformedValue(f"nested more than {DEPTH_MAX} levels deep", at)
    descriptor: list[Any] = []
    if data[at] == DESCRIBED:
        found, at = decode(data, at + 1, depth + 1)
        descriptor.append(found)
    code, at = data[at], at + 1
    if count > end:  # elements without bytes of their own are bounded too
        raise MalformedValue(f"{count} elements do not fit", at)
    values: list[Any] = []
    for _ in range(count):
        value, at = _decode_plain(data, at - 1, code, depth + 1)  # as if the constructor stood before each
        values.append(Described(descriptor[0], value) if descriptor else value)
    if at > end:
        raise MalformedValue("an element that is longer than its array", at)
    return values


# -- decoding one value of each fixed or variable type: (data, where its bytes start, where they end)

_U32: Final = struct.Struct(">I")


def _number(form: str) -> Callable[[bytes, int, int], Any]:
    unpack = struct.Struct(">" + form).unpack_from
    return lambda data, at, end: unpack(data, at)[0]


def _text(offset: int, encoding: str, kind: type[str]) -> Callable[[bytes, int, int], Any]:
    return lambda data, at, end: kind(str(data[at + offset : end], encoding))


_READERS: Final[dict[int, Callable[[bytes, int, int], Any]]] = {
    0x40: lambda data, at, end: None,
    0x41: lambda data, at, end: True,
    0x42: lambda data, at, end: False,
    0x43: lambda data, at, end: 0,
    0x44: lambda data, at, end: 0,
    0x45: lambda data, at, end: [],
    0x50: _number("B"),
    0x51: _number("b"),
    0x52: _number("B"),
    0x53: _number("B"),
    0x54: _number("b"),
    0x55: _number("b"),
    0x56: lambda data, at, end: data[at] != 0,
    0x60: _number("H"),
    0x61: _number("h"),
    0x70: _number("I"),
    0x71: _number("i"),
    0x72: _number("f"),
    0x73: lambda data, at, end: chr(_U32.unpack_from(data, at)[0]),
    0x74: lambda data, at, end: bytes(data[at:end]),
    0x80: _number("Q"),
    0x81: _number("q"),
    0x82: _number("d"),
    0x83: lambda data, at, end: Timestamp(int.from_bytes(data[at:end], "big", signed=True)),
    0x84: lambda data, at, end: bytes(data[at:end]),
    0x94: lambda data, at, end: bytes(data[at:end]),
    0x98: lambda data, at, end: UUID(bytes=bytes(data[at:end])),
    0xA0: lambda data, at, end: bytes(data[at + 1 : end]),
    0xB0: lambda data, at, end: bytes(data[at + 4 : end]),
    0xA1: _text(1, "utf-8", str),
    0xB1: _text(4, "utf-8", str),
    0xA3: _text(1, "ascii", Symbol),
    0xB3: _text(4, "ascii", Symbol),
}


# -- encoding


def variable(code: int, data: bytes) -> bytes:
    """A value of a variable type, by the code of its short form.

    >>> variable(0xA1, b"ab")
    b'\\xa1\\x02ab'
    """
    size = len(data)
    return bytes((code, size)) + data if size < 256 else bytes((code + 0x10,)) + _U32.pack(size) + data


def listed(values: list[bytes], code: int = 0xC0) -> bytes:
    """A list (or by its code a map) of encoded values.

    >>> listed([encode(True)])
    b'\\xc0\\x02\\x01A'
    """
    if not values and code == 0xC0:
        return b"\x45"
    body = b"".join(values)
    if len(body) < 255 and len(values) < 256:
        return bytes((code, len(body) + 1, len(values))) + body
    return bytes((code + 0x10,)) + _U32.pack(len(body) + 4) + _U32.pack(len(values)) + body


def encode(value: Any) -> bytes:
    """The bytes of a value, in the shortest form. Integers are longs.

    >>> encode(None), encode(7), encode(Symbol("a"))
    (b'@', b'U\\x07', b'\\xa3\\x01a')
    """
    for kind in type(value).__mro__:
        encoder = _ENCODERS.get(kind)
        if encoder is not None:
            return encoder(value)
    raise TypeError(f"{type(value).__name__} is not an AMQP type")


def _encode_int(value: int) -> bytes:
    return b"\x55" + struct.pack("b", value) if -128 <= value < 128 else b"\x81" + struct.pack(">q", value)


def _encode_list(values: Iterable[Any]) -> bytes:
    return listed([encode(one) for one in values])


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    Timestamp: lambda value: b"\x83" + int(value).to_bytes(8, "big", signed=True),
    int: _encode_int,
    float: lambda value: b"\x82" + struct.pack(">d", value),
    Symbol: lambda value: variable(0xA3, value.encode("ascii")),
    str: lambda value: variable(0xA1, value.encode()),
    bytes: lambda value: variable(0xA0, value),
    bytearray: lambda value: variable(0xA0, bytes(value)),
    memoryview: lambda value: variable(0xA0, bytes(value)),
    UUID: lambda value: b"\x98" + value.bytes,
    Described: lambda value: b"\x00" + ulong(value.descriptor) + encode(value.value),
    list: _encode_list,
    tuple: _encode_list,
    dict: lambda value: listed([encode(part) for pair in value.items() for part in pair], 0xC1),
}


def ulong(value: int) -> bytes:
    """The bytes of a descriptor.

    >>> ulong(0x73)
    b'Ss'
    """
    return bytes((0x53, value)) if value < 256 else b"\x80" + value.to_bytes(8, "big")


def symbols(names: list[str]) -> bytes:
    """An array of symbols.

    >>> decode(symbols(["PLAIN", "ANONYMOUS"]))[0]
    ['PLAIN', 'ANONYMOUS']
    """
    body = b"".join(bytes((len(name),)) + name.encode("ascii") for name in names)
    return bytes((0xE0, len(body) + 2, len(names), 0xA3)) + body
