"""What a publisher is told of what became of its events."""

from __future__ import annotations

import msgspec

from reknit.wire.messages import Message


class Want(Message, frozen=True, tag=40):
    """A publisher wants to hear what became of each event from `first` on; with `resend`, a released one is resent."""

    source: bytes
    topic: str
    resend: bool
    first: int
    """The first seq whose outcome is not known yet."""
    kept: int
    """The last seq that is known to be kept."""


class Fate(msgspec.Struct, frozen=True, array_like=True):
    """What became of events `[start, stop)`, on which node, along which path."""

    start: int
    stop: int
    outcome: int
    code: int = 0
    text: str = ""
    node: str = ""
    path: str = ""
    attempts: int = 1


class Told(Message, frozen=True, tag=41):
    """To the publisher who wanted it: outcomes of its events."""

    source: bytes
    rows: list[Fate]


class PathThere(Message, frozen=True, tag=42):
    """To a publisher who wants outcomes: whether anyone is there to take its events. It waits while nobody is."""

    source: bytes
    is_there: bool
    is_journal: bool = False
    """Its topic is delivered from the journal: an event that is kept is accepted."""


OutcomeMessage = Want | Told | PathThere
