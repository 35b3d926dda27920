"""The messages between the members of a group.

`GroupPiece` carries events and has a layout of its own (`wire/bundle.py`). The others are small and packed with
msgpack. The datagram names its sender, so no message does. Ranges are half-open.
"""

from __future__ import annotations

import msgspec

from reknit.fields import Hash, Number, PieceRanges, Seq, SeqRanges, Source, check_ranges
from reknit.frame import Buffer
from reknit.view import Member, View, check_address


class GroupPiece(msgspec.Struct, frozen=True, gc=False):
    """A part of a batch's bytes; all of it if the batch fits one datagram. `size` is the size of its sender's pieces.

    `stable`: everyone has everything of the source up to and including this. `place` is where the data is in the
    datagram, so that payloads can be read from there without a copy.
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
    """The base of all messages except pieces."""


# -- multicast


class GroupStart(GroupMessage, frozen=True, tag=1):
    """From a sender to a member: you get my events after `seq`, and this is the size of my window.

    `buffer_bytes` is how much the sender's own socket buffers before it drops datagrams.
    """

    seq: Seq
    capacity: Number
    window_bytes: Number
    buffer_bytes: Number


class GroupAskStart(GroupMessage, frozen=True, tag=2):
    """From a member to a sender whose `GroupStart` it lacks."""


class GroupAck(GroupMessage, frozen=True, tag=3):
    """To a sender: my application has all your events up to and including `seq`."""

    seq: Seq


class GroupAnnounce(GroupMessage, frozen=True, tag=4):
    """From a sender that went quiet: I sent up to `high`, and everyone has all up to `stable`.

    A member that lacks something requests it. Every member acks if that is wanted.
    """

    high: Seq
    stable: Seq
    is_ack_wanted: bool


class GroupRecover(GroupMessage, frozen=True, tag=5):
    """To all, and for `asked` to answer: I lack these events of `source`, and these pieces of its batches."""

    source: Source
    asked: Source
    ranges: SeqRanges
    pieces: list[tuple[Seq, PieceRanges]]

    def __post_init__(self) -> None:
        check_ranges(self.ranges)
        for _, pieces in self.pieces:
            check_ranges(pieces, first=0)


class GroupGone(GroupMessage, frozen=True, tag=6):
    """The events of `source` up to and including `seq` are no longer available."""

    source: Source
    seq: Seq


Part = tuple[Seq, Number, Number, Number, PieceRanges]
"""An incomplete batch: (first, count, length, size of a piece, which pieces are held)."""


class GroupHoldings(GroupMessage, frozen=True, tag=7):
    """About a source that left: how far I delivered, the last seq I know of, and what I can send.

    `stamp` names my view. `lost` was given up together with other members. I have forgotten events up to `start`.
    Every member that the source waited for had the events up to `stable`.
    """

    source: Source
    stamp: Hash
    start: Seq
    delivered: Seq
    high: Seq
    ranges: SeqRanges
    parts: list[Part]
    lost: SeqRanges
    is_answer: bool
    stable: Seq = 0

    def __post_init__(self) -> None:
        check_ranges(self.ranges)
        check_ranges(self.lost)
        for *_, pieces in self.parts:
            check_ranges(pieces, first=0)


class GroupEnds(GroupMessage, frozen=True, tag=8):
    """To a member that was apart from me: how far I got with sources that left meanwhile. A question is answered."""

    ends: list[tuple[Source, Seq]]
    is_question: bool


# -- membership


class GroupHello(GroupMessage, frozen=True, tag=16):
    """I want to join."""

    member: Member


class GroupFound(GroupMessage, frozen=True, tag=17):
    """To a joiner: there is a group, and this is its coordinator."""

    coordinator: Member


class GroupBeat(GroupMessage, frozen=True, tag=18):
    """I am alive, and this is my view: `coordinator` made it, and I may coordinate it now."""

    counter: Number
    coordinator: Source
    is_coordinating: bool = False
    address: str = ""
    """Where a coordinator receives datagrams. Another group's coordinator may not know it, and answers there."""

    def __post_init__(self) -> None:
        check_address(self.address)


class GroupInstall(GroupMessage, frozen=True, tag=19):
    """From a coordinator: this is the view."""

    view: View


class GroupAskView(GroupMessage, frozen=True, tag=20):
    """From one coordinator to another: send me your view. Answered with `GroupInstall`, so that two groups merge."""


class GroupLeave(GroupMessage, frozen=True, tag=21):
    """I am leaving."""


class GroupSuspect(GroupMessage, frozen=True, tag=22):
    """I have not heard from these members for too long. A member that is among them sends `GroupBeat` at once."""

    members: list[Source]


class GroupEvict(GroupMessage, frozen=True, tag=23):
    """To the coordinator: this member holds everyone up."""

    member: Source
    why: str


class GroupEvicted(GroupMessage, frozen=True, tag=24):
    """To a member: you are evicted, and why. It can join again only as a new incarnation."""

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
