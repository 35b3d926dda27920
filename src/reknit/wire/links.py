"""What nodes say to each other: who is where, which events go over a link, and what became of them."""

from __future__ import annotations

import msgspec

from reknit.wire.messages import Message
from reknit.wire.outcomes import Fate


class Link(Message, frozen=True, tag=43):
    """The first words between two nodes: who this is, since when it runs, what the link costs from here."""

    node: str
    instance: int
    cost: int
    is_edge: bool
    urls: list[str]
    journal: str
    """The epoch of its journal."""


class LinkState(Message, frozen=True, tag=44):
    """A node's neighbours and what it costs to get there. The newest (instance, seq) of a node counts."""

    node: str
    instance: int
    seq: int
    links: dict[str, int]
    is_edge: bool = False


class Announce(Message, frozen=True, tag=45):
    """What a node subscribes to, as a change after `seq - 1`, or as a whole."""

    node: str
    instance: int
    seq: int
    added: list[tuple[str, str]]
    """(pattern, mode): mode is `journal` for those who get everything, `any` for those who share."""
    removed: list[tuple[str, str]] = msgspec.field(default_factory=list)
    is_whole: bool = False


class AskWhole(Message, frozen=True, tag=46):
    """I missed something about this node: tell all that you know of it."""

    node: str


class Beat(Message, frozen=True, tag=47):
    """Still here, and this is what I know: (node, instance, seq of its links, seq of its subscriptions)."""

    rows: list[tuple[str, int, int, int]]


class Forward(Message, frozen=True, tag=48):
    """The next `size` bytes are one batch that is to be delivered from here on, and its outcome told."""

    size: int
    origin: str
    mode: str
    resend: bool
    attempts: int
    """How many subscribers it was handed to so far."""
    ttl_ms: int
    visited: list[str]
    """Nodes that have it or have had it: it does not go there again."""


class Return(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of events that were forwarded."""

    topic: str
    source: bytes
    fate: Fate
    visited: list[str]


class Returned(Message, frozen=True, tag=49):
    """Outcomes of what was forwarded, to the node that forwarded it."""

    rows: list[Return]


class Pull(Message, frozen=True, tag=50):
    """Send what I subscribe to from this place in your journal on; -1: from now on."""

    epoch: str
    position: int


class Carry(Message, frozen=True, tag=51):
    """The next `size` bytes are batches to keep and pass on; `position` is the journal's place after them."""

    size: int
    position: int
    origins: list[tuple[bytes, str]]
    """The nodes on which new sources are published."""


class Got(Message, frozen=True, tag=52):
    """Everything up to this position is kept here."""

    position: int


class Skip(Message, frozen=True, tag=53):
    """Events `[start, stop)` are lost where they come from: go on behind them."""

    topic: str
    source: bytes
    start: int
    stop: int
    text: str


class Via(Message, frozen=True, tag=54):
    """The nodes that a source has been at, in order, before a bridge brings it here."""

    source: bytes
    nodes: list[str]


LinkMessage = (
    Link | LinkState | Announce | AskWhole | Beat | Forward | Returned | Pull | Carry | Got | Skip | Via
)
