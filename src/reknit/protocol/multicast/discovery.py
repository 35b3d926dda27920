"""How a joiner finds its group: it says hello until a member answers, and creates a group if nobody does."""

from __future__ import annotations

from random import Random

from reknit.protocol.multicast.settings import GroupSettings
from reknit.view import Member


class Discovery:
    """When to say hello, and when to stop looking. Of several joiners, the one with the lowest id creates the group."""

    def __init__(self, me: Member, settings: GroupSettings, rng: Random, now: float) -> None:
        self._me, self._settings, self._rng = me, settings, rng
        self.coordinator: Member | None = None
        """The coordinator that we were referred to."""
        self._others: set[bytes] = set()
        self._hello_at = now
        self._found_at = now
        self._look_on(now)

    def _look_on(self, now: float) -> None:
        self._found_at = now + self._settings.discover_s * (1 + 0.2 * self._rng.random())

    @property
    def next_deadline(self) -> float:
        return min(self._hello_at, self._found_at)

    def met(self, other: bytes) -> None:
        """Another joiner is looking for the group."""
        if len(self._others) < self._settings.members_max:
            self._others.add(other)

    def referred(self, coordinator: Member, now: float) -> bool:
        """A member told us its coordinator. True if that was not known."""
        is_news = self.coordinator != coordinator
        if is_news:
            self.coordinator = coordinator
            self._look_on(now)
        return is_news

    def heard_of_a_group(self, now: float) -> None:
        """There is a group: give it time to answer."""
        self._found_at = max(self._found_at, now + self._settings.hello_s)

    def is_hello_due(self, now: float) -> bool:
        if self._hello_at > now:
            return False
        self._hello_at = now + self._settings.hello_s * (0.75 + 0.5 * self._rng.random())
        return True

    def is_founding_due(self, now: float) -> bool:
        """True if nobody answered, and no other joiner has a lower id. Otherwise the search starts over."""
        if self._found_at > now:
            return False
        is_first = all(self._me.id < other for other in self._others)
        is_alone = self.coordinator is None and is_first
        self._look_on(now)
        self.coordinator = None
        self._others.clear()
        return is_alone
