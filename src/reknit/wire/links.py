"""The messages between linked nodes: routing, events that cross a link, and their outcomes."""

from __future__ import annotations

import msgspec

from reknit.fields import Hash, Number, Position, Seq, Source, Topic, check_range
from reknit.wire.messages import Message
from reknit.wire.outcomes import RangeOutcome

# -- routing


class Link(Message, frozen=True, tag=43):
    """Each of two nodes sends it first on a link: its name, its instance (when it started), the link's cost from
    here."""

    node: str
    instance: Number
    cost: Number
    is_edge: bool
    urls: list[str]
    journal: str
    """The epoch of its journal."""
    confirms: bool = False
    """Whether it answers `Returned` with `Recorded`."""


class LinkState(Message, frozen=True, tag=44):
    """A node's neighbours and the costs to reach them. It is flooded whenever they change; the newest (instance, seq)
    of a node counts. No answer."""

    node: str
    instance: Number
    seq: Number
    links: dict[str, Number]
    is_edge: bool = False


class Announce(Message, frozen=True, tag=45):
    """The patterns that a node subscribes to: as a change to `seq - 1`, or as a whole. It is flooded whenever they
    change.

    A node that misses a change answers `AskWhole`.
    """

    node: str
    instance: Number
    seq: Number
    added: list[tuple[Topic, str]]
    """(pattern, mode): mode is `journal` for subscribers that get everything, `any` for those that share, and for a
    queue the name of its account, which begins with `queue/`."""
    removed: list[tuple[Topic, str]] = msgspec.field(default_factory=list)
    is_whole: bool = False


class AskWhole(Message, frozen=True, tag=46):
    """A node that missed an update about another node requests the full state. The answer is `LinkState` and
    `Announce`."""

    node: str


VersionRow = tuple[str, Number, Number, Number]


class Beat(Message, frozen=True, tag=47):
    """Each node sends it to its neighbours at regular intervals, with the versions that it knows.

    A row is (node, instance, seq of its links, seq of its patterns). A neighbour that lacks a version answers
    `AskWhole`. There are no rows for a neighbour whose last `digest` was the same: it knows the same versions.
    """

    rows: list[VersionRow]
    digest: Hash = 0
    """Of all rows; 0 from a node that always sends them."""


# -- anycast


class Forward(Message, frozen=True, tag=48):
    """A node forwards an anycast batch to a neighbour: the next `size` bytes. The neighbour answers `Returned`."""

    size: Number
    origin: str
    mode: str
    resend: bool
    attempts: Number
    """To how many subscribers it was delivered so far."""
    ttl_ms: Number
    visited: list[str]
    """The nodes that have it or had it. It does not go there again."""


class Return(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of forwarded events."""

    topic: Topic
    source: Source
    fate: RangeOutcome
    visited: list[str]


class Returned(Message, frozen=True, tag=49):
    """A node's answer to `Forward`: the outcomes of the forwarded events. With a number, the answer is `Recorded`."""

    rows: list[Return]
    number: Number = 0


class Recorded(Message, frozen=True, tag=55):
    """The answer to `Returned`: all outcomes up to this number are durable on the nodes that the events came from."""

    number: Number


# -- replication


class Pull(Message, frozen=True, tag=50):
    """A node asks a neighbour to send the events that it subscribes to, from this position of the neighbour's journal
    on.

    -1: from when the two were linked first. The neighbour answers with one `Carry` after another.
    """

    epoch: str
    position: Position


class Missed(msgspec.Struct, frozen=True, array_like=True):
    """Events `[start, stop)` of a series that were meant for a neighbour, and that nobody can carry there any more."""

    topic: Topic
    source: Source
    start: Seq
    stop: Seq

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class Carry(Message, frozen=True, tag=51):
    """The answer to `Pull`: the next `size` bytes are batches to store and forward. The receiver answers `Got`.

    `position` is the sender's journal position after them.
    """

    size: Number
    position: Position
    origins: list[tuple[Source, str]]
    """The nodes on which new sources are published."""
    missed: list[Missed] = msgspec.field(default_factory=list)
    """Events that are lost to the receiver. It records that after everything that was sent before, and answers `Got`
    with the number."""
    number: Number = 0


class Got(Message, frozen=True, tag=52):
    """The answer to `Carry`: everything up to this position of the sender's journal is stored here."""

    position: Position
    number: Number = 0
    """The losses of the `Carry` with this number are recorded."""


class Skip(Message, frozen=True, tag=53):
    """A bridge or a publisher tells a node: events `[start, stop)` are lost at their origin. The series continues after
    them. The answer is `Ack` when that is durable, or `Expect` if the node misses events before them."""

    topic: Topic
    source: Source
    start: Seq
    stop: Seq
    text: str
    is_ahead: bool = False
    """Whether events before them may still come: a source that the node does not know does not begin after them."""

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class Via(Message, frozen=True, tag=54):
    """A bridge tells a node which nodes a source has passed, in order, before its events arrive. No answer."""

    source: Source
    nodes: list[str]


LinkMessage = (
    Link
    | LinkState
    | Announce
    | AskWhole
    | Beat
    | Forward
    | Returned
    | Recorded
    | Pull
    | Carry
    | Got
    | Skip
    | Via
)
