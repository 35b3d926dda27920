"""What a server may promise a client that wants to go on: 200 only where everything it missed is still held."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reknit.errors import InvalidCheckpoint
from reknit.protocol.tunnel.place import Place


class Held(msgspec.Struct, frozen=True):
    """What a node's journal holds: positions `[start, end)` of its epoch."""

    epoch: str
    start: int
    end: int
    is_whole: Callable[[], bool]
    """Whether nothing of the tunnel's topics was ever removed."""
    known_s: float
    """For how long it is known what was published: a journal in memory begins with its node."""
    position_at: Callable[[float], int]
    """From where on everything is that was kept within these seconds; never too late."""
    is_boundary: Callable[[Place], bool]
    """Whether a batch begins at a place's position and has so many events (or the journal ends there)."""


class Granted(msgspec.Struct, frozen=True):
    """The tunnel begins at this place; `recovered` if that was asked for."""

    place: Place
    recovered: bool


class Denied(msgspec.Struct, frozen=True):
    """No stateful reconnect is possible: the status to answer with, and why."""

    status: str
    why: str


def live(held: Held) -> Granted:
    """A tunnel with what comes from now on."""
    return Granted(Place(held.epoch, held.end), recovered=False)


def since_checkpoint(text: str, held: Held) -> Granted | Denied:
    """Go on behind a checkpoint: if it is one of this epoch, and nothing behind it was removed."""
    try:
        place = Place.parse(text)
    except InvalidCheckpoint as error:
        return Denied("400 Bad checkpoint", str(error))
    if place.epoch != held.epoch:
        return Denied(
            "404 Expired", "the checkpoint is of an earlier journal: the server has lost what it held then"
        )
    if place.position < held.start:
        if held.is_whole():
            return Granted(Place(held.epoch, held.start), recovered=True)
        return Denied("404 Expired", "what follows the checkpoint was removed by retention")
    if place.position > held.end or not held.is_boundary(place):
        return Denied("404 Expired", "the checkpoint is not known here")
    return Granted(place, recovered=True)


def since_age(age_s: float, grace_s: float, held: Held) -> Granted | Denied:
    """Everything of the last seconds. What is within the grace period is promised; older is given as far as held.

    Nobody reconnects with an infinite age: that asks for whatever there is.
    """
    if age_s == float("inf"):
        return Granted(Place(held.epoch, held.start), recovered=True)
    promised_s = min(age_s, grace_s)
    if promised_s > held.known_s:
        why = f"the server knows of the last {held.known_s:.0f} s only: it was restarted"
        return Denied("404 Expired", why)
    # a journal answers with its start for anything earlier: then it can't be told what was before
    if held.position_at(promised_s) <= held.start and held.start > 0 and not held.is_whole():
        return Denied("404 Expired", f"retention removed events of the last {promised_s:.0f} s")
    return Granted(Place(held.epoch, held.position_at(age_s)), recovered=True)
