"""Who was heard of when, and who has been silent for so long that it is suspected to be gone."""

from __future__ import annotations

from collections.abc import Iterable

from reknit.protocol.group_settings import GroupSettings


class Suspicion:
    """A failure detector: silence makes a suspect, more silence confirms it, any word clears it.

    >>> watch = Suspicion(GroupSettings(suspect_s=2.0, confirm_s=1.0))
    >>> watch.keep([b"a"], now=0.0)
    >>> watch.check(now=2.5), watch.confirmed(now=3.0), watch.confirmed(now=3.5)
    ([b'a'], set(), {b'a'})
    """

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._heard: dict[bytes, float] = {}
        self._since: dict[bytes, float] = {}

    def __contains__(self, member: object) -> bool:
        return member in self._since

    def heard(self, member: bytes, now: float) -> None:
        if member in self._heard:
            self._heard[member] = now
            self._since.pop(member, None)

    def keep(self, members: Iterable[bytes], now: float) -> None:
        """Watch these, and no others; new ones count as heard of now."""
        self._heard = {member: self._heard.get(member, now) for member in members}
        self._since = {member: at for member, at in self._since.items() if member in self._heard}

    def check(self, now: float) -> list[bytes]:
        """The suspects, as of now."""
        silent = [m for m, at in self._heard.items() if now - at >= self._settings.suspect_s]
        for member in silent:
            self._since.setdefault(member, now)
        return silent

    def confirmed(self, now: float) -> set[bytes]:
        """The suspects that stayed silent."""
        return {member for member, at in self._since.items() if now - at >= self._settings.confirm_s}
