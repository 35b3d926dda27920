"""Who is in a group: members, and the views that say which of them there are, oldest first."""

from __future__ import annotations

import msgspec
from xxhash import xxh3_64_intdigest


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One incarnation of a program in a group. The id is also the source of the events that it sends."""

    id: bytes
    name: str = ""
    address: str = ""


class View(msgspec.Struct, frozen=True, array_like=True):
    """The members in order of rank (the first was there first), and who said so.

    >>> view = View(3, b"a", (Member(b"a"), Member(b"b")))
    >>> view.ids, b"b" in view, view.key < View(4, b"a", ()).key
    ((b'a', b'b'), True, True)
    """

    counter: int
    coordinator: bytes
    members: tuple[Member, ...]

    @property
    def key(self) -> tuple[int, bytes]:
        """A total order over views: the later one wins everywhere."""
        return self.counter, self.coordinator

    @property
    def ids(self) -> tuple[bytes, ...]:
        return tuple(member.id for member in self.members)

    @property
    def fingerprint(self) -> int:
        """The same wherever the same members are seen, in whatever order."""
        return xxh3_64_intdigest(b"".join(sorted(self.ids)))

    @property
    def stamp(self) -> int:
        """Another for every view; where nobody coordinates, the same wherever the same members are seen."""
        if not self.coordinator:
            return self.fingerprint
        return xxh3_64_intdigest(b"%d" % self.counter + self.coordinator, self.fingerprint)

    def __contains__(self, member: object) -> bool:
        return member in self.ids

    def without(self, gone: frozenset[bytes] | set[bytes]) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.id not in gone)
