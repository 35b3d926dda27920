"""The members of a group, and views: which members it has, oldest first."""

from __future__ import annotations

from ipaddress import ip_address

import msgspec
from xxhash import xxh3_64_intdigest

from reknit.fields import AnySource, Number, Source


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One run of a program as a member of a group. Its id is also the source of the events that it sends."""

    id: Source
    name: str = ""
    address: str = ""
    """Where it receives datagrams, as `IP:PORT`; empty: only where its datagrams come from. Never a host's name: to look
    one up would hold up everybody for as long as a stranger's name server likes."""

    def __post_init__(self) -> None:
        check_address(self.address)


def check_address(address: str) -> None:
    """Raise `ValueError` unless it is `IP:PORT`, or empty."""
    if address and not _is_address(address):
        raise ValueError(f"a member's address is IP:PORT, not {address[:80]!r}")


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    try:
        ip_address(host)
    except ValueError:
        return False
    return port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16


class View(msgspec.Struct, frozen=True, array_like=True):
    """The members in order of rank (the first joined first), and the coordinator that installed the view.

    >>> view = View(3, b"a", (Member(b"a"), Member(b"b")))
    >>> view.ids, b"b" in view, view.key < View(4, b"a", ()).key
    ((b'a', b'b'), True, True)
    """

    counter: Number
    coordinator: AnySource
    members: tuple[Member, ...]

    @property
    def key(self) -> tuple[int, bytes]:
        """A total order over views: the later one wins on every member."""
        return self.counter, self.coordinator

    @property
    def ids(self) -> tuple[bytes, ...]:
        return tuple(member.id for member in self.members)

    @property
    def fingerprint(self) -> int:
        """A hash of the members, independent of their order."""
        return xxh3_64_intdigest(b"".join(sorted(self.ids)))

    @property
    def stamp(self) -> int:
        """A hash of the view; without a coordinator, a hash of its members."""
        if not self.coordinator:
            return self.fingerprint
        return xxh3_64_intdigest(b"%d" % self.counter + self.coordinator, self.fingerprint)

    def __contains__(self, member: object) -> bool:
        return member in self.ids

    def without(self, gone: frozenset[bytes] | set[bytes]) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.id not in gone)
