"""uProtocol addresses, patterns of addresses, and the topics that they map to.

    [up:][//AUTHORITY]/ENTITY/VERSION/RESOURCE

The three numbers are hexadecimal. The lower half of an entity is its service, the upper half its instance. An address
maps to a topic, segment by segment, and back:

    up/AUTHORITY/SERVICE/INSTANCE/VERSION/RESOURCE

The topic of an address without an authority has `LOCAL` there, which is not a valid authority. A wildcard in an address
becomes `*` in the pattern of its topic, so that both match the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from reknit.errors import InvalidAddress
from reknit.topic import Pattern

__all__ = ["Address"]

AUTHORITY_CHARS_MAX: Final = 128
ANY_AUTHORITY: Final = "*"
ANY_HALF: Final = 0xFFFF
ANY_VERSION: Final = 0xFF
ANY_RESOURCE: Final = 0xFFFF
CACHED_MAX: Final = 4096
"""How many recently parsed addresses are cached."""
ROOT: Final = "up"
LOCAL: Final = "LOCAL"

_NAME = re.compile(r"[a-z0-9._~-]+")
_FUTURE_LITERAL = re.compile(r"v[0-9a-f]+\.[a-z0-9._~!$&'()*+,;=:-]+")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_DIGITS = {"entity": 8, "version": 2, "resource": 4}
_LIMITS = {"entity": 1 << 32, "version": 1 << 8, "resource": 1 << 16}
_TOPIC_DIGITS = (4, 4, 2, 4)


@dataclass(frozen=True, slots=True)
class Address:
    """An address, or a pattern that addresses match.

    >>> Address.parse("up://my_vin/10000001/2/1A")
    Address(authority='my_vin', entity=268435457, version=2, resource=26)
    >>> str(Address("my_vin", 0x10000001, 2, 0x1A))
    'up://my_vin/10000001/2/1A'
    """

    authority: str
    entity: int
    version: int
    resource: int

    def __post_init__(self) -> None:
        _check_authority(self.authority, self.authority)
        for name, limit in _LIMITS.items():
            if not 0 <= getattr(self, name) < limit:
                value = getattr(self, name)
                raise InvalidAddress(str(value), f"is not a valid {name}; use 0 to {limit - 1:X} hexadecimal")

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address in a text. Raises `InvalidAddress`.

        >>> Address.parse("/1/1/a1fb") == Address("", 1, 1, 0xA1FB)
        True
        """
        return _parse(text)

    def __str__(self) -> str:
        authority = f"//{self.authority}" if self.authority else ""
        return f"up:{authority}/{self.entity:X}/{self.version:X}/{self.resource:X}"

    @property
    def service(self) -> int:
        """The lower half of the entity.

        >>> Address.parse("/2B1A5/1/1").service == 0xB1A5
        True
        """
        return self.entity & 0xFFFF

    @property
    def instance(self) -> int:
        """The upper half of the entity.

        >>> Address.parse("/2B1A5/1/1").instance
        2
        """
        return self.entity >> 16

    @property
    def is_pattern(self) -> bool:
        """True if any part is a wildcard.

        >>> Address.parse("//*/1/1/1").is_pattern, Address.parse("/1/1/1").is_pattern
        (True, False)
        """
        halves = ANY_HALF in (self.service, self.instance)
        numbers = self.version == ANY_VERSION or self.resource == ANY_RESOURCE
        return halves or numbers or self.authority == ANY_AUTHORITY

    def matches(self, candidate: Address) -> bool:
        """True if the candidate matches this pattern.

        >>> Address.parse("//*/FFFFFFFF/1/A1FB").matches(Address.parse("/10001/1/A1FB"))
        True
        """
        return (
            self.authority in (ANY_AUTHORITY, candidate.authority)
            and self.service in (ANY_HALF, candidate.service)
            and self.instance in (ANY_HALF, candidate.instance)
            and self.version in (ANY_VERSION, candidate.version)
            and self.resource in (ANY_RESOURCE, candidate.resource)
        )

    @property
    def topic(self) -> str:
        """The topic of an address without wildcards. Raises `InvalidAddress`.

        >>> Address.parse("//vcu.my_vin/2B1A5/1/8001").topic
        'up/vcu.my_vin/B1A5/2/1/8001'
        """
        return _topic(self)

    @property
    def pattern(self) -> Pattern:
        """The topics of all addresses that match this one.

        >>> Address.parse("//*/FFFF0010/FF/8001").pattern.text
        'up/*/10/*/*/8001'
        """
        return Pattern(_segments(self))

    @classmethod
    def from_topic(cls, topic: str) -> Address:
        """The address that maps to a topic. Raises `InvalidAddress`.

        >>> str(Address.from_topic("up/LOCAL/1/0/1/A1FB"))
        'up:/1/1/A1FB'
        """
        return _from_topic(topic)


@lru_cache(CACHED_MAX)
def _parse(text: str) -> Address:
    rest = text.removeprefix("up:")
    authority = ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        _check_authority(authority or "//", text)
        rest = slash + rest
    parts = rest.split("/")
    if len(parts) != 4 or parts[0]:
        raise InvalidAddress(text, "is not a valid address; write [up:][//AUTHORITY]/ENTITY/VERSION/RESOURCE")
    numbers = zip(_DIGITS.items(), parts[1:], strict=True)
    return Address(authority, *(_number(part, name, digits, text) for (name, digits), part in numbers))


@lru_cache(CACHED_MAX)
def _topic(address: Address) -> str:
    if address.is_pattern:
        raise InvalidAddress(str(address), "has wildcards; a topic needs an address without wildcards")
    return _segments(address)


@lru_cache(CACHED_MAX)
def _from_topic(topic: str) -> Address:
    root, *segments = topic.split("/")
    if root != ROOT or len(segments) != 5:
        raise InvalidAddress(
            topic, "is not the topic of an address; such a topic begins with up/ and has six segments"
        )
    numbers = [
        _number(segment, "topic", digits, topic)
        for segment, digits in zip(segments[1:], _TOPIC_DIGITS, strict=True)
    ]
    authority = "" if segments[0] == LOCAL else segments[0]
    address = Address(authority, numbers[0] | numbers[1] << 16, numbers[2], numbers[3])
    if address.topic != topic:
        raise InvalidAddress(topic, f"is not the canonical topic of its address; write {address.topic!r}")
    return address


def _segments(address: Address) -> str:
    """The address's topic, or the pattern of it."""
    segments = (
        address.authority or LOCAL,
        _segment(address.service, ANY_HALF),
        _segment(address.instance, ANY_HALF),
        _segment(address.version, ANY_VERSION),
        _segment(address.resource, ANY_RESOURCE),
    )
    return "/".join((ROOT, *segments))


def _segment(number: int, wildcard: int) -> str:
    return "*" if number == wildcard else f"{number:X}"


def _number(text: str, name: str, digits: int, whole: str) -> int:
    if not _HEX.fullmatch(text) or len(text) > digits:
        raise InvalidAddress(
            whole, f"has {text!r} as its {name}; write 1 to {digits} hexadecimal digits, 0-9 and A-F"
        )
    return int(text, 16)


def _check_authority(authority: str, whole: str) -> None:
    if len(authority) > AUTHORITY_CHARS_MAX:
        raise InvalidAddress(
            whole, f"has an authority of {len(authority)} characters; the limit is {AUTHORITY_CHARS_MAX}"
        )
    if authority in ("", ANY_AUTHORITY) or _NAME.fullmatch(authority):
        return
    if not (authority[0] == "[" and authority[-1] == "]" and _is_literal(authority[1:-1])):
        raise InvalidAddress(
            whole, "has an invalid authority; use a-z, 0-9, '-', '.', '_', '~', an IP literal, or '*'"
        )


def _is_literal(text: str) -> bool:
    if _FUTURE_LITERAL.fullmatch(text):
        return "*" not in text and "$" not in text
    try:
        return not IPv6Address(text).scope_id
    except AddressValueError:
        return False
