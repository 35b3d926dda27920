"""Streams: an event is forwarded in chunks while it is still arriving.

Anycast decides where it goes, as for any event. This machine counts the bytes: a stream is a range `[0, size)` whose
end is known when the last chunk is there.

    StreamStarted    -> ARRIVING: GrantUpstream for a window of bytes
    ChunkReceived    -> StoreChunk, SendChunk as far as the path has credit; the last one -> WHOLE
                        at a wrong offset, beyond the grant or over the limit -> AbandonStream
    PathAssigned     -> the stream is sent along this path from its start
    PathReleased     -> the stream is retained from its start, for the next path
    PathCredit       -> SendChunk
    StreamPinned     -> bytes that were sent are not retained any more: DiscardBefore
    StreamSettled    -> ForgetStream
    StreamAborted, UpstreamGone   while ARRIVING: AbortDownstream, so that nobody takes a part for the whole
    StreamAborted    while WHOLE: ignored, it is too late to abort
    StorageFailed    -> AbortDownstream, AbandonStream
    StreamRefused    while ARRIVING: the same; while WHOLE: ignored, as it was permitted when it came

Inputs for an unknown stream are ignored: it has ended. So are chunks, aborts and credit from a peer that is neither its
upstream nor its path. Upstream may send as long as at most a window of bytes waits here; a path that starts again
catches up first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from reknit.outcome import Code
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.streams.inputs import (
    AbandonStream,
    AbortDownstream,
    ChunkReceived,
    DiscardBefore,
    Effect,
    ForgetStream,
    GrantUpstream,
    Input,
    PathAssigned,
    PathCredit,
    PathReleased,
    SendChunk,
    StorageFailed,
    StoreChunk,
    StreamAborted,
    StreamInput,
    StreamPinned,
    StreamRefused,
    StreamSettled,
    StreamStarted,
    UpstreamGone,
)

UPSTREAM_LOST: Final = "its sender was lost before the end of the stream"


class StreamState(Enum):
    """How much of a stream is there."""

    ARRIVING = "arriving"
    WHOLE = "whole"


TRANSITIONS: Final[dict[StreamState, frozenset[StreamState]]] = {
    StreamState.ARRIVING: frozenset((StreamState.WHOLE,)),
    StreamState.WHOLE: frozenset(),
}


@dataclass(slots=True, eq=False)
class StreamProgress:
    """One stream on one node: `[0, received)` came, `[0, sent)` went along the path that it is on."""

    source: bytes
    upstream: Peer
    is_resent: bool
    state: StreamState = StreamState.ARRIVING
    received: int = 0
    granted: int = 0
    """Upstream may send this much, in total."""
    path: Peer | None = None
    credit: int = -1
    """The path takes this much, in total; -1 while it has not asked for any."""
    sent: int = 0
    is_end_sent: bool = False
    stored_from: int = 0

    @property
    def is_whole(self) -> bool:
        return self.state is StreamState.WHOLE

    def receive(self, count: int, is_last: bool) -> None:
        """This many bytes arrived."""
        self.received += count
        if is_last:
            assert StreamState.WHOLE in TRANSITIONS[self.state], f"{self.state} can't become WHOLE"
            self.state = StreamState.WHOLE

    def assign(self, path: Peer) -> None:
        """It goes along this path, from its start."""
        assert self.stored_from == 0, "a stream that takes another path is there from its start"
        self.path, self.credit = path, -1
        self.sent, self.is_end_sent = 0, False

    def release(self) -> None:
        """It has no path."""
        self.path, self.credit = None, -1

    def extend_credit(self, total: int) -> None:
        """Its path takes more."""
        self.credit = max(self.credit, total)

    def pin(self) -> None:
        """It stays on its path."""
        self.is_resent = False

    def send(self) -> SendChunk | None:
        """The bytes that may be sent now."""
        stop = min(self.received, self.credit)
        is_last = self.is_whole and stop == self.received
        if self.path is None or not (stop > self.sent or (is_last and not self.is_end_sent)):
            return None
        chunk = SendChunk(self.path, self.source, self.sent, stop, is_last)
        self.sent, self.is_end_sent = stop, is_last
        return chunk

    def discard(self) -> DiscardBefore | None:
        """The bytes that nobody will need again."""
        if self.is_resent or self.sent <= self.stored_from:
            return None
        self.stored_from = self.sent
        return DiscardBefore(self.source, self.sent)

    def grant(self, window: int) -> GrantUpstream | None:
        """Let upstream send more, once that is at least half a window."""
        total = self.sent + window
        if self.is_whole or 2 * (total - self.granted) < window:
            return None
        self.granted = total
        return GrantUpstream(self.upstream, self.source, total)


class StreamMachine:
    """All streams of one node.

    >>> streams = StreamMachine(window=100, bytes_max=1000)
    >>> streams.receive(StreamStarted(b"s", is_resent=True), "publisher", 0.0)
    >>> streams.receive(PathAssigned(b"s"), "subscriber", 0.0)
    >>> streams.receive(PathCredit(b"s", 50), "subscriber", 0.0)
    >>> streams.receive(ChunkReceived(b"s", 0, b"abc", is_last=True), "publisher", 0.1)
    >>> [type(effect).__name__ for effect in streams.take_effects()]
    ['GrantUpstream', 'StoreChunk', 'SendChunk']
    """

    def __init__(self, window: int, bytes_max: int) -> None:
        self._window = window
        self._bytes_max = bytes_max
        self._streams: dict[bytes, StreamProgress] = {}
        self._effects: list[Effect] = []

    # -- questions

    def __contains__(self, source: object) -> bool:
        return source in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    def is_sent(self, source: bytes) -> bool:
        """Whether all of it went along the path that it is on."""
        return source in self._streams and self._streams[source].is_end_sent

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An input from upstream, from a path, or about them."""
        if isinstance(message, StreamStarted):
            self._start(message, peer)
        elif isinstance(message, UpstreamGone):
            self._upstream_gone(peer, message.is_final)
        else:
            stream = self._streams.get(message.source)
            if stream is not None:
                self._receive(stream, message, peer)

    def tick(self, now: float) -> None:
        """Nothing here has a deadline: anycast expires events."""

    def next_deadline(self) -> float | None:
        """Never."""
        return None

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    # -- one stream

    def _start(self, message: StreamStarted, upstream: Peer) -> None:
        assert message.source not in self._streams, "a stream starts once"
        stream = self._streams[message.source] = StreamProgress(message.source, upstream, message.is_resent)
        self._advance(stream)

    def _receive(self, stream: StreamProgress, message: StreamInput, peer: Peer) -> None:
        match message:
            case ChunkReceived():
                if peer == stream.upstream:
                    self._chunk(stream, message)
            case PathAssigned():
                stream.assign(peer)
            case PathReleased():
                stream.release()
            case PathCredit(total=total):
                if peer == stream.path:
                    stream.extend_credit(total)
                    self._advance(stream)
            case StreamPinned():
                stream.pin()
                self._advance(stream)
            case StreamSettled():
                self._forget(stream)
            case StreamAborted(text=text):
                if peer == stream.upstream and not stream.is_whole:
                    self._abort(stream, Code.OK, text)
            case StorageFailed(code=code, text=text):
                self._abort(stream, code, text)
            case StreamRefused(code=code, text=text):
                if not stream.is_whole:
                    self._abort(stream, code, text)
            case _:
                assert_never(message)

    def _chunk(self, stream: StreamProgress, message: ChunkReceived) -> None:
        problem = self._objection(stream, message)
        if problem is not None:
            self._abort(stream, *problem)
            return
        if message.data:
            self._effects.append(StoreChunk(stream.source, message.offset, message.data))
        stream.receive(len(message.data), message.is_last)
        self._advance(stream)

    def _objection(self, stream: StreamProgress, message: ChunkReceived) -> tuple[Code, str] | None:
        """Why a chunk is not valid: it came over a network."""
        stop = message.offset + len(message.data)
        if stream.is_whole:
            return Code.INVALID_ARGUMENT, "a chunk arrived after the last one"
        if message.offset != stream.received:
            return (
                Code.INVALID_ARGUMENT,
                f"a chunk arrived at offset {message.offset}, not at {stream.received}",
            )
        if stop > stream.granted:
            return (
                Code.INVALID_ARGUMENT,
                f"bytes up to {stop} arrived, but only {stream.granted} were granted",
            )
        if stop > self._bytes_max:
            text = f"a stream may have at most {self._bytes_max} bytes (anycast.stream_bytes_max)"
            return Code.RESOURCE_EXHAUSTED, text
        return None

    def _advance(self, stream: StreamProgress) -> None:
        """Send and discard bytes as far as possible, and let upstream send more."""
        for effect in (stream.send(), stream.discard(), stream.grant(self._window)):
            if effect is not None:
                self._effects.append(effect)

    def _abort(self, stream: StreamProgress, code: Code, text: str) -> None:
        if stream.path is not None:
            self._effects.append(AbortDownstream(stream.path, stream.source, text))
        self._effects.append(AbandonStream(stream.upstream, stream.source, code, text))
        self._forget(stream)

    def _forget(self, stream: StreamProgress) -> None:
        del self._streams[stream.source]
        self._effects.append(ForgetStream(stream.source))

    def _upstream_gone(self, upstream: Peer, is_final: bool) -> None:
        for stream in [stream for stream in self._streams.values() if stream.upstream == upstream]:
            if not stream.is_whole or (is_final and not stream.is_end_sent):
                self._abort(stream, Code.OK, UPSTREAM_LOST)
            elif is_final:
                self._forget(stream)


_: type[Machine[Input, Effect]] = StreamMachine
