"""Surveys of very many series are answered a part at a time, so nobody waits for them. Peers take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from reknit.protocol.machine import Peer
from reknit.wire.recovery import Span, Survey

STEP: Final = 500
"""How many series are looked at before others have their turn."""
WALKS_MAX: Final = 1_024
"""How many surveys of one peer may wait for their turns."""


class SurveyPart(msgspec.Struct, frozen=True):
    """A part of the answer to a survey."""

    peer: Peer
    request: Survey
    spans: list[Span]
    is_last: bool


class SurveyWalk(msgspec.Struct):
    """Looks for what is held. `rest` gives None for series of which nothing is, and where a look took long."""

    request: Survey
    rest: Iterator[Span | None]

    def part(self, peer: Peer, step: int) -> SurveyPart:
        """Go on for a while."""
        found = list(islice(self.rest, step))
        return SurveyPart(peer, self.request, [span for span in found if span is not None], len(found) < step)


class SurveyWalks:
    """The surveys whose answers are not complete."""

    def __init__(self) -> None:
        self.step = STEP
        self._walks: dict[Peer, deque[SurveyWalk]] = {}
        """By peer, in the order of their turns."""
        self._due = 0.0

    def begin(self, peer: Peer, request: Survey, rest: Iterator[Span | None]) -> SurveyPart | None:
        """The first part of an answer; the other parts follow. None if too many answers of this peer wait."""
        waiting = self._walks.get(peer, ())
        if len(waiting) >= WALKS_MAX:
            return None
        walk = SurveyWalk(request, rest)
        part = SurveyPart(peer, request, [], False) if waiting else walk.part(peer, self.step)
        if not part.is_last:
            self._walks.setdefault(peer, deque()).append(walk)
        return part

    def tick(self, now: float) -> SurveyPart | None:
        """The next part of an answer to the peer whose turn it is."""
        if not self._walks:
            return None
        self._due = now
        peer = next(iter(self._walks))
        walks = self._walks.pop(peer)
        part = walks[0].part(peer, self.step)
        if part.is_last:
            walks.popleft()
        if walks:
            self._walks[peer] = walks
        return part

    def left(self, peer: Peer) -> None:
        """A connection is gone."""
        self._walks.pop(peer, None)

    def next_deadline(self) -> float | None:
        """When the next part is due."""
        return self._due if self._walks else None
