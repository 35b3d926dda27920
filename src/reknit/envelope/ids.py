"""Ids of uProtocol's events: UUIDs of version 7, which begin with their creation time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import RFC_4122, UUID

from reknit import environment
from reknit.errors import InvalidAttributes

VERSION: Final = 7
TIME_MS_MAX: Final = (1 << 48) - 1
_VERSION_BITS: Final = VERSION << 76
_VARIANT_BITS: Final = 0b10 << 62
_RANDOM: Final = (1 << 74) - 1


def make_id(time_ms: int, random: int) -> UUID:
    """The id of an event made at this time, with 74 random bits.

    >>> make_id(1, 0)
    UUID('00000000-0001-7000-8000-000000000000')
    """
    assert 0 <= time_ms <= TIME_MS_MAX, "a time that fits 48 bits"
    random &= _RANDOM
    high, low = random >> 62, random & ((1 << 62) - 1)
    return UUID(int=time_ms << 80 | _VERSION_BITS | high << 64 | _VARIANT_BITS | low)


class IdMaker:
    """Makes ids that never repeat. The ids of one maker sort in the order in which they were made.

    >>> ids = IdMaker(now_ms=lambda: 5, random=lambda: 9)
    >>> one, two = ids(), ids()
    >>> time_ms_of(one), one < two
    (5, True)
    """

    def __init__(
        self, now_ms: Callable[[], int] | None = None, random: Callable[[], int] | None = None
    ) -> None:
        self._now_ms = now_ms or (lambda: environment.time_us() // 1000)
        self._random = random or (lambda: int.from_bytes(environment.token_bytes(10)))
        self._last = (0, 0)

    def __call__(self) -> UUID:
        time_ms, count = self._now_ms(), 0
        if time_ms <= self._last[0]:  # the same millisecond, or a clock that was set back
            time_ms, count = self._last[0], self._last[1] + 1
            time_ms, count = (time_ms + 1, 0) if count >= 1 << 10 else (time_ms, count)
        self._last = (time_ms, count)
        return make_id(time_ms, count << 64 | self._random() & ((1 << 64) - 1))


def check_id(value: UUID, name: str = "id") -> UUID:
    """Returns the id unchanged. Raises `InvalidAttributes` if it has another version or variant.

    >>> check_id(UUID("00000000-0001-8000-8000-000000000000"))
    Traceback (most recent call last):
    reknit.errors.InvalidAttributes: attribute id must be a UUID of version 7, not 00000000-0001-8000-8000-000000000000
    """
    if value.variant != RFC_4122 or value.version != VERSION:
        raise InvalidAttributes(name, f"must be a UUID of version 7, not {value}")
    return value


def parse_id(text: str, name: str = "id") -> UUID:
    """The id in a hyphenated text. Raises `InvalidAttributes`.

    >>> parse_id("00000000-0001-7000-8010-101010101a1a").int >> 80
    1
    """
    try:
        value = UUID(text)
    except (ValueError, AttributeError, TypeError):
        raise InvalidAttributes(name, f"must be a UUID of version 7, not {text!r:.60}") from None
    if str(value) != text.lower():
        raise InvalidAttributes(name, f"must be a hyphenated UUID, not {text!r:.60}")
    return check_id(value, name)


def time_ms_of(value: UUID) -> int:
    """When an id was made, in milliseconds since 1970.

    >>> time_ms_of(make_id(1700000000000, 3))
    1700000000000
    """
    return value.int >> 80
