"""The messages that tell a publisher the outcomes of its events."""

from __future__ import annotations

import msgspec

from reknit.fields import CodeNumber, FirstSeq, Number, OutcomeNumber, Seq, Source, Topic, check_range
from reknit.wire.messages import Message


class Want(Message, frozen=True, tag=40):
    """A publisher asks for the outcome of each event from `first` on. The node answers `PathThere`, and `Told` for each
    outcome. With `resend`, a released event goes to the next path."""

    source: Source
    topic: Topic
    resend: bool
    first: FirstSeq
    """The first seq without a known outcome."""
    kept: Seq
    """The last seq that is known to be stored."""


class RangeOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of events `[start, stop)`, with the node and the path where they ended."""

    start: Seq
    stop: Seq
    outcome: OutcomeNumber
    code: CodeNumber = 0
    text: str = ""
    node: str = ""
    path: str = ""
    attempts: Number = 1

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class Told(Message, frozen=True, tag=41):
    """The node tells a publisher that sent `Want`: outcomes of its events. No answer."""

    source: Source
    rows: list[RangeOutcome]


class PathThere(Message, frozen=True, tag=42):
    """The node tells a publisher that sent `Want`: whether a subscriber can take its events. The publisher waits while
    there is none. No answer."""

    source: Source
    is_there: bool
    is_journal: bool = False
    """Whether its topic is delivered from the journal: then a stored event counts as accepted."""


OutcomeMessage = Want | Told | PathThere
