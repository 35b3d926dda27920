"""What the members of a group say to each other.

`GroupPiece` carries events and has a layout of its own (transport.bundle); the rest is small and packed with
msgpack. Who speaks is known from the datagram, so no message names its own sender. Ranges are half-open.
"""

from __future__ import annotations

import msgspec

from reknit.frame import Buffer
from reknit.seqset import Range
from reknit.view import Member, View


class GroupPiece(msgspec.Struct, frozen=True, gc=False):
    """A part of a batch's bytes: all of it where it fits one datagram. `size` is how its sender cut it.

    `stable`: everyone has everything of the source up to and including this. `place` is where the data lies in the
    bytes that came, so that payloads can be read from there without a copy.
    """

    source: bytes
    first: int
    count: int
    length: int
    size: int
    index: int
    stable: int
    data: Buffer
    place: tuple[bytes, int] | None = None


class GroupMessage(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """The base of everything but pieces."""


# -- multicast


class GroupStart(GroupMessage, frozen=True, tag=1):
    """From a sender to a member: of my events you get those after `seq`; this is how large my window is.

    `buffer_bytes` is what the speaker's own socket can take in before it loses datagrams.
    """

    seq: int
    capacity: int
    window_bytes: int
    buffer_bytes: int


class GroupAskStart(GroupMessage, frozen=True, tag=2):
    """From a member to a sender whose `GroupStart` it lacks."""


class GroupAck(GroupMessage, frozen=True, tag=3):
    """To a sender: my application was handed everything of yours up to and including `seq`."""

    seq: int


class GroupAnnounce(GroupMessage, frozen=True, tag=4):
    """From a sender that went quiet: I sent up to `high`, and everyone has all up to `stable`.

    Who lacks something asks, and everyone acks.
    """

    high: int
    stable: int
    is_ack_wanted: bool


class GroupRecover(GroupMessage, frozen=True, tag=5):
    """Heard by all, meant for `asked`: I lack these events of `source`, and these pieces of its batches."""

    source: bytes
    asked: bytes
    ranges: list[Range]
    pieces: list[tuple[int, list[Range]]]


class GroupGone(GroupMessage, frozen=True, tag=6):
    """Of `source`, nothing up to and including `seq` can be had any more."""

    source: bytes
    seq: int


Part = tuple[int, int, int, int, list[Range]]
"""A batch of which only pieces are held: (first, count, length, size of a piece, which pieces)."""


class GroupHoldings(GroupMessage, frozen=True, tag=7):
    """Of a source that left: how far I delivered, what I know it sent, and what I can give.

    `stamp` names my view. `lost` was given up in common with others before. `start` is what I forgot. By `stable`
    I know that everyone had it whom the source waited for.
    """

    source: bytes
    stamp: int
    start: int
    delivered: int
    high: int
    ranges: list[Range]
    parts: list[Part]
    lost: list[Range]
    is_answer: bool
    stable: int = 0


class GroupEnds(GroupMessage, frozen=True, tag=8):
    """To one that was apart from me: how far I got with sources that left meanwhile. A question is answered."""

    ends: list[tuple[bytes, int]]
    is_question: bool


# -- membership


class GroupHello(GroupMessage, frozen=True, tag=16):
    """I want in."""

    member: Member


class GroupFound(GroupMessage, frozen=True, tag=17):
    """To one that wants in: there is a group, and this is its coordinator."""

    coordinator: Member


class GroupBeat(GroupMessage, frozen=True, tag=18):
    """Still here, and this is my view: `coordinator` made it, and I may be the one that coordinates it now."""

    counter: int
    coordinator: bytes
    is_coordinating: bool = False


class GroupInstall(GroupMessage, frozen=True, tag=19):
    """From a coordinator: this is the view."""

    view: View


class GroupAskView(GroupMessage, frozen=True, tag=20):
    """From one coordinator to another: who is with you? Answered by `GroupInstall`, so that two groups merge."""


class GroupLeave(GroupMessage, frozen=True, tag=21):
    """I am leaving."""


class GroupSuspect(GroupMessage, frozen=True, tag=22):
    """I have not heard from these for long. Who hears its own id says `GroupBeat` at once."""

    members: list[bytes]


class GroupEvict(GroupMessage, frozen=True, tag=23):
    """To the coordinator: this member holds everyone up."""

    member: bytes
    why: str


class GroupEvicted(GroupMessage, frozen=True, tag=24):
    """To a member: you are out, and why. A way back is a new incarnation."""

    why: str


MulticastMessage = (
    GroupStart
    | GroupAskStart
    | GroupAck
    | GroupAnnounce
    | GroupRecover
    | GroupGone
    | GroupHoldings
    | GroupEnds
)
MembershipMessage = (
    GroupHello
    | GroupFound
    | GroupBeat
    | GroupInstall
    | GroupAskView
    | GroupLeave
    | GroupSuspect
    | GroupEvict
    | GroupEvicted
)
AnyGroupMessage = MulticastMessage | MembershipMessage
