"""Failed attempts to prove an identity: they are counted, and slow down the address that they come from.

The first few are free, as for a typing error. After them a refusal waits, twice as long each time, and the address is
forgiven with time. It is a delay, not a ban: a token can't be guessed, so whoever presents a right one is let in at once
from any address. Where passwords are checked, everybody at that address waits before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from reknit import environment

FREE: Final = 5
"""Failed attempts that cost nothing."""
WAIT_S_MIN: Final = 0.1
WAIT_S_MAX: Final = 2.0
FORGIVE_S: Final = 5.0
"""An address is forgiven one failed attempt in this time."""
COUNTED_MAX: Final = 12
"""More failed attempts than these count no further, so that an address is forgiven within a minute."""
ADDRESSES_MAX: Final = 10_000
"""The address whose last failure is the longest ago is forgotten beyond it."""
WAITING_MAX: Final = 64
"""So many refusals of one address wait at a time; further attempts are dropped without an answer."""


@dataclass(slots=True)
class _Address:
    failures: float = 0.0
    at: float = 0.0
    waiting: int = 0


class FailedAttempts:
    """The failed attempts at all doors of one node. Each costs constant work and memory; any thread may ask.

    >>> attempts = FailedAttempts()
    >>> [attempts.failed("192.0.2.7", "http") for _ in range(5)], attempts.totals()["failed"]
    ([0.0, 0.0, 0.0, 0.0, 0.0], {'http': 5})
    """

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._failed: dict[str, int] = {}
        self._slowed = self._dropped = 0
        self._lock = threading.Lock()

    def failed(self, address: str, door: str) -> float | None:
        """An attempt failed: how long its refusal has to wait, or None if it is not to be answered at all.

        Call `answered` after a wait.
        """
        with self._lock:
            return self._wait(self._count(address, door))

    def count(self, address: str, door: str) -> None:
        """An attempt failed, and was answered: the next one from this address waits `before`."""
        with self._lock:
            self._count(address, door)

    def _count(self, address: str, door: str) -> _Address:
        self._failed[door] = self._failed.get(door, 0) + 1
        known = self._find(_network(address))
        known.failures = min(known.failures + 1, COUNTED_MAX)
        return known

    def before(self, address: str) -> float | None:
        """How long an attempt has to wait before it is looked at, or None if it is not to be looked at at all.

        Call `answered` after a wait.
        """
        key = _network(address)
        with self._lock:
            return self._wait(self._find(key)) if key in self._addresses else 0.0

    def answered(self, address: str) -> None:
        """A wait is over."""
        with self._lock:
            known = self._addresses.get(_network(address))
            if known is not None and known.waiting:
                known.waiting -= 1

    def totals(self) -> dict[str, Any]:
        """Failed attempts by door, how many of them had to wait or were dropped, and how many addresses are known."""
        counts = {"slowed": self._slowed, "dropped": self._dropped, "addresses": len(self._addresses)}
        return {"failed": dict(sorted(self._failed.items())), **counts}

    def _find(self, key: str) -> _Address:
        """What is known of an address, as of now."""
        now, known = environment.monotonic(), self._addresses.pop(key, None) or _Address()
        while len(self._addresses) >= ADDRESSES_MAX:
            self._addresses.popitem(last=False)
        known.failures = max(0.0, known.failures - (now - known.at) / FORGIVE_S)
        known.at = now
        self._addresses[key] = known
        return known

    def _wait(self, known: _Address) -> float | None:
        beyond = known.failures - FREE
        if beyond <= 0:
            return 0.0
        if known.waiting >= WAITING_MAX:
            self._dropped += 1
            return None
        known.waiting += 1
        self._slowed += 1
        return float(min(WAIT_S_MIN * 2.0 ** (beyond - 1), WAIT_S_MAX))


def _network(address: str) -> str:
    """An address; of IPv6 the network, which usually belongs to one machine or household.

    >>> _network("192.0.2.7"), _network("2001:db8::7"), _network("local")
    ('192.0.2.7', '2001:db8::', 'local')
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> 64 << 64))
