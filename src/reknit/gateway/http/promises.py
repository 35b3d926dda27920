"""Promises to tunnels: how much of their topics the journal still holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reknit import environment
from reknit.errors import ReknitError
from reknit.gateway.http.scopes import TunnelScope
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.protocol.tunnel.reconnect import HeldJournal
from reknit.store.journal import Journal

PLACES_KNOWN_MAX = 10_000


class JournalPromises:
    """Answers from one journal. `position` gives the live edge.

    `followed_since` gives the position from which on linked nodes send the events of some patterns.
    `forgets` says that the journal may lack what was published before `started_at`: it is in memory, or lost bytes.
    """

    def __init__(
        self,
        journal: Journal,
        epoch: str,
        *,
        position: Callable[[], int],
        started_at: float,
        forgets: bool,
        followed_since: Callable[[Iterable[str]], int | None],
    ) -> None:
        self._journal = journal
        self._epoch = epoch
        self._position = position
        self._started_at = started_at
        self._forgets = forgets
        self._followed_since = followed_since
        self._known: dict[JournalPlace, None] = {}
        """Places that were found to be ours."""

    def held(self, scope: TunnelScope) -> HeldJournal:
        """The part of a tunnel's topics that the journal holds."""
        journal = self._journal
        known_s = environment.monotonic() - self._started_at if self._forgets else float("inf")
        return HeldJournal(
            epoch=self._epoch,
            start=journal.start,
            end=self._position(),
            is_whole=lambda: self._is_whole(scope),
            known_s=known_s,
            position_at=lambda age_s: journal.position_at(environment.time_us() - int(age_s * 1e6)),
            is_boundary=self._is_boundary,
            is_readable=lambda position: self._is_readable(scope, position),
            followed_since=self._followed_since(pattern.text for pattern in scope.patterns()),
        )

    def _is_whole(self, scope: TunnelScope) -> bool:
        journal = self._journal
        topics = [topic for topic in journal.topics() if scope.matches(topic)]
        return all(
            journal.first_held(topic, source) == 1 for topic in topics for source in journal.sources(topic)
        )

    def _is_readable(self, scope: TunnelScope, position: int) -> bool:
        parts = self._journal.unreadable(position)
        return not any(scope.matches(gone.topic) for part in parts for gone in part.lost)

    def _is_boundary(self, place: JournalPlace) -> bool:
        if place in self._known:
            return True
        is_known = self._find_boundary(place)
        if is_known and len(self._known) < PLACES_KNOWN_MAX:
            self._known[place] = None
        return is_known

    def _find_boundary(self, place: JournalPlace) -> bool:
        """Whether this server gave out the place. The index decides, as other bytes can look like a batch."""
        journal = self._journal
        if place.position == journal.end:
            return place.index == 0
        try:
            run = journal.read(place.position, None, 1)
            if not run.entries:
                return place.index == 0
            first = run.entries[0]
            head = first.head
            found = journal.find(head.topic, head.source, head.first, head.first + 1)
        except ReknitError:
            return False
        is_there = any(entry.position == first.position for entry in found)
        return (
            is_there and (place.index == 0 or first.position == place.position) and place.index < head.count
        )
