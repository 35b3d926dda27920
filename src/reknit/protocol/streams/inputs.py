"""The inputs and effects of streams."""

from __future__ import annotations

from typing import Final

import msgspec

from reknit.outcome import Code
from reknit.protocol.anycast.inputs import OfferEvents
from reknit.protocol.machine import Peer

PIECE_BYTES: Final = 64 << 10
"""The size of a chunk in one message, at most."""


class StreamStarted(msgspec.Struct, frozen=True):
    """A stream starts. With `is_resent`, it may have to be sent again from its start."""

    source: bytes
    is_resent: bool


class OfferStream(msgspec.Struct, frozen=True):
    """A neighbour forwards a stream: this is its event, whose payload follows in chunks."""

    offered: OfferEvents


class ChunkReceived(msgspec.Struct, frozen=True):
    """Bytes of a stream came, from `offset` on."""

    source: bytes
    offset: int
    data: bytes
    is_last: bool


class PathAssigned(msgspec.Struct, frozen=True):
    """A stream goes along this path now, from its start."""

    source: bytes


class PathReleased(msgspec.Struct, frozen=True):
    """A stream has no path: the attempt ended."""

    source: bytes


class PathCredit(msgspec.Struct, frozen=True):
    """The path takes this many bytes of a stream, in total."""

    source: bytes
    total: int


class StreamPinned(msgspec.Struct, frozen=True):
    """A stream stays on its path from now on."""

    source: bytes


class StreamSettled(msgspec.Struct, frozen=True):
    """A stream has its outcome."""

    source: bytes


class StreamAborted(msgspec.Struct, frozen=True):
    """The sender aborted a stream."""

    source: bytes
    text: str


class StorageFailed(msgspec.Struct, frozen=True):
    """The bytes of a stream can't be stored here."""

    source: bytes
    code: Code
    text: str


class StreamRefused(msgspec.Struct, frozen=True):
    """The sender of a stream may no longer publish on its topic."""

    source: bytes
    code: Code
    text: str


class UpstreamGone(msgspec.Struct, frozen=True):
    """A sender is gone. With `is_final`, nobody waits for the outcome of its whole streams either."""

    is_final: bool


class StoreChunk(msgspec.Struct, frozen=True):
    """Store these bytes until they are discarded."""

    source: bytes
    offset: int
    data: bytes


class SendChunk(msgspec.Struct, frozen=True):
    """Send bytes `[start, stop)` along a path."""

    path: Peer
    source: bytes
    start: int
    stop: int
    is_last: bool


class DiscardBefore(msgspec.Struct, frozen=True):
    """Bytes before `stop` are not needed any more."""

    source: bytes
    stop: int


class GrantUpstream(msgspec.Struct, frozen=True):
    """Tell upstream how many bytes it may send, in total."""

    up: Peer
    source: bytes
    total: int


class AbortDownstream(msgspec.Struct, frozen=True):
    """Tell a path that no more of a stream comes."""

    path: Peer
    source: bytes
    text: str


class AbandonStream(msgspec.Struct, frozen=True):
    """Do not deliver a stream any more. Tell upstream why, if there is a code."""

    up: Peer
    source: bytes
    code: int
    text: str


class ForgetStream(msgspec.Struct, frozen=True):
    """Nothing of a stream is needed any more."""

    source: bytes


StreamInput = (
    ChunkReceived
    | PathAssigned
    | PathReleased
    | PathCredit
    | StreamPinned
    | StreamSettled
    | StreamAborted
    | StorageFailed
    | StreamRefused
)
"""An input about one known stream."""
Input = StreamStarted | UpstreamGone | StreamInput
Effect = (
    StoreChunk | SendChunk | DiscardBefore | GrantUpstream | AbortDownstream | AbandonStream | ForgetStream
)
