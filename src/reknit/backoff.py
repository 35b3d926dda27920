"""Back-offs, and how settings write them, also for single google.rpc codes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reknit.outcome import Code

__all__ = ["Backoff", "read_backoffs", "read_codes"]


class Backoff(msgspec.Struct, frozen=True):
    """A wait that doubles with every failed attempt, between a minimum and a maximum.

    >>> [Backoff(1.0, 8.0).ceiling_s(attempt) for attempt in (1, 2, 3, 4, 5)]
    [1.0, 2.0, 4.0, 8.0, 8.0]
    """

    s_min: float
    s_max: float

    def ceiling_s(self, attempt: int) -> float:
        """The longest wait after this failed attempt, the first being 1.

        >>> Backoff(0.1, 30.0).ceiling_s(100)
        30.0
        """
        return min(self.s_max, self.s_min * 2.0 ** min(attempt - 1, 60))


def read_codes(names: Iterable[str]) -> frozenset[int]:
    """Codes from their names. Raises ValueError.

    >>> sorted(read_codes(["INVALID_ARGUMENT", "unimplemented"]))
    [3, 12]
    """
    return frozenset(_code(name) for name in names)


def read_backoffs(texts: Iterable[str]) -> dict[int, Backoff]:
    """Back-offs of codes from `CODE=min:max` in seconds. Raises ValueError.

    >>> read_backoffs(["UNAVAILABLE=5:60"])
    {14: Backoff(s_min=5.0, s_max=60.0)}
    """
    found: dict[int, Backoff] = {}
    for text in texts:
        name, _, bounds = text.partition("=")
        low, _, high = bounds.partition(":")
        try:
            one = Backoff(float(low), float(high or low))
        except ValueError:
            raise ValueError(
                f"{text!r} is not a valid back-off; write it as UNAVAILABLE=5:60, in seconds"
            ) from None
        if not 0 <= one.s_min <= one.s_max < float("inf"):
            raise ValueError(
                f"{text!r} is not a valid back-off; write the minimum first, as UNAVAILABLE=5:60"
            )
        found[_code(name)] = one
    return found


def _code(name: str) -> int:
    try:
        return int(Code[name.strip().upper()])
    except KeyError:
        raise ValueError(f"{name!r} is not a google.rpc code; write a name such as UNAVAILABLE") from None
