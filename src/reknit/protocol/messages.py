"""What nodes and clients say to each other, beside batches: small tagged values, packed with msgpack.

Ranges on the wire are half-open, as everywhere. `number`s count up per subscription and make repeats harmless.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

VERSION: Final = 1


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """The base of everything that goes into a message frame."""


class Hello(Message, frozen=True, tag=1):
    """The first message on a connection, from the side that opened it."""

    version: int
    name: str
    token: str = ""
    role: str = "client"


class Welcome(Message, frozen=True, tag=2):
    """The answer to `Hello`: who the node is, and what it can take."""

    version: int
    node: str
    epoch: str
    heartbeat_s: float
    frame_bytes_max: int


class Ping(Message, frozen=True, tag=3):
    """Still here? Sent on a quiet connection only."""


class Pong(Message, frozen=True, tag=4):
    """Still here."""


class Bye(Message, frozen=True, tag=5):
    """The connection ends, and why: a google.rpc code and words."""

    code: int
    text: str


class Declare(Message, frozen=True, tag=6):
    """A publisher with a lasting identity asks how far its source has got. Answered by `Ack`."""

    source: bytes
    topic: str


class Ack(Message, frozen=True, tag=7):
    """Everything of the source up to and including seq is kept."""

    source: bytes
    seq: int


class Expect(Message, frozen=True, tag=8):
    """A batch did not follow on: send again from this seq."""

    source: bytes
    seq: int


class Refuse(Message, frozen=True, tag=9):
    """Events `[start, stop)` of the source are not taken, for good, and why."""

    source: bytes
    start: int
    stop: int
    code: int
    text: str


class Hold(Message, frozen=True, tag=10):
    """The node can't take events for now, and why. Publishers keep what they have until `Go`."""

    code: int
    text: str
    sources: list[bytes] = []
    """Whose events these are; empty: everyone's."""


class Go(Message, frozen=True, tag=11):
    """The node takes events again: send what is not acknowledged."""


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A range that the subscriber has in hand: received, not settled."""

    topic: str
    source: bytes
    start: int
    stop: int


class Start(msgspec.Struct, frozen=True):
    """Where a subscription begins. Without anything: with what is kept from now on."""

    history: bool = False
    """From the oldest event that is held."""
    position: int | None = None
    """From this place in the journal whose epoch is given."""
    epoch: str = ""
    checkpoint: dict[str, int] | None = None
    """After these seqs: {source as hex: seq}; sources that are not in it from their first held event, or from the
    position if there is one."""
    count: int = 0
    """With `history`: at most the last so many of each source."""
    age_s: float = 0.0
    """With `history`: only what is no older."""


class Subscribe(Message, frozen=True, tag=12):
    """Hand out what matches the pattern. With a name it is durable and goes on where that name was."""

    sub: int
    pattern: str
    name: str
    start: Start
    credit: int
    held: list[Held] = []
    is_cache: bool = False
    """Whether what is accepted is stored and can be recovered from there: an accepted outcome is a put reply."""
    takes_streams: bool = False
    """Whether events may come whose payload follows in pieces."""


class Handling(msgspec.Struct, frozen=True, array_like=True):
    """How events on a pattern are tried: for who recovers them beside the node."""

    pattern: str
    attempts_max: int = 0
    ttl_ms: int = 0
    is_ordered: bool = False


class Subscribed(Message, frozen=True, tag=13):
    """The subscription stands; `position` is where it starts, `resumed` whether it went on from before."""

    sub: int
    position: int
    resumed: bool
    is_shared: bool = False
    """Each event goes to one of those who share it: seqs have gaps, and what is released goes to the next."""
    handling: list[Handling] = []
    """The rules for its topics, the first one that matches counts; for a subscriber without a name."""
    never: list[int] = []
    """Codes of failures that are not tried again."""


class Unsubscribe(Message, frozen=True, tag=14):
    """End a subscription; `forget` also ends a durable one for good."""

    sub: int
    forget: bool = False


class Unsubscribed(Message, frozen=True, tag=15):
    """The subscription ended: asked for, or with the reason."""

    sub: int
    code: int = 0
    text: str = ""
    is_forgotten: bool = False
    """A durable one ended for good, durably."""


class Credit(Message, frozen=True, tag=16):
    """The subscriber has room: batches up to this many bytes in all since the subscription began."""

    sub: int
    total: int


class Deliver(Message, frozen=True, tag=17):
    """The next `size` bytes are batches for this subscription.

    `position` is the journal's place after them: everything before it was handed out. -1 where something was not.
    """

    sub: int
    size: int
    position: int
    attempt: int = 1
    counted: bool = True
    """Whether these bytes use up credit: a repeated hand-over does not."""
    ordered_to: int = 0
    """Where nothing may be processed before what is in front of it: who gives back one event gives back all behind
    it, up to this seq."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One outcome for events `[start, stop)`."""

    topic: str
    source: bytes
    start: int
    stop: int
    outcome: int
    code: int = 0
    text: str = ""
    delay_s: float = 0.0
    attempt: int = 0
    """Which attempt came to this; 0: the last one."""


class Rejection(msgspec.Struct, frozen=True, array_like=True):
    """Events that the subscriber recovered and rejects: the node did not hand them out, and may not have them."""

    data: bytes
    """A whole batch."""
    code: int
    text: str
    attempts: int
    reason: str = "rejected"


class Settle(Message, frozen=True, tag=18):
    """Outcomes, by number. Repeating one changes nothing."""

    sub: int
    number: int
    rows: list[Row]
    rejected: list[Rejection] = []
    """What is to become dead letters beside that."""


class Settled(Message, frozen=True, tag=19):
    """Everything up to this number is booked (and durable, for a durable subscription)."""

    sub: int
    number: int


class Lost(Message, frozen=True, tag=20):
    """Events `[start, stop)` can't be delivered to this subscription any more."""

    sub: int
    topic: str
    source: bytes
    start: int
    stop: int
    reason: str


class Revoked(Message, frozen=True, tag=60):
    """The lease of `[start, stop)` ran out: they go to the next attempt, and only an end of them still counts."""

    sub: int
    topic: str
    source: bytes
    start: int
    stop: int


class Ask(Message, frozen=True, tag=21):
    """A question with an answer: status, ledger, read …"""

    id: int
    what: str
    args: dict[str, Any] = {}


class Answer(Message, frozen=True, tag=22):
    """The answer; `size` bytes of batches and records may follow it."""

    id: int
    code: int
    text: str
    body: Any = None
    size: int = 0


class Recover(Message, frozen=True, tag=23):
    """I miss these ranges of a stream: send what you hold of them, about `bytes_max` bytes at most."""

    id: int
    topic: str
    source: bytes
    ranges: list[tuple[int, int]]
    bytes_max: int
    deep: bool = True
    """Whether to ask further caches for what is not held here."""


class Recovered(Message, frozen=True, tag=24):
    """The next `size` bytes are recovered batches. What is in `covered` and not among them is not held here."""

    id: int
    size: int
    covered: list[tuple[int, int]]
    is_last: bool = True


class Span(msgspec.Struct, frozen=True, array_like=True):
    """What a cache holds of a stream, and the last seq that it knows to exist."""

    topic: str
    source: bytes
    ranges: list[tuple[int, int]]
    last: int


class Survey(Message, frozen=True, tag=25):
    """What do you hold of the topics that match? With `age_s` only what is no older than that."""

    id: int
    pattern: str
    age_s: float = 0.0
    deep: bool = True


class Surveyed(Message, frozen=True, tag=26):
    """What is held; more rows follow unless this is the last."""

    id: int
    spans: list[Span]
    is_last: bool = True


class Heartbeat(Message, frozen=True, tag=27):
    """A publisher's last seq, so that a lost tail is noticed. The node passes it on to subscriptions by `sub`."""

    topic: str
    source: bytes
    seq: int
    sub: int = 0


class Offer(Message, frozen=True, tag=28):
    """This side holds events of the pattern (of one source, or of all) and answers `Recover`; or does so no more."""

    pattern: str
    source: bytes = b""
    is_on: bool = True


class Require(Message, frozen=True, tag=29):
    """A publisher wants to hear from how many caches each of its events is stored in."""

    source: bytes
    topic: str


class Stored(Message, frozen=True, tag=30):
    """A put reply: one more cache than the node itself stored everything of the source up to and including seq."""

    source: bytes
    seq: int
    cache: str


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
    removed: list[tuple[str, str]] = []
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


class Begin(Message, frozen=True, tag=70):
    """A publisher begins a stream: an event whose payload follows in pieces. The end of it is a `Told`."""

    source: bytes
    """Of this stream alone."""
    topic: str
    resend: bool
    data: bytes
    """The event without its payload, as a whole batch."""


class Piece(Message, frozen=True, tag=71):
    """Bytes of a stream from `offset` on, to a subscription, or from a publisher or node (`sub` is 0)."""

    sub: int
    source: bytes
    offset: int
    data: bytes
    is_last: bool


class Room(Message, frozen=True, tag=72):
    """So many bytes of a stream may be sent in all."""

    sub: int
    source: bytes
    total: int


class Abort(Message, frozen=True, tag=73):
    """No more of a stream comes: it never was an event."""

    sub: int
    source: bytes
    text: str


AnyMessage = (
    Hello | Welcome | Ping | Pong | Bye | Declare | Ack | Expect | Refuse | Hold | Go | Subscribe | Subscribed
    | Unsubscribe | Unsubscribed | Credit | Deliver | Settle | Settled | Lost | Ask | Answer | Recover
    | Recovered | Survey | Surveyed | Heartbeat | Offer | Require | Stored
    | Want | Told | PathThere | Link | LinkState | Announce | AskWhole | Beat | Forward | Returned | Pull
    | Carry | Got | Skip | Via | Revoked | Begin | Piece | Room | Abort
)  # fmt: skip
