"""Quotas: how much one identity may use of a node, as they are written in `security.quotas`.

    NAME QUOTA=NUMBER …     as "ann events_per_s=1000 connections=10", or "* bytes_per_s=1MiB"

NAME is an identity, or a pattern of them in which `*` stands for any characters. The line with exactly that name
applies, or else the first line that matches. Every identity has its quotas for itself: `*` is not shared. Clients that
have proven no name are `anonymous`, and share one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

__all__ = ["NO_QUOTA", "Quota", "Quotas", "check_quotas", "exceeded"]

ITSELF: Final = ""
"""The identity of the node's own parts."""
_NUMBER: Final = re.compile(r"(\d[\d_]*)(KiB|MiB|GiB)?")
_FACTORS: Final = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """What one identity may use; 0 means no limit beside those of the node.

    >>> Quota(connections=10).connections
    10
    """

    events_per_s: int = 0
    """Events that are published in a second."""
    bytes_per_s: int = 0
    """Bytes that are published in a second."""
    connections: int = 0
    """Connections at the same time: native, AMQP, and tunnels over HTTP."""
    subscriptions: int = 0
    """Subscriptions at the same time."""
    durable_names: int = 0
    """Durable subscribers."""
    sources: int = 0
    """Sources that the node remembers."""
    waiting_bytes: int = 0
    """Bytes that were sent to all connections together and not yet taken."""
    dead_letters: int = 0
    """Dead letters of events of its sources that wait."""


NO_QUOTA: Final = Quota()
NAMES: Final = Quota.__struct_fields__


class Quotas:
    """The quotas of one node. Raises `ValueError` for a line that is not valid.

    >>> quotas = Quotas(["ann events_per_s=1_000", "sensor-* bytes_per_s=64KiB", "* connections=5"])
    >>> quotas.of("ann").events_per_s, quotas.of("sensor-7").bytes_per_s, quotas.of("bob").connections
    (1000, 65536, 5)
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._quotas = dict(_parse(line) for line in lines)
        self.is_on = bool(self._quotas)
        """Whether there is any quota."""

    def limits(self, *names: str) -> bool:
        """Whether there is a quota of one of these kinds for anybody."""
        return any(getattr(quota, name) for quota in self._quotas.values() for name in names)

    def of(self, name: str) -> Quota:
        """The quotas of an identity. The node itself has none."""
        if name == ITSELF or not self.is_on:
            return NO_QUOTA
        if name in self._quotas:
            return self._quotas[name]
        matching = (quota for pattern, quota in self._quotas.items() if fnmatchcase(name, pattern))
        return next(matching, NO_QUOTA)


def check_quotas(lines: Sequence[str]) -> None:
    """Raises `ValueError` for lines that are not valid."""
    Quotas(lines)


def _parse(line: str) -> tuple[str, Quota]:
    name, *parts = line.split() or [""]
    if not parts:
        raise ValueError(f"{line!r} has no quota: write NAME QUOTA=NUMBER, with one of {', '.join(NAMES)}")
    return name, Quota(**dict(_part(line, part) for part in parts))


def _part(line: str, part: str) -> tuple[str, int]:
    key, _, text = part.partition("=")
    number = _NUMBER.fullmatch(text)
    if key not in NAMES:
        raise ValueError(f"{line!r} has {key!r}, which is none of {', '.join(NAMES)}")
    if number is None:
        raise ValueError(f"{line!r} has {part!r}: write a number, as 1_000 or 64KiB")
    return key, int(number[1]) * _FACTORS[number[2]]


def exceeded(name: str, quota: str, limit: int) -> str:
    """What is told to somebody who is at a quota that waiting does not help with.

    >>> exceeded("ann", "connections", 5)
    'ann has as many connections as allowed (5): security.quotas'
    """
    return f"{name} has as many {quota.replace('_', ' ')} as allowed ({limit:,}): security.quotas"
