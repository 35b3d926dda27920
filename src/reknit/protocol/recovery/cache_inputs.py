"""What a node's cache service is told and what it asks for, beside the messages of peers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.outcome import Code
from reknit.protocol.effects import Send
from reknit.protocol.machine import Peer, PeerLeft
from reknit.seqset import Range
from reknit.wire.recovery import Offer, Recover, Recovered, Span, Survey, Surveyed

# -- inputs


class LookedUp(msgspec.Struct, frozen=True):
    """The answer to `LookUp`: the events that the node holds, and the ranges that this covers."""

    request: Recover
    batches: list[Batch]
    covered: list[Range]


class Listed(msgspec.Struct, frozen=True):
    """The answer to `ListHeld`, or a part of it: the ranges that the node holds."""

    request: Survey
    spans: list[Span]
    is_last: bool = True


class RemoteFound(msgspec.Struct, frozen=True):
    """A further node, the peer of this input, sent events that a search asked it for."""

    search: int
    batches: list[Batch]


class RemoteAnswered(msgspec.Struct, frozen=True):
    """A further node has sent everything that it holds of these ranges."""

    search: int
    number: int
    covered: Sequence[Range]
    is_last: bool


class RemoteListed(msgspec.Struct, frozen=True):
    """A further node listed the ranges that it holds."""

    search: int
    spans: Sequence[Span]
    is_last: bool


class RemoteUnreachable(msgspec.Struct, frozen=True):
    """A further node that a search asked can't be reached for now."""

    search: int


Remote = RemoteFound | RemoteAnswered | RemoteListed | RemoteUnreachable
Input = Recover | Survey | Recovered | Surveyed | Offer | LookedUp | Listed | Remote | PeerLeft

# -- effects


class LookUp(msgspec.Struct, frozen=True):
    """Look for events in the node's own journals; the answer is `LookedUp`."""

    peer: Peer
    request: Recover


class ListHeld(msgspec.Struct, frozen=True):
    """List the ranges that the node's own journals hold; the answer is `Listed`."""

    peer: Peer
    request: Survey


class SendFound(msgspec.Struct, frozen=True):
    """Send a reply and the batches that it announces to a peer, in one go."""

    peer: Peer
    reply: Recovered
    batches: Sequence[Batch]


class AskRemote(msgspec.Struct, frozen=True):
    """Ask a further node for ranges; its answers carry the search and the number."""

    url: str
    search: int
    number: int
    series: Series
    ranges: list[Range]
    bytes_max: int


class SurveyRemote(msgspec.Struct, frozen=True):
    """Ask a further node which ranges it holds; its answers carry the search."""

    url: str
    search: int
    pattern: str
    age_s: float


class Dismiss(msgspec.Struct, frozen=True):
    """A peer broke the protocol: tell it why, and close its connection."""

    peer: Peer
    code: Code
    text: str


Effect = Send | SendFound | LookUp | ListHeld | AskRemote | SurveyRemote | Dismiss
