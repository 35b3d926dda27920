"""The inputs and effects of links. A line is one connection to another node; there may be several to the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from reknit.batch import Batch, Head
from reknit.entries import Removed
from reknit.frame import Buffer
from reknit.outcome import Code
from reknit.protocol.machine import Peer
from reknit.wire.links import Missed
from reknit.wire.messages import Message

# -- inputs


class LineOpened(msgspec.Struct, frozen=True):
    """This node opened a connection to another node, which expects an introduction."""

    cost: int


class LineLost(msgspec.Struct, frozen=True):
    """A connection is gone."""


class LineBlocked(msgspec.Struct, frozen=True):
    """The send buffer of a connection is full, or has room again."""

    is_blocked: bool


class StoreOpened(msgspec.Struct, frozen=True):
    """Events of a neighbour can be stored now; the peer is its name."""


class BatchStored(msgspec.Struct, frozen=True):
    """A batch from a neighbour is durable here; the peer is the neighbour's name."""

    batch: Batch


class EventsRemoved(msgspec.Struct, frozen=True):
    """Retention removed these events: the journal begins at `start` now."""

    removed: Sequence[Removed]
    start: int


class EventsLost(msgspec.Struct, frozen=True):
    """A neighbour told that these events are lost, which is new here: they can't be carried on."""

    lost: Removed


class LossesRecorded(msgspec.Struct, frozen=True):
    """The losses that a neighbour told under this number are durable here; the peer is the neighbour's name."""

    number: int


# -- effects


class SendFrames(msgspec.Struct, frozen=True):
    """Send frames over a line, in one go."""

    line: Peer
    buffers: Sequence[Buffer]


class SendOnLine(msgspec.Struct, frozen=True):
    """Send a message over a line."""

    line: Peer
    message: Message


class DismissLine(msgspec.Struct, frozen=True):
    """Tell the other node why there is no link, and close the connection."""

    line: Peer
    code: Code
    text: str


class CloseLine(msgspec.Struct, frozen=True):
    """Close a connection at once."""

    line: Peer


class Pass(msgspec.Struct, frozen=True):
    """Pass a message to another part of the node."""

    message: Any
    peer: Peer


class OpenStore(msgspec.Struct, frozen=True):
    """Prepare to store the events of a neighbour, and answer `StoreOpened`. Gaps in them are recovered over `line`."""

    name: str
    line: Peer


class StoreBatches(msgspec.Struct, frozen=True):
    """Store batches of a neighbour; each is answered with `BatchStored`."""

    name: str
    batches: list[Batch]


class RecordLosses(msgspec.Struct, frozen=True):
    """Record events of a neighbour as lost, and answer `LossesRecorded` when that is durable."""

    name: str
    number: int
    losses: Sequence[Missed]


class RequestForwarded(msgspec.Struct, frozen=True):
    """A batch of requests goes to another node, which answers them."""

    head: Head


class SaveLinks(msgspec.Struct, frozen=True):
    """Save the state that outlasts a restart: at once, or together with the next changes."""

    is_urgent: bool


class ContinueSoon(msgspec.Struct, frozen=True):
    """More of the journal is to be read than should be in one turn: say `NextTurn` when others have run."""


class LinkNote(msgspec.Struct, frozen=True):
    """A line for the log."""

    level: int
    text: str


Effect = (
    SendFrames
    | SendOnLine
    | DismissLine
    | CloseLine
    | Pass
    | OpenStore
    | StoreBatches
    | RecordLosses
    | RequestForwarded
    | SaveLinks
    | ContinueSoon
    | LinkNote
)
