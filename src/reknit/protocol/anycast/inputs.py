"""The inputs and effects of anycast."""

from __future__ import annotations

import msgspec

from reknit.batch import Batch
from reknit.protocol.anycast.path import CreditUnit
from reknit.protocol.machine import Peer
from reknit.topic import Pattern
from reknit.wire.links import Return
from reknit.wire.messages import DispositionRow
from reknit.wire.outcomes import RangeOutcome


class OfferEvents(msgspec.Struct, frozen=True):
    """Deliver these events. The peer is `HERE` if they were published on this node, or else a neighbour's name."""

    batch: Batch
    mode: str
    resend: bool = False
    origin: str = ""
    visited: tuple[str, ...] = ()
    keeps: bool = False
    deadline: float | None = None
    attempts: int = 0
    """How many subscribers got the events on other nodes."""
    attempts_max: int = 0
    """With `keeps`: after how many failed attempts the events end; 0: never."""


class Attach(msgspec.Struct, frozen=True):
    """A subscriber takes events that match: a new path."""

    pattern: Pattern
    unit: CreditUnit
    credit: int
    name: str
    takes_streams: bool = False
    """Whether it takes events whose payload follows in chunks."""


class Grant(msgspec.Struct, frozen=True):
    """The subscriber's credit, in total since it was attached."""

    total: int


class Stall(msgspec.Struct, frozen=True):
    """The connection to a subscriber or neighbour is full, or has room again."""

    is_blocked: bool


class SubscriberOutcomes(msgspec.Struct, frozen=True):
    """Outcomes from a subscriber."""

    rows: list[DispositionRow]


class Detach(msgspec.Struct, frozen=True):
    """A subscriber is gone. A clean one said that it processed nothing of what it had not settled."""

    is_clean: bool


class NeighbourUp(msgspec.Struct, frozen=True):
    """A node was linked to this one."""

    confirms: bool = False
    """Whether it says when the outcomes that it was returned are durable."""


class NeighbourDown(msgspec.Struct, frozen=True):
    """The link to a node was lost."""


class NeighbourOutcomes(msgspec.Struct, frozen=True):
    """Outcomes from a neighbour. With a number, it is told when they are durable."""

    rows: list[Return]
    number: int = 0


class NeighbourRecorded(msgspec.Struct, frozen=True):
    """The outcomes that a neighbour was returned are durable, up to this number."""

    number: int


class ReturnOutcome(msgspec.Struct, frozen=True):
    """Tell a neighbour the outcome of events that it forwarded; with a number, it is to say when that is durable."""

    row: Return
    number: int = 0


class RoutesChanged(msgspec.Struct, frozen=True):
    """Routes, or subscriptions on other nodes, changed."""


class WithdrawStream(msgspec.Struct, frozen=True):
    """The publisher of a stream gives it up: it goes no further, and nobody waits for its outcome."""

    topic: str
    source: bytes
    text: str


class DeliverLocally(msgspec.Struct, frozen=True):
    """Deliver events `[start, stop)` to a subscriber of this node. Without a batch, the journal has them."""

    key: Peer
    topic: str
    source: bytes
    start: int
    stop: int
    batch: Batch | None
    attempt: int


class ForwardToNeighbour(msgspec.Struct, frozen=True):
    """Send events `[start, stop)` to a neighbour. Without a batch, the journal has them."""

    key: Peer
    topic: str
    source: bytes
    start: int
    stop: int
    batch: Batch | None
    origin: str
    mode: str
    resend: bool
    attempts: int
    visited: list[str]
    deadline: float | None


class ForwardBatch(msgspec.Struct, frozen=True):
    """Events for a neighbour, with their bytes: what `ForwardToNeighbour` becomes once the events were read."""

    wanted: ForwardToNeighbour
    batch: Batch


class Resolve(msgspec.Struct, frozen=True):
    """Report the outcome of events upstream: to the publisher on this node, or to a neighbour."""

    up: Peer
    topic: str
    source: bytes
    fate: RangeOutcome
    visited: list[str]
    keeps: bool


class AttemptEnded(msgspec.Struct, frozen=True):
    """An attempt ended. The node keeps it in its trail."""

    topic: str
    source: bytes
    start: int
    stop: int
    path: str
    sent_at: float
    outcome: int
    text: str


Input = (
    OfferEvents
    | Attach
    | Grant
    | Stall
    | SubscriberOutcomes
    | Detach
    | NeighbourUp
    | NeighbourDown
    | NeighbourOutcomes
    | RoutesChanged
    | WithdrawStream
)
Effect = DeliverLocally | ForwardToNeighbour | Resolve | AttemptEnded
