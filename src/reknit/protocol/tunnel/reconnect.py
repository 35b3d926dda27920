"""The server's answer to a client that wants to resume: 200 only if everything it missed is still held."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reknit.errors import InvalidCheckpoint
from reknit.protocol.tunnel.journal_place import JournalPlace


class HeldJournal(msgspec.Struct, frozen=True):
    """The extent of a node's journal: positions `[start, end)` of its epoch."""

    epoch: str
    start: int
    end: int
    is_whole: Callable[[], bool]
    """Whether nothing of the tunnel's topics was ever removed."""
    known_s: float
    """How many seconds back the journal is complete: a journal in memory begins with its node."""
    position_at: Callable[[float], int]
    """A position with all events of the last seconds after it; it may be too early, never too late."""
    is_boundary: Callable[[JournalPlace], bool]
    """Whether a batch with enough events begins at a place's position, or the journal ends there."""
    is_readable: Callable[[int], bool] = lambda position: True
    """Whether no event of the tunnel's topics after a position was found to be damaged."""
    followed_since: int | None = 0
    """The position from which on linked nodes have sent the tunnel's topics; None if they do not yet."""


class ReconnectGranted(msgspec.Struct, frozen=True):
    """The tunnel starts at this place; `recovered` if the client asked to resume."""

    place: JournalPlace
    recovered: bool


class ReconnectDenied(msgspec.Struct, frozen=True):
    """No stateful reconnect is possible: the status of the answer, and why."""

    status: str
    why: str


def live(held: HeldJournal) -> ReconnectGranted:
    """A tunnel that starts with the next event."""
    return ReconnectGranted(JournalPlace(held.epoch, held.end), recovered=False)


def since_checkpoint(text: str, held: HeldJournal) -> ReconnectGranted | ReconnectDenied:
    """Resume after a checkpoint: if it is of this epoch, and nothing after it was removed."""
    try:
        place = JournalPlace.parse(text)
    except InvalidCheckpoint as error:
        return ReconnectDenied("400 Bad checkpoint", str(error))
    if place.epoch != held.epoch:
        return ReconnectDenied(
            "404 Expired",
            "the checkpoint is of an earlier journal: the server has lost the events that it held then",
        )
    if place.position < held.start:
        if held.is_whole():
            return ReconnectGranted(JournalPlace(held.epoch, held.start), recovered=True)
        return ReconnectDenied("404 Expired", "retention removed events after the checkpoint")
    if place.position > held.end or not held.is_boundary(place):
        return ReconnectDenied("404 Expired", "the checkpoint is not known here")
    if not held.is_readable(place.position):
        return ReconnectDenied(
            "404 Expired", "events after the checkpoint are lost: the journal is damaged there"
        )
    if held.followed_since is None or place.position < held.followed_since:
        return ReconnectDenied(
            "404 Expired", "linked nodes may have stopped sending these topics here while the client was away"
        )
    return ReconnectGranted(place, recovered=True)


def since_age(age_s: float, grace_s: float, held: HeldJournal) -> ReconnectGranted | ReconnectDenied:
    """The events of the last seconds. Those within the grace period are promised; older ones come as far as held.

    An infinite age is not a reconnect: it asks for everything that is held.
    """
    if age_s == float("inf"):
        return ReconnectGranted(JournalPlace(held.epoch, held.start), recovered=True)
    promised_s = min(age_s, grace_s)
    if promised_s > held.known_s:
        why = f"the server has only the events of the last {held.known_s:.0f} s: it was restarted"
        return ReconnectDenied("404 Expired", why)
    # a journal answers with its start for anything earlier: then earlier events are not known
    if held.position_at(promised_s) <= held.start and held.start > 0 and not held.is_whole():
        return ReconnectDenied("404 Expired", f"retention removed events of the last {promised_s:.0f} s")
    if not held.is_readable(held.position_at(promised_s)):
        why = f"events of the last {promised_s:.0f} s are lost: the journal is damaged there"
        return ReconnectDenied("404 Expired", why)
    return ReconnectGranted(JournalPlace(held.epoch, held.position_at(age_s)), recovered=True)
