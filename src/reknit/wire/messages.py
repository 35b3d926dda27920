"""The messages between a node and its clients, beside batches: small tagged values, packed with msgpack.

Ranges on the wire are half-open, as everywhere. A `number` counts up per subscription, so that a repeated message has no
effect. Outcomes, recovery, links and streams have modules of their own: `outcomes`, `recovery`, `links`, `streams`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

VERSION: Final = 1


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """The base of everything that goes into a message frame."""


# -- connections


class Hello(Message, frozen=True, tag=1):
    """The side that opened a connection sends it first. The node answers `Welcome`, or `Bye`."""

    version: int
    name: str
    token: str = ""
    role: str = "client"


class Welcome(Message, frozen=True, tag=2):
    """The node's answer to `Hello`: its name, the epoch of its journal, and its limits."""

    version: int
    node: str
    epoch: str
    heartbeat_s: float
    frame_bytes_max: int


class Ping(Message, frozen=True, tag=3):
    """Either side sends it on a quiet connection. The answer is `Pong`."""


class Pong(Message, frozen=True, tag=4):
    """The answer to `Ping`."""


class Bye(Message, frozen=True, tag=5):
    """Either side sends it before it closes the connection, with the reason: a google.rpc code and a text. No answer."""

    code: int
    text: str


# -- publishing


class Declare(Message, frozen=True, tag=6):
    """A publisher whose source is not new asks for the last durable seq of it. The node answers `Ack`."""

    source: bytes
    topic: str


class Ack(Message, frozen=True, tag=7):
    """The node tells a publisher: everything of the source up to and including `seq` is stored. No answer."""

    source: bytes
    seq: int


class Expect(Message, frozen=True, tag=8):
    """The node tells a publisher: a batch did not follow on the last one. The publisher resends from `seq` on."""

    source: bytes
    seq: int


class Refuse(Message, frozen=True, tag=9):
    """The node tells a publisher: events `[start, stop)` of the source are permanently refused, and why. No answer."""

    source: bytes
    start: int
    stop: int
    code: int
    text: str


class Hold(Message, frozen=True, tag=10):
    """The node tells publishers: it can't take events now, and why. They keep their events until `Go`."""

    code: int
    text: str
    sources: list[bytes] = []
    """The sources that have to wait; empty: all."""


class Go(Message, frozen=True, tag=11):
    """The node tells publishers after a `Hold`: it takes events again. They resend everything unacknowledged."""


# -- subscribing


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A range that the subscriber has in flight: received, not settled."""

    topic: str
    source: bytes
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 < self.start < self.stop:
            raise ValueError(
                f"a held range can't be [{self.start}, {self.stop}): seqs start at 1, and stop is after start"
            )


class Start(msgspec.Struct, frozen=True):
    """Where a subscription begins. Without any field: with the events that are stored from now on."""

    history: bool = False
    """From the oldest event held."""
    position: int | None = None
    """From this position of the journal with the given epoch."""
    epoch: str = ""
    checkpoint: dict[str, int] | None = None
    """After these seqs: {source as hex: seq}. Other sources begin at `position`, or else at their first held event."""
    count: int = 0
    """With `history`: at most this many of the newest events of each source."""
    age_s: float = 0.0
    """With `history`: only events that are at most this old."""


class Subscribe(Message, frozen=True, tag=12):
    """A client asks for the events that match a pattern. The node answers `Subscribed` or `Unsubscribed`.

    With a name the subscription is durable, and resumes where that name left off.
    """

    sub: int
    pattern: str
    name: str
    start: Start
    credit: int
    held: list[Held] = []
    is_cache: bool = False
    """Whether the subscriber is a cache: an accepted event is stored there and can be recovered from there."""
    takes_streams: bool = False
    """Whether the subscriber takes events whose payload follows in chunks."""


class Handling(msgspec.Struct, frozen=True, array_like=True):
    """How events on a pattern are attempted. A subscriber applies it to events that it recovered from a cache."""

    pattern: str
    attempts_max: int = 0
    ttl_ms: int = 0
    is_ordered: bool = False


class Subscribed(Message, frozen=True, tag=13):
    """The node's answer to `Subscribe`: the position where it starts, and whether it resumed an earlier one."""

    sub: int
    position: int
    resumed: bool
    is_shared: bool = False
    """Whether each event goes to one of several subscribers: seqs have gaps, and a released event goes to the next."""
    handling: list[Handling] = []
    """The rules for its topics, for a subscriber without a name. The first one that matches applies."""
    never: list[int] = []
    """Codes of failures that are not retried."""


class Unsubscribe(Message, frozen=True, tag=14):
    """A client ends a subscription; with `forget`, a durable one is deleted. The node answers `Unsubscribed`."""

    sub: int
    forget: bool = False


class Unsubscribed(Message, frozen=True, tag=15):
    """The node tells a client: the subscription ended, on request or for the given reason. No answer."""

    sub: int
    code: int = 0
    text: str = ""
    is_forgotten: bool = False
    """Whether a durable subscription was deleted, durably."""


class Credit(Message, frozen=True, tag=16):
    """A subscriber allows the node to send batches up to this many bytes since the subscription began. No answer."""

    sub: int
    total: int


class Deliver(Message, frozen=True, tag=17):
    """The node delivers: the next `size` bytes are batches for this subscription. The client answers `Settle`.

    Everything before `position` in the journal was delivered. It is -1 while an earlier event waits.
    """

    sub: int
    size: int
    position: int
    attempt: int = 1
    counted: bool = True
    """Whether these bytes use up credit. A repeated delivery does not."""
    ordered_to: int = 0
    """On an ordered topic: a subscriber that gives back one event gives back everything after it, up to this seq."""


class DispositionRow(msgspec.Struct, frozen=True, array_like=True):
    """A subscriber's disposition of the delivered events `[start, stop)`."""

    topic: str
    source: bytes
    start: int
    stop: int
    outcome: int
    code: int = 0
    text: str = ""
    delay_s: float = 0.0
    attempt: int = 0
    """Which attempt had this outcome; 0: the last one."""


class Rejection(msgspec.Struct, frozen=True, array_like=True):
    """Events that the subscriber recovered from a cache and rejects. The node did not deliver them, and may lack
    them."""

    data: bytes
    """A whole batch."""
    code: int
    text: str
    attempts: int
    reason: str = "rejected"


class Settle(Message, frozen=True, tag=18):
    """A subscriber reports outcomes, numbered. A repeated one has no effect. The node answers `Settled`."""

    sub: int
    number: int
    rows: list[DispositionRow]
    rejected: list[Rejection] = []
    """Recovered events to dead-letter."""


class Settled(Message, frozen=True, tag=19):
    """The node's answer to `Settle`: all outcomes up to this number are stored (durably for a durable subscription)."""

    sub: int
    number: int


class Lost(Message, frozen=True, tag=20):
    """The node tells a subscriber: events `[start, stop)` can't be delivered any more, and why. No answer."""

    sub: int
    topic: str
    source: bytes
    start: int
    stop: int
    reason: str


class Revoked(Message, frozen=True, tag=60):
    """The node tells a subscriber: the lease of `[start, stop)` ran out, and they are attempted again. No answer.

    The subscriber may still accept or reject them.
    """

    sub: int
    topic: str
    source: bytes
    start: int
    stop: int


# -- admin


class Ask(Message, frozen=True, tag=21):
    """A client asks the node for its status, its ledger, a part of its journal, and so on. The node answers `Answer`."""

    id: int
    what: str
    args: dict[str, Any] = {}


class Answer(Message, frozen=True, tag=22):
    """The node's answer to the `Ask` with this id. `size` bytes of batches and records follow it."""

    id: int
    code: int
    text: str
    body: Any = None
    size: int = 0


SessionMessage = (
    Hello | Welcome | Ping | Pong | Bye | Declare | Ack | Expect | Refuse | Hold | Go | Subscribe | Subscribed
    | Unsubscribe | Unsubscribed | Credit | Deliver | Settle | Settled | Lost | Revoked | Ask | Answer
)  # fmt: skip
