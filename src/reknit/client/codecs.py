"""Codecs: what a payload's bytes mean to a program, and the content type that says so to others.

    async with session.subscribe("orders/**", codec=Order) as orders:   # Order: a msgspec Struct, a dataclass, …
        async for order in orders:
            order.payload.quantity

A codec is chosen by the program at each end. The node never opens a payload.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec

from reknit.decoding import UNREADABLE
from reknit.errors import InvalidPayload, LocalError

T = TypeVar("T")
U = TypeVar("U")

CONTENT_TYPE: Final = "content-type"
"""The header of an event that names the format of its payload."""

_Make = Callable[[Any], tuple[Callable[[Any], bytes], Callable[[bytes], Any]]]


class Undecodable(Exception):
    """A payload is not what the codec says. The text says why."""


class Codec(Generic[T]):
    """Turns values into payloads, and payloads into values.

    >>> JSON.encode({"temp": 21.5}), MsgPack.of(list[int]).decode(b"\\x92\\x01\\x02")
    (b'{"temp":21.5}', [1, 2])
    >>> JSON.of(list[int]).decode(b"[true]")
    Traceback (most recent call last):
    ...
    reknit.client.codecs.Undecodable: the payload is not JSON of list[int]: Expected `int`, got `bool` - at `$[0]`
    """

    def __init__(self, name: str, content_type: str, make: _Make, type: Any = Any) -> None:
        self.name = name
        self.content_type = content_type
        self._make = make
        self._type = type
        self._encode, self._decode = make(type)

    def of(self, type: type[U]) -> Codec[U]:
        """The same format for values of one type: others are refused, at both ends."""
        return cast(Codec[U], Codec(self.name, self.content_type, self._make, type))

    def __repr__(self) -> str:
        return self.name if self._type is Any else f"{self.name}.of({_name(self._type)})"

    def encode(self, value: T) -> bytes:
        """The payload. Raises `InvalidPayload`."""
        if _is_checked(self._type) and not isinstance(value, self._type):
            raise InvalidPayload(value, f"this publisher takes {_name(self._type)}")
        try:
            return self._encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidPayload(value, f"it can't be written as {self.name}: {error}") from None

    def decode(self, payload: bytes) -> T:
        """The value. Raises `Undecodable`."""
        try:
            value: T = self._decode(payload)
        except (*UNREADABLE, ValueError) as error:
            of = "" if self._type is Any else f" of {_name(self._type)}"
            raise Undecodable(f"the payload is not {self.name}{of}: {error}") from None
        return value


CodecOf: TypeAlias = Codec[T] | type[T]
"""A codec, or a type whose values are sent as JSON."""


def _name(type: Any) -> str:
    return type.__name__ if isinstance(type, _CLASS) and not hasattr(type, "__args__") else str(type)


_CLASS: Final = type


def _is_checked(type: Any) -> bool:
    """Whether `isinstance` can tell if a value is of this type: not for `list[int]` or a TypedDict."""
    plain = isinstance(type, _CLASS) and not hasattr(type, "__args__") and not hasattr(type, "__total__")
    return plain and type is not Any


def _json(type: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    if hasattr(type, "model_validate_json") and hasattr(
        type, "model_dump_json"
    ):  # pydantic, if it is installed
        return lambda value: value.model_dump_json().encode(), type.model_validate_json
    return msgspec.json.Encoder().encode, msgspec.json.Decoder(type).decode


def _msgpack(type: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    return msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(type).decode


JSON: Final[Codec[Any]] = Codec("JSON", "application/json", _json)
"""Payloads are JSON."""
MsgPack: Final[Codec[Any]] = Codec("MsgPack", "application/msgpack", _msgpack)
"""Payloads are MessagePack: smaller than JSON, and with bytes."""


def codec_of(codec: CodecOf[T]) -> Codec[T]:
    """The codec itself, or JSON for values of a type. Raises `LocalError`.

    >>> codec_of(JSON), codec_of(dict)
    (JSON, JSON.of(dict))
    >>> codec_of("json")
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid codec 'json': pass reknit.JSON, reknit.MsgPack or a type, such as a msgspec Struct.
    """
    if isinstance(codec, Codec):
        return codec
    if not isinstance(codec, _CLASS) and not hasattr(codec, "__origin__"):
        text = "pass reknit.JSON, reknit.MsgPack or a type, such as a msgspec Struct."
        raise LocalError(f"Invalid codec {codec!r}: {text}")
    try:
        return cast(Codec[T], _json_of(cast(Hashable, codec)))
    except TypeError as error:
        raise LocalError(f"Invalid codec {codec!r}: {error}") from None


@lru_cache(maxsize=256)
def _json_of(type: Any) -> Codec[Any]:
    return JSON.of(type)
