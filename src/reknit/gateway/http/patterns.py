"""Tunnels on the topics that match a pattern: who may read them, and what a tunnel begins with."""

from __future__ import annotations

from typing import Any, NamedTuple

from reknit import environment
from reknit.config import HttpSettings
from reknit.errors import InvalidTopic
from reknit.gateway.access import Access
from reknit.gateway.http.promises import JournalPromises
from reknit.gateway.http.scopes import PatternScope
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.protocol.tunnel.reconnect import ReconnectGranted, live, since_checkpoint
from reknit.topic import Pattern


class PatternRefused(Exception):
    """Somebody may not read a pattern, or it is none: the status of the answer, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status, why)
        self.status = status
        self.why = why


class Opening(NamedTuple):
    """What a tunnel begins with: the elements of its first event, why it can't resume, and its place."""

    elements: dict[str, Any]
    why: str
    place: JournalPlace


class PatternOpenings:
    """Opens tunnels on patterns."""

    def __init__(self, settings: HttpSettings, *, access: Access, promises: JournalPromises) -> None:
        self._settings = settings
        self._access = access
        self._promises = promises
        self._rng = environment.make_random()

    def scope(self, user: str, text: str) -> PatternScope:
        """The topics that match a pattern and that a user may read. Raises `PatternRefused`."""
        try:
            pattern = Pattern(text.strip("/"))
        except InvalidTopic as error:
            raise PatternRefused(400, str(error)) from None
        readable = self._access.readable(user)
        if readable is not None and not any(pattern.intersects(one) for one in readable):
            raise PatternRefused(403, f"{user} may not read {pattern}")
        return PatternScope(pattern, readable)

    def opening(self, scope: PatternScope, checkpoint: str) -> Opening:
        """What a tunnel begins with, after a checkpoint or with the next event."""
        held = self._promises.held(scope)
        granted = since_checkpoint(checkpoint, held) if checkpoint else live(held)
        why = ""
        if isinstance(granted, ReconnectGranted):
            state = "recovered" if granted.recovered else "live"
        else:
            state, why, granted = "lost", granted.why, live(held)
        retry_ms = self._settings.retry_ms * self._rng.uniform(0.5, 1.5)
        elements = {
            "state": state,
            "recovered": state == "recovered",
            "retry": f"{retry_ms:.0f}",
            "checkpoint": granted.place.text,
            "heartbeat_s": self._settings.heartbeat_s,
        }
        return Opening(elements, why, granted.place)
