"""The messages between a node and its clients, beside batches: small tagged values, packed with msgpack.

Ranges on the wire are half-open, as everywhere. A `number` counts up per subscription, so that a repeated message has no
effect. Outcomes, recovery, links and streams have modules of their own: `outcomes`, `recovery`, `links`, `streams`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from reknit.fields import (
    CodeNumber,
    Number,
    OutcomeNumber,
    Position,
    QueueName,
    Seconds,
    Seq,
    SeriesRange,
    Source,
    Topic,
    check_range,
)
from reknit.ledger.account import QUEUES
from reknit.queue_order import QueueOrder

VERSION: Final = 1


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """The base of everything that goes into a message frame."""


# -- connections


COPIER: Final = "copier"
"""The role of a connection that publishes events which another node has stored: of links, relays and bridges."""


class Hello(Message, frozen=True, tag=1):
    """The side that opened a connection sends it first. The node answers `Welcome`, or `Bye`."""

    version: Number
    name: str
    token: str = ""
    role: str = "client"
    """`client`, `node` for a link, or `COPIER`."""


class Welcome(Message, frozen=True, tag=2):
    """The node's answer to `Hello`: its name, the epoch of its journal, and its limits."""

    version: Number
    node: str
    epoch: str
    heartbeat_s: Seconds
    frame_bytes_max: Number


class Ping(Message, frozen=True, tag=3):
    """Either side sends it on a quiet connection. The answer is `Pong`."""


class Pong(Message, frozen=True, tag=4):
    """The answer to `Ping`."""


class Bye(Message, frozen=True, tag=5):
    """Either side sends it before it closes the connection, with the reason: a google.rpc code and a text. No answer."""

    code: CodeNumber
    text: str


# -- publishing


class Declare(Message, frozen=True, tag=6):
    """A publisher whose source is not new asks for the last durable seq of it. The node answers `Ack`."""

    source: Source
    topic: Topic


class Ack(Message, frozen=True, tag=7):
    """The node tells a publisher: everything of the source up to and including `seq` is stored. No answer."""

    source: Source
    seq: Seq


class Expect(Message, frozen=True, tag=8):
    """The node tells a publisher: a batch did not follow on the last one. The publisher resends from `seq` on."""

    source: Source
    seq: Seq


class Refuse(Message, frozen=True, tag=9):
    """The node tells a publisher: events `[start, stop)` of the source are permanently refused, and why. No answer."""

    source: Source
    start: Seq
    stop: Seq
    code: CodeNumber
    text: str

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class Hold(Message, frozen=True, tag=10):
    """The node tells publishers: it can't take events now, and why. They keep their events until `Go`."""

    code: CodeNumber
    text: str
    sources: list[Source] = []
    """The sources that have to wait; empty: all."""


class Go(Message, frozen=True, tag=11):
    """The node tells publishers after a `Hold`: it takes events again. They resend everything unacknowledged."""


# -- subscribing


class Held(SeriesRange, frozen=True, array_like=True, gc=False):
    """A range that the subscriber has in flight: received, not settled."""

    def __post_init__(self) -> None:
        if not 0 < self.start < self.stop:
            raise ValueError(
                f"a held range can't be [{self.start}, {self.stop}): seqs start at 1, and stop is after start"
            )


HELD_MAX: Final = 8_192
"""How many held ranges one message may name. A subscriber that has more says so before, in messages of their own."""
SomeHeld = Annotated[list[Held], msgspec.Meta(max_length=HELD_MAX)]


class Holding(Message, frozen=True, tag=61):
    """A client that is about to subscribe says what it has in flight, if one `Subscribe` can't name all. No answer."""

    sub: Number
    held: SomeHeld


class Start(msgspec.Struct, frozen=True):
    """Where a subscription begins. Without any field: with the events that are stored from now on."""

    history: bool = False
    """From the oldest event held."""
    position: Position | None = None
    """From this position of the journal with the given epoch."""
    epoch: str = ""
    checkpoint: dict[str, Seq] | None = None
    """After these seqs: {source as hex: seq}. Other sources begin at `position`, or else at their first held event."""
    count: Number = 0
    """With `history`: at most this many of the newest events of each source."""
    age_s: Seconds = 0.0
    """With `history`: only events that are at most this old."""


ProcessId = Annotated[bytes, msgspec.Meta(max_length=16)]


class Subscribe(Message, frozen=True, tag=12):
    """A client asks for the events that match a pattern. The node answers `Subscribed` or `Unsubscribed`.

    With a name the subscription is durable, and resumes where that name left off.
    """

    sub: Number
    pattern: Topic
    name: str
    start: Start
    credit: Number
    held: SomeHeld = []
    is_cache: bool = False
    """Whether the subscriber is a cache: an accepted event is stored there and can be recovered from there."""
    takes_streams: bool = False
    """Whether the subscriber takes events whose payload follows in chunks."""
    queue: QueueName = ""
    """The queue of which the subscriber is a member: each of its events goes to one member. It excludes a name."""
    process: ProcessId = b""
    """Names the process of the subscriber, while that runs; empty: events may be held for others."""
    order: QueueOrder = ""
    """What the queue keeps in order: each source, or the events of a key. All members say the same."""

    def __post_init__(self) -> None:
        if self.queue and (self.name or self.is_cache):
            raise ValueError("a member of a queue has no name of its own, and is no cache")
        if self.order and not self.queue:
            raise ValueError("only a queue has an order of its own")

    @property
    def account(self) -> str:
        """The name of the durable subscriber in the ledger; empty if the subscription is not durable."""
        return f"{QUEUES}{self.queue}" if self.queue else self.name


class Handling(msgspec.Struct, frozen=True, array_like=True):
    """How events on a pattern are attempted. A subscriber applies it to events that it recovered from a cache."""

    pattern: Topic
    attempts_max: Number = 0
    ttl_ms: Number = 0
    is_ordered: bool = False


class Subscribed(Message, frozen=True, tag=13):
    """The node's answer to `Subscribe`: the position where it starts, and whether it resumed an earlier one."""

    sub: Number
    position: Position
    resumed: bool
    is_shared: bool = False
    """Whether each event goes to one of several subscribers: seqs have gaps, and a released event goes to the next."""
    handling: list[Handling] = []
    """The rules for its topics, for a subscriber without a name. The first one that matches applies."""
    never: list[CodeNumber] = []
    """Codes of failures that are not retried."""


class Unsubscribe(Message, frozen=True, tag=14):
    """A client ends a subscription; with `forget`, a durable one is deleted. The node answers `Unsubscribed`."""

    sub: Number
    forget: bool = False


class Unsubscribed(Message, frozen=True, tag=15):
    """The node tells a client: the subscription ended, on request or for the given reason. No answer."""

    sub: Number
    code: CodeNumber = 0
    text: str = ""
    is_forgotten: bool = False
    """Whether a durable subscription was deleted, durably."""


class Credit(Message, frozen=True, tag=16):
    """A subscriber allows the node to send batches up to this many bytes since the subscription began. No answer."""

    sub: Number
    total: Number
    is_paused: bool = False
    """Whether the subscriber takes nothing for now, whatever the total."""


class Deliver(Message, frozen=True, tag=17):
    """The node delivers: the next `size` bytes are batches for this subscription. The client answers `Settle`.

    Everything before `position` in the journal was delivered. It is -1 while an earlier event waits.
    """

    sub: Number
    size: Number
    position: Position
    attempt: Number = 1
    counted: bool = True
    """Whether these bytes use up credit. A repeated delivery does not."""
    ordered_to: Seq = 0
    """On an ordered topic: a subscriber that gives back one event gives back everything after it, up to this seq."""


class DispositionRow(msgspec.Struct, frozen=True, array_like=True):
    """A subscriber's disposition of the delivered events `[start, stop)`."""

    topic: Topic
    source: Source
    start: Seq
    stop: Seq
    outcome: OutcomeNumber
    code: CodeNumber = 0
    text: str = ""
    delay_s: Seconds = 0.0
    attempt: Number = 0
    """Which attempt had this outcome; 0: the last one."""

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class Rejection(msgspec.Struct, frozen=True, array_like=True):
    """Events that the subscriber recovered from a cache and rejects. The node did not deliver them, and may lack
    them."""

    data: bytes
    """A whole batch."""
    code: CodeNumber
    text: str
    attempts: Number
    reason: str = "rejected"


class Settle(Message, frozen=True, tag=18):
    """A subscriber reports outcomes, numbered. A repeated one has no effect. The node answers `Settled`."""

    sub: Number
    number: Number
    rows: list[DispositionRow]
    rejected: list[Rejection] = []
    """Recovered events to dead-letter."""
    lost: list[SeriesRange] = []
    """Losses that the subscriber was told of. A durable one is told until it has confirmed that."""


class Settled(Message, frozen=True, tag=19):
    """The node's answer to `Settle`: all outcomes up to this number are stored (durably for a durable subscription)."""

    sub: Number
    number: Number


class Lost(Message, frozen=True, tag=20):
    """The node tells a subscriber: events `[start, stop)` can't be delivered any more, and why.

    A durable subscriber confirms that with its next `Settle`; it may be told before it gets earlier events.
    """

    sub: Number
    topic: Topic
    source: Source
    start: Seq
    stop: Seq
    reason: str

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


class Revoked(Message, frozen=True, tag=60):
    """The node tells a subscriber: the lease of `[start, stop)` ran out, and they are attempted again. No answer.

    The subscriber may still accept or reject them.
    """

    sub: Number
    topic: Topic
    source: Source
    start: Seq
    stop: Seq

    def __post_init__(self) -> None:
        check_range(self.start, self.stop)


# -- admin


class Ask(Message, frozen=True, tag=21):
    """A client asks the node for its status, its ledger, a part of its journal, and so on. The node answers `Answer`."""

    id: Number
    what: str
    args: dict[str, Any] = {}


class Answer(Message, frozen=True, tag=22):
    """The node's answer to the `Ask` with this id. `size` bytes of batches and records follow it."""

    id: Number
    code: CodeNumber
    text: str
    body: Any = None
    size: Number = 0


SessionMessage = (
    Hello | Welcome | Ping | Pong | Bye | Declare | Ack | Expect | Refuse | Hold | Go | Holding | Subscribe | Subscribed
    | Unsubscribe | Unsubscribed | Credit | Deliver | Settle | Settled | Lost | Revoked | Ask | Answer
)  # fmt: skip
