"""Bytes to messages and runs of batches, and back. Sans-I/O: fed by whatever transport there is."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from reknit.batch import Batch
from reknit.batch_layout import HEADER_BYTES, Head, check_head
from reknit.errors import MalformedFrame
from reknit.frame import FRAME_BYTES_MAX, KIND_BATCH, KIND_MESSAGE, KIND_RECORD, peek, unwrap, wrap
from reknit.wire.links import LinkMessage
from reknit.wire.messages import Answer, Message, SessionMessage
from reknit.wire.outcomes import OutcomeMessage
from reknit.wire.recovery import RecoveryMessage
from reknit.wire.streams import StreamMessage

BUFFER_BYTES: Final = 1 << 20
LENT_BYTES_MIN: Final = BUFFER_BYTES // 4
"""Batches that are so long, back to back, may be lent as a part of the buffer that they came into. Shorter ones are
copied, so that who keeps little does not keep a whole buffer."""
_FREE: Final = 2
"""The references to a buffer that nobody reads from: ours, and that of whoever counts."""

AnyMessage = SessionMessage | OutcomeMessage | RecoveryMessage | LinkMessage | StreamMessage
"""All that goes over a connection, beside batches."""

_decoder = msgspec.msgpack.Decoder(AnyMessage)
_encoder = msgspec.msgpack.Encoder()


class Frames(msgspec.Struct, frozen=True):
    """Batches as they came, back to back in one piece of bytes, and their heads. The unit that is journaled."""

    data: bytes | memoryview
    heads: list[Head]

    def batches(self) -> list[Batch]:
        """Each of them, as a part of the whole bytes."""
        data, view, at = self.data, memoryview(self.data), 0
        found: list[Batch] = []
        for head in self.heads:
            found.append(Batch(head, view[at : at + head.length], whole=(data, at)))
            at += head.length
        return found


def encode(message: Message) -> bytes:
    """A message as a whole frame.

    >>> from reknit.wire.messages import Ack
    >>> decode(encode(Ack(b"s" * 16, 7)))
    Ack(source=b'ssssssssssssssss', seq=7)
    """
    return wrap(KIND_MESSAGE, _encoder.encode(message))


def decode(frame: bytes | memoryview) -> AnyMessage:
    """The message in a whole frame. Raises `MalformedFrame`."""
    try:
        message: AnyMessage = _decoder.decode(unwrap(frame))
        return message
    except msgspec.DecodeError as error:
        raise MalformedFrame("a message can't be read", str(error)) from None


class Raw(msgspec.Struct, frozen=True):
    """The journal's own bytes, batches and records, that an `Answer` announced."""

    data: bytes


Item = AnyMessage | Frames | Raw


class Decoder:
    """Cuts a stream of bytes into messages, `Frames` and `Raw`.

    A transport writes into `space()` and says how much with `filled(n)`; what became whole comes out of `take()`.
    One that lends hands out long batches without a copy. That is for those who soon let go of them, so that few
    buffers are used again and again; who keeps them, as a journal does, is served better with a copy that fits.
    """

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX, lends: bool = False) -> None:
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._stop = 0
        self._is_lent = False
        """Whether somebody may read from what came before: it stays as it is then."""
        self._spent: bytearray | None = None
        """The buffer before this one, which may be used again when nobody reads from it any more."""
        self._raw = 0
        self._bytes_max = bytes_max
        self._lends = lends

    def space(self) -> memoryview:
        """Where the transport may write the next bytes."""
        if self._start == self._stop and not self._is_lent:
            self._start = self._stop = 0
        elif len(self._buffer) - self._stop < BUFFER_BYTES // 4:
            self._make_room()
        return self._view[self._stop :]

    def _make_room(self) -> None:
        """Move what is incomplete to the front, into another buffer if this one is lent or too small."""
        rest = bytes(self._view[self._start : self._stop])
        wanted = self._raw or peek(rest, 0, len(rest), self._bytes_max)[1]
        size = max(BUFFER_BYTES, wanted + BUFFER_BYTES // 4)
        if self._is_lent or size != len(self._buffer):
            self._change_buffer(size)
        self._view[: len(rest)] = rest
        self._start, self._stop = 0, len(rest)

    def _change_buffer(self, size: int) -> None:
        spare, self._spent = self._spent, self._buffer if self._is_lent else None
        if spare is None or len(spare) != size or sys.getrefcount(spare) > _FREE:
            spare = bytearray(size)
        self._buffer, self._view, self._is_lent = spare, memoryview(spare), False

    def filled(self, count: int) -> None:
        """The transport wrote `count` bytes."""
        self._stop += count

    def feed(self, data: bytes) -> list[Item]:
        """Write and take at once, for transports that bring their own buffers."""
        out: list[Item] = []
        rest = memoryview(data)
        while rest:
            space = self.space()
            size = min(len(space), len(rest))
            space[:size] = rest[:size]
            rest = rest[size:]
            self.filled(size)
            out += self.take()
        return out

    def take(self) -> list[Item]:
        """Everything that is whole by now. Raises `MalformedFrame` at the first frame that is none."""
        out: list[Item] = []
        while True:
            if self._raw:
                if self._stop - self._start < self._raw:
                    return out
                out.append(Raw(bytes(self._view[self._start : self._start + self._raw])))
                self._start += self._raw
                self._raw = 0
            frames = self._take_batches()
            if frames is not None:
                out.append(frames)
            message = self._take_message()
            if message is None:
                return out
            out.append(message)

    def _take_batches(self) -> Frames | None:
        """The whole batches that are next, in one piece."""
        view, at, stop = self._view, self._start, self._stop
        heads: list[Head] = []
        while True:
            kind, length = peek(view, at, stop - at, self._bytes_max)
            if kind != KIND_BATCH or length > stop - at:
                break
            if length < HEADER_BYTES:
                raise MalformedFrame("a batch is shorter than its header", f"{length} bytes")
            heads.append(check_head(view, at, length))
            at += length
        if not heads:
            return None
        data = view[self._start : at]
        self._start = at
        if not self._lends or len(data) < LENT_BYTES_MIN:
            return Frames(bytes(data), heads)
        self._is_lent = True
        return Frames(data.toreadonly(), heads)

    def _take_message(self) -> AnyMessage | None:
        """The whole message that is next."""
        at = self._start
        kind, length = peek(self._view, at, self._stop - at, self._bytes_max)
        if kind == 0 or length > self._stop - at or kind == KIND_BATCH:
            return None
        if kind == KIND_RECORD:
            raise MalformedFrame("a journal record came without an announcement", f"{length} bytes")
        message = decode(self._view[at : at + length])
        self._start = at + length
        if isinstance(message, Answer) and message.size:
            if not 0 < message.size <= self._bytes_max:
                raise MalformedFrame(
                    f"an answer of {message.size} bytes is over the limit", f"of {self._bytes_max}"
                )
            self._raw = message.size
        return message
