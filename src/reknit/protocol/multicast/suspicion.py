"""A failure detector: it suspects members that were silent, or in another view, for too long."""

from __future__ import annotations

from collections.abc import Iterable

from reknit.protocol.multicast.settings import GroupSettings


class Suspicion:
    """Silence makes a member a suspect, more silence confirms it, any message clears it.

    A member whose messages come from another view for that long is suspected too: it is with others now.
    If it were first by rank, nobody would coordinate us.

    >>> watch = Suspicion(GroupSettings(suspect_s=2.0, confirm_s=1.0))
    >>> watch.keep([b"a"], now=0.0)
    >>> watch.check(now=2.5), watch.confirmed(now=3.0), watch.confirmed(now=3.5)
    ([b'a'], set(), {b'a'})
    >>> for now in (4.0, 6.0):
    ...     watch.heard(b"a", now)
    ...     watch.strays(b"a", now)
    >>> watch.check(now=6.0), watch.follows(b"a"), watch.check(now=6.0)
    ([b'a'], None, [])
    """

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._heard: dict[bytes, float] = {}
        self._since: dict[bytes, float] = {}
        self._astray: dict[bytes, float] = {}

    def __contains__(self, member: object) -> bool:
        return member in self._since

    def heard(self, member: bytes, now: float) -> None:
        if member in self._heard:
            self._heard[member] = now
            if member in self._since and not self._is_lost(member, now):
                del self._since[member]

    def strays(self, member: bytes, now: float) -> None:
        """A member said that its view is not ours."""
        if member in self._heard:
            self._astray.setdefault(member, now)

    def follows(self, member: bytes) -> None:
        """A member said that its view is ours."""
        self._astray.pop(member, None)

    def _is_lost(self, member: bytes, now: float) -> bool:
        since = min(self._heard[member], self._astray.get(member, now))
        return now - since >= self._settings.suspect_s

    def keep(self, members: Iterable[bytes], now: float) -> None:
        """In a new view, watch only these members. New ones count as heard now."""
        self._astray.clear()
        self._heard = {member: self._heard.get(member, now) for member in members}
        self._since = {member: at for member, at in self._since.items() if member in self._heard}

    def check(self, now: float) -> list[bytes]:
        """The suspects as of now."""
        lost = [member for member in self._heard if self._is_lost(member, now)]
        for member in lost:
            self._since.setdefault(member, now)
        return lost

    def confirmed(self, now: float) -> set[bytes]:
        """The suspects that stayed silent or astray for long enough to be removed."""
        return {member for member, at in self._since.items() if now - at >= self._settings.confirm_s}
