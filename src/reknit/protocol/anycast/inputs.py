"""What anycast is told, and what it wants done."""

from __future__ import annotations

import msgspec

from reknit.batch import Batch
from reknit.protocol.anycast.state import Unit
from reknit.protocol.machine import Peer
from reknit.topic import Pattern
from reknit.wire.links import Return
from reknit.wire.messages import Row
from reknit.wire.outcomes import Fate


class Offered(msgspec.Struct, frozen=True):
    """Events to deliver: published here (`HERE`), or from a neighbour (its name)."""

    batch: Batch
    mode: str
    resend: bool = False
    origin: str = ""
    visited: tuple[str, ...] = ()
    keeps: bool = False
    deadline: float | None = None
    attempts: int = 0
    """How many subscribers it was handed to elsewhere."""


class Attach(msgspec.Struct, frozen=True):
    """Someone takes events that match: a path."""

    pattern: Pattern
    unit: Unit
    credit: int
    name: str
    takes_streams: bool = False
    """Whether events may come whose payload follows in pieces."""


class Grant(msgspec.Struct, frozen=True):
    """So much in all, since it was attached."""

    total: int


class Stall(msgspec.Struct, frozen=True):
    """The way to a subscriber or neighbour is full, or free again."""

    is_blocked: bool


class Rows(msgspec.Struct, frozen=True):
    """Outcomes from a subscriber."""

    rows: list[Row]


class Detach(msgspec.Struct, frozen=True):
    """A path is gone. If that is clean, the subscriber said that it processed nothing of what it had not settled."""

    is_clean: bool


class NeighbourUp(msgspec.Struct, frozen=True):
    """A link to a node stands."""


class NeighbourDown(msgspec.Struct, frozen=True):
    """… or is lost."""


class Returns(msgspec.Struct, frozen=True):
    """Outcomes from a neighbour."""

    rows: list[Return]


class NewRoutes(msgspec.Struct, frozen=True):
    """Ways or subscriptions elsewhere changed."""


class Withdraw(msgspec.Struct, frozen=True):
    """Whoever offered a stream gives it up: it goes nowhere any more, and nobody waits for its outcome."""

    topic: str
    source: bytes
    text: str


class Hand(msgspec.Struct, frozen=True):
    """Give events `[start, stop)` to a subscriber of this node. The journal has them where there is no batch."""

    key: Peer
    topic: str
    source: bytes
    start: int
    stop: int
    batch: Batch | None
    attempt: int


class Pass(msgspec.Struct, frozen=True):
    """Give events to a neighbour."""

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


class Resolve(msgspec.Struct, frozen=True):
    """Tell upstream what became of events."""

    up: Peer
    topic: str
    source: bytes
    fate: Fate
    visited: list[str]
    keeps: bool


class Tried(msgspec.Struct, frozen=True):
    """An attempt ended, for the trail."""

    topic: str
    source: bytes
    start: int
    stop: int
    path: str
    sent_at: float
    outcome: int
    text: str


Input = (
    Offered | Attach | Grant | Stall | Rows | Detach | NeighbourUp | NeighbourDown | Returns | NewRoutes
    | Withdraw
)  # fmt: skip
Effect = Hand | Pass | Resolve | Tried
