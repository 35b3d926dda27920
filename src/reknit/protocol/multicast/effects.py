"""What the machines of a group want done, in order."""

from __future__ import annotations

from typing import Any

import msgspec

from reknit.batch import Batch
from reknit.outcome import Reason
from reknit.seqset import Range
from reknit.view import View
from reknit.wire.groups import AnyGroupMessage, GroupPiece


class SendMessage(msgspec.Struct, frozen=True):
    """Say this to one member, or to all."""

    peer: bytes | None
    message: AnyGroupMessage


class SendToAddress(msgspec.Struct, frozen=True):
    """Say this to an address whose member is not known yet."""

    address: str
    message: AnyGroupMessage


class SendBatch(msgspec.Struct, frozen=True):
    """Send a batch to one member or to all, cut into pieces of `size`; only some of the pieces, if given."""

    peer: bytes | None
    batch: Batch
    size: int
    pieces: list[Range] | None = None


class SendPieces(msgspec.Struct, frozen=True):
    """Send to one member what pieces we have of batches that we have not whole."""

    peer: bytes
    pieces: list[GroupPiece]


class DeliverBatch(msgspec.Struct, frozen=True):
    """The next events of a source, in order. Call `handed` when the application has them."""

    source: bytes
    batch: Batch


class ReportLost(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a source can't be had any more; they stand between what was delivered."""

    source: bytes
    start: int
    stop: int


class SendDone(msgspec.Struct, frozen=True):
    """What was waiting under this ticket got its seqs."""

    ticket: Any


class SendFailed(msgspec.Struct, frozen=True):
    """Only the first `accepted` of what was waiting got seqs: its time ran out, or the group closed."""

    ticket: Any
    accepted: int
    is_timeout: bool


class ReportDeadLettered(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of ours that a slow member did not take, and is not waited for."""

    member: bytes
    start: int
    stop: int
    reason: Reason


class EvictSlow(msgspec.Struct, frozen=True):
    """The policy says that this member has to go."""

    member: bytes
    why: str


class ViewInstalled(msgspec.Struct, frozen=True):
    """A new view stands."""

    view: View


class LeftGroup(msgspec.Struct, frozen=True):
    """We are out of the group: on our own wish, or for this reason."""

    why: str


MulticastEffect = (
    SendMessage
    | SendBatch
    | SendPieces
    | DeliverBatch
    | ReportLost
    | SendDone
    | SendFailed
    | ReportDeadLettered
    | EvictSlow
)
MembershipEffect = SendMessage | SendToAddress | ViewInstalled | LeftGroup
GroupEffect = MulticastEffect | MembershipEffect
