"""The effects of a group's machines."""

from __future__ import annotations

from typing import Any

import msgspec

from reknit.batch import Batch
from reknit.outcome import Reason
from reknit.seqset import Range
from reknit.view import View
from reknit.wire.groups import AnyGroupMessage, GroupPiece


class SendToGroup(msgspec.Struct, frozen=True):
    """Send a message to one member, or to all (`peer` None)."""

    peer: bytes | None
    message: AnyGroupMessage


class SendToAddress(msgspec.Struct, frozen=True):
    """Send a message to an address whose member is not known yet."""

    address: str
    message: AnyGroupMessage


class SendBatch(msgspec.Struct, frozen=True):
    """Send a batch to one member or to all, cut into pieces of `size` bytes; only some of the pieces, if given."""

    peer: bytes | None
    batch: Batch
    size: int
    pieces: list[Range] | None = None


class SendPieces(msgspec.Struct, frozen=True):
    """Send to one member the pieces that we have of incomplete batches."""

    peer: bytes
    pieces: list[GroupPiece]


class DeliverBatch(msgspec.Struct, frozen=True):
    """Deliver the next events of a source, in order. Call `mark_delivered` when the application has them."""

    source: bytes
    batch: Batch


class LostEvents(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a source are permanently lost. This comes in order, between deliveries."""

    source: bytes
    start: int
    stop: int


class SendDone(msgspec.Struct, frozen=True):
    """All events that waited under this ticket got their seqs."""

    ticket: Any


class SendFailed(msgspec.Struct, frozen=True):
    """Only the first `accepted` events under this ticket got seqs: the send timed out, or the group closed."""

    ticket: Any
    accepted: int
    is_timeout: bool


class DeadLetteredEvents(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of ours that a slow member did not take. Nobody waits for it any more."""

    member: bytes
    start: int
    stop: int
    reason: Reason


class EvictSlow(msgspec.Struct, frozen=True):
    """Evict this member: the policy for slow members says so."""

    member: bytes
    why: str


class ViewInstalled(msgspec.Struct, frozen=True):
    """The members changed."""

    view: View


class LeftGroup(msgspec.Struct, frozen=True):
    """We are out of the group: because we wanted to (`why` is empty), or for this reason."""

    why: str


MulticastEffect = (
    SendToGroup
    | SendBatch
    | SendPieces
    | DeliverBatch
    | LostEvents
    | SendDone
    | SendFailed
    | DeadLetteredEvents
    | EvictSlow
)
MembershipEffect = SendToGroup | SendToAddress | ViewInstalled | LeftGroup
GroupEffect = MulticastEffect | MembershipEffect
