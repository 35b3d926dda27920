"""What a node and its clients say to each other, beside batches: small tagged values, packed with msgpack.

Ranges on the wire are half-open, as everywhere. `number`s count up per subscription and make repeats harmless.
Outcomes, recovery, links and streams have their own: `outcome_messages`, `recovery_messages`, and so on.
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


SessionMessage = (
    Hello | Welcome | Ping | Pong | Bye | Declare | Ack | Expect | Refuse | Hold | Go | Subscribe | Subscribed
    | Unsubscribe | Unsubscribed | Credit | Deliver | Settle | Settled | Lost | Revoked | Ask | Answer
)  # fmt: skip
