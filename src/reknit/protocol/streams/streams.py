"""Streams: an event that goes on its way in pieces while it is still arriving.

Where it goes is anycast's to decide, as for any event. This counts the bytes: a stream is a range `[0, size)` whose end
is known when the last piece is there.

    ARRIVING -last piece-> WHOLE
    ARRIVING, WHOLE:
      handed to a path           -> sent along it from its start, as far as that path has room
      released, not pinned       -> kept from its start, for the next path
      received                   -> pinned: what was sent is not kept any more
      outcome                    -> forgotten
    ARRIVING:
      aborted, or upstream lost  -> the path is told, and nobody takes a part for the whole
    WHOLE, aborted               -> too late: it goes on its way

Upstream may send so much that at most a window of it waits here. A path that begins anew catches up first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

import msgspec

from reknit.outcome import Code
from reknit.protocol.machine import Peer

PIECE_BYTES: Final = 64 << 10
"""What one message carries of a stream, at most."""
UPSTREAM_LOST: Final = "whoever sent it is gone, with its end"


class State(Enum):
    """How much of a stream is there."""

    ARRIVING = "arriving"
    WHOLE = "whole"


class Begun(msgspec.Struct, frozen=True):
    """A stream begins; `is_resent`: it may have to be sent again from its start."""

    source: bytes
    is_resent: bool


class Came(msgspec.Struct, frozen=True):
    """Bytes of it, from `offset` on."""

    source: bytes
    offset: int
    data: bytes
    is_last: bool


class Handed(msgspec.Struct, frozen=True):
    """It goes along this path now, from its start."""

    source: bytes


class Left(msgspec.Struct, frozen=True):
    """… and no more: the attempt ended."""

    source: bytes


class Roomy(msgspec.Struct, frozen=True):
    """The path takes so many bytes of it in all."""

    source: bytes
    total: int


class Pinned(msgspec.Struct, frozen=True):
    """It stays on its path, whatever happens."""

    source: bytes


class Ended(msgspec.Struct, frozen=True):
    """It has its outcome."""

    source: bytes


class Aborted(msgspec.Struct, frozen=True):
    """Who sends it gives it up."""

    source: bytes
    text: str


class Broken(msgspec.Struct, frozen=True):
    """Its bytes can't be kept here."""

    source: bytes
    code: Code
    text: str


class Gone(msgspec.Struct, frozen=True):
    """Who sends is gone. With `is_final` also for what came as a whole: its outcome interests nobody."""

    is_final: bool


class Keep(msgspec.Struct, frozen=True):
    """Have these bytes at hand until they are dropped."""

    source: bytes
    offset: int
    data: bytes


class Convey(msgspec.Struct, frozen=True):
    """Send bytes `[start, stop)` along a path."""

    path: Peer
    source: bytes
    start: int
    stop: int
    is_last: bool


class Drop(msgspec.Struct, frozen=True):
    """What is before `stop` is not needed any more."""

    source: bytes
    stop: int


class GiveRoom(msgspec.Struct, frozen=True):
    """Tell upstream how many bytes it may send in all."""

    up: Peer
    source: bytes
    total: int


class Cut(msgspec.Struct, frozen=True):
    """Tell a path that no more of it comes."""

    path: Peer
    source: bytes
    text: str


class GiveUp(msgspec.Struct, frozen=True):
    """It is not to be delivered any more. Upstream is to hear why, if there is a code."""

    up: Peer
    source: bytes
    code: int
    text: str


class Forget(msgspec.Struct, frozen=True):
    """Nothing of it is needed any more."""

    source: bytes


OfOne = Came | Handed | Left | Roomy | Pinned | Ended | Aborted | Broken
Input = Begun | Gone | OfOne
Effect = Keep | Convey | Drop | GiveRoom | Cut | GiveUp | Forget


@dataclass(slots=True, eq=False)
class Stream:
    """One stream on one node: `[0, got)` came, `[0, sent)` went along the path that it is on."""

    source: bytes
    up: Peer
    is_resent: bool
    state: State = State.ARRIVING
    got: int = 0
    given: int = 0
    """Upstream may send so much in all."""
    path: Peer | None = None
    room: int = -1
    """The path takes so much in all; -1 while it has not asked for any."""
    sent: int = 0
    is_end_sent: bool = False
    kept_from: int = 0


class Streams:
    """All streams of one node.

    >>> streams = Streams(window=100, bytes_max=1000)
    >>> streams.receive(Begun(b"s", is_resent=True), "publisher", 0.0)
    >>> streams.receive(Handed(b"s"), "subscriber", 0.0)
    >>> streams.receive(Roomy(b"s", 50), "subscriber", 0.0)
    >>> streams.receive(Came(b"s", 0, b"abc", is_last=True), "publisher", 0.1)
    >>> [type(effect).__name__ for effect in streams.take_effects()]
    ['GiveRoom', 'Keep', 'Convey']
    """

    def __init__(self, window: int, bytes_max: int) -> None:
        self._window = window
        self._bytes_max = bytes_max
        self._streams: dict[bytes, Stream] = {}
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
        """From upstream, from a path, or about them. What is no longer known here is over."""
        if isinstance(message, Begun):
            self._begin(message, peer)
            return
        if isinstance(message, Gone):
            self._upstream_gone(peer, message.is_final)
            return
        stream = self._streams.get(message.source)
        if stream is not None:
            self._tell(stream, message, peer)

    def tick(self, now: float) -> None:
        """Nothing here has a time: anycast ends what is too old."""

    def next_deadline(self) -> float | None:
        """Never."""
        return None

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- one stream

    def _begin(self, message: Begun, up: Peer) -> None:
        assert message.source not in self._streams, "a stream begins once"
        stream = self._streams[message.source] = Stream(message.source, up, message.is_resent)
        self._advance(stream)

    def _tell(self, stream: Stream, message: OfOne, peer: Peer) -> None:
        match message:
            case Came():
                if peer == stream.up:
                    self._came(stream, message)
            case Handed():
                self._hand(stream, peer)
            case Left():
                stream.path, stream.room = None, -1
            case Roomy(total=total):
                if peer == stream.path:
                    stream.room = max(stream.room, total)
                    self._advance(stream)
            case Pinned():
                stream.is_resent = False
                self._advance(stream)
            case Ended():
                self._forget(stream)
            case Aborted(text=text):
                if peer == stream.up and stream.state is State.ARRIVING:
                    self._abort(stream, Code.OK, text)
            case Broken(code=code, text=text):
                self._abort(stream, code, text)
            case _:
                assert_never(message)

    def _came(self, stream: Stream, message: Came) -> None:
        problem = self._objection(stream, message)
        if problem is not None:
            self._abort(stream, *problem)
            return
        if message.data:
            self._effects.append(Keep(stream.source, message.offset, message.data))
            stream.got += len(message.data)
        if message.is_last:
            stream.state = State.WHOLE
        self._advance(stream)

    def _objection(self, stream: Stream, message: Came) -> tuple[Code, str] | None:
        """Why a piece is none; what comes over a network is never taken for granted."""
        stop = message.offset + len(message.data)
        if stream.state is State.WHOLE:
            return Code.INVALID_ARGUMENT, "a piece came after the last"
        if message.offset != stream.got:
            return Code.INVALID_ARGUMENT, f"a piece came at {message.offset}, not at {stream.got}"
        if stop > stream.given:
            return Code.INVALID_ARGUMENT, f"bytes up to {stop} came where there is room up to {stream.given}"
        if stop > self._bytes_max:
            text = f"a stream has {self._bytes_max} bytes at most (anycast.stream_bytes_max)"
            return Code.RESOURCE_EXHAUSTED, text
        return None

    def _hand(self, stream: Stream, path: Peer) -> None:
        assert stream.kept_from == 0, "what is handed on is there from its start"
        stream.path, stream.room = path, -1
        stream.sent, stream.is_end_sent = 0, False

    def _advance(self, stream: Stream) -> None:
        """Send what may be sent, drop what nobody will ask for, and let more come."""
        stop = min(stream.got, stream.room)
        is_last = stream.state is State.WHOLE and stop == stream.got
        if stream.path is not None and (stop > stream.sent or (is_last and not stream.is_end_sent)):
            self._effects.append(Convey(stream.path, stream.source, stream.sent, stop, is_last))
            stream.sent, stream.is_end_sent = stop, is_last
        if not stream.is_resent and stream.sent > stream.kept_from:
            stream.kept_from = stream.sent
            self._effects.append(Drop(stream.source, stream.sent))
        total = stream.sent + self._window
        if stream.state is State.ARRIVING and 2 * (total - stream.given) >= self._window:
            stream.given = total
            self._effects.append(GiveRoom(stream.up, stream.source, total))

    def _abort(self, stream: Stream, code: Code, text: str) -> None:
        if stream.path is not None:
            self._effects.append(Cut(stream.path, stream.source, text))
        self._effects.append(GiveUp(stream.up, stream.source, code, text))
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        del self._streams[stream.source]
        self._effects.append(Forget(stream.source))

    def _upstream_gone(self, up: Peer, is_final: bool) -> None:
        for stream in [stream for stream in self._streams.values() if stream.up == up]:
            if stream.state is State.ARRIVING or (is_final and not stream.is_end_sent):
                self._abort(stream, Code.OK, UPSTREAM_LOST)
            elif is_final:
                self._forget(stream)
