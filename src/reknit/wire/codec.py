"""Bytes to messages and runs of batches, and back. Sans-I/O: any transport can feed it."""

from __future__ import annotations

import sys
import threading
from typing import Final, cast

import msgspec

from reknit.batch import Batch
from reknit.batch_layout import HEADER_BYTES, Head, check_head
from reknit.decoding import decode_packed
from reknit.errors import MalformedFrame
from reknit.frame import FRAME_BYTES_MAX, KIND_BATCH, KIND_MESSAGE, KIND_RECORD, peek, unwrap, wrap
from reknit.wire.announced import Announced
from reknit.wire.links import LinkMessage
from reknit.wire.messages import Answer, Message, SessionMessage
from reknit.wire.outcomes import OutcomeMessage
from reknit.wire.recovery import RecoveryMessage
from reknit.wire.streams import StreamMessage

BUFFER_BYTES: Final = 1 << 20
SPARE_BUFFERS_MAX: Final = 4
"""Receive buffers of all connections of a thread that wait for the next one that reads."""
STOWED_BYTES_MAX: Final = 64 << 10
"""The start of an item that is at most this long waits in bytes of its own size, without a receive buffer."""
HELLO_BYTES_MAX: Final = 4 << 10
"""The longest first message of a peer that nobody knows yet."""
LENT_BYTES_MIN: Final = BUFFER_BYTES // 4
"""A run of batches at least this long may be lent as a part of the receive buffer. A shorter run is copied, so that a
program that keeps a few bytes does not keep a whole buffer alive."""
_FREE: Final = 2
"""The references to a buffer that nobody reads from: the decoder's own, and that of the call that counts them."""

AnyMessage = SessionMessage | OutcomeMessage | RecoveryMessage | LinkMessage | StreamMessage
"""Every message that a connection carries, beside batches."""

_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_encoder = msgspec.msgpack.Encoder()


class SpareBuffers(threading.local):
    """Receive buffers that nobody uses. A thread reads from one connection at a time, so its connections share them."""

    def __init__(self) -> None:
        self.views: list[memoryview[int]] = []


_spare: Final = SpareBuffers()
_NO_BUFFER: Final = bytearray()
_NO_VIEW: Final = memoryview(_NO_BUFFER)


class Frames(msgspec.Struct, frozen=True):
    """Batches as they arrived, back to back in one buffer, and their heads. The journal stores them as one unit."""

    data: bytes | memoryview
    heads: list[Head]

    def batches(self) -> list[Batch]:
        """Each batch, as a part of the whole buffer."""
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
    return decode_packed(_decoder.decode, unwrap(frame), "a message")


class Raw(msgspec.Struct, frozen=True):
    """Bytes of the journal, batches and records, that an `Answer` announced."""

    data: bytes


Item = AnyMessage | Frames | Raw


class Decoder:
    """Splits received bytes into messages, `Frames` and `Raw`.

    A transport writes into `space()` and reports how much with `filled(n)`; `take()` returns the items that are
    complete. A decoder that lends passes long runs of batches on without a copy. This suits receivers that release
    them soon, so that a few buffers are reused. A receiver that keeps batches, such as a journal, does better with a
    copy of the right size.

    A decoder has a receive buffer only while it reads, or while much of an item has arrived: a connection that is
    silent costs next to nothing. With `hello_bytes_max`, no more than that is taken before the first message.
    """

    def __init__(
        self, bytes_max: int = FRAME_BYTES_MAX, lends: bool = False, hello_bytes_max: int = 0
    ) -> None:
        self._buffer, self._view = _NO_BUFFER, _NO_VIEW
        self._start = 0
        self._stop = 0
        self._stowed = b""
        """The start of an item, while there is no buffer."""
        self._is_lent = False
        """Whether a receiver may read from earlier bytes of the buffer, which must not change then."""
        self._spent: bytearray | None = None
        """The previous buffer, for reuse once nobody reads from it."""
        self._announced: Announced[Answer] = Announced()
        self._full_bytes_max = bytes_max
        self._bytes_max = hello_bytes_max or bytes_max
        self._lends = lends

    def space(self) -> memoryview:
        """Where the transport may write the next bytes."""
        if not self._buffer:
            return self._spare_space()
        if self._start == self._stop and not self._is_lent:
            self._start = self._stop = 0
        elif len(self._buffer) - self._stop < BUFFER_BYTES // 4:
            self._make_room()
        return self._view[self._stop :]

    def _spare_space(self) -> memoryview:
        """The same in a buffer that is still the thread's: it is not taken if nothing arrives."""
        views, size = _spare.views, len(self._stowed)
        if not views:
            views.append(memoryview(bytearray(BUFFER_BYTES)))
        if size:
            views[-1][:size] = self._stowed
        if self._bytes_max < self._full_bytes_max:
            return views[-1][size : self._bytes_max]
        return views[-1][size:]

    def filled(self, count: int) -> None:
        """The transport wrote `count` bytes."""
        if not self._buffer and count:
            self._view = _spare.views.pop()
            self._buffer = cast(bytearray, self._view.obj)
            self._start, self._stop, self._stowed = 0, len(self._stowed), b""
        self._stop += count

    def _stow(self) -> None:
        """Give the buffer back, if no more than the start of an item is in it."""
        if self._is_lent or not self._buffer or self._stop - self._start > STOWED_BYTES_MAX:
            return
        self._stowed = bytes(self._view[self._start : self._stop])
        if len(self._buffer) == BUFFER_BYTES and len(_spare.views) < SPARE_BUFFERS_MAX:
            _spare.views.append(self._view)
        self._buffer, self._view, self._start, self._stop = _NO_BUFFER, _NO_VIEW, 0, 0

    def _make_room(self) -> None:
        """Move the incomplete item to the front, in another buffer if this one is lent or too small."""
        rest = bytes(self._view[self._start : self._stop])
        wanted = self._announced.rest or peek(rest, 0, len(rest), self._bytes_max)[1]
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

    @property
    def held_bytes(self) -> int:
        """The memory that it takes for the start of an item."""
        return len(self._buffer) + len(self._stowed)

    def feed(self, data: bytes) -> list[Item]:
        """Write and take in one call, for transports with buffers of their own."""
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
        """Every item that is complete. Raises `MalformedFrame` at the first invalid frame."""
        out: list[Item] = []
        while self._start < self._stop and (item := self._take_next()) is not None:
            out.append(item)
            self._bytes_max = self._full_bytes_max
        self._stow()
        return out

    def _take_next(self) -> Item | None:
        if self._announced.message is not None:
            return self._take_raw(self._announced.rest)
        at, available = self._start, self._stop - self._start
        kind, length = peek(self._view, at, available, self._bytes_max)
        if kind == 0 or length > available:
            return None
        return self._take_batches(length) if kind == KIND_BATCH else self._take_message(kind, length)

    def _take_raw(self, size: int) -> Raw | None:
        """The bytes that were announced, once all of them are here."""
        start = self._start
        if self._stop - start < size:
            return None
        self._announced.take(size)
        self._start = start + size
        return Raw(bytes(self._view[start : start + size]))

    def _take_batches(self, length: int) -> Frames:
        """The complete batches that are next, in one run; the first has this length."""
        view, at, stop = self._view, self._start, self._stop
        heads: list[Head] = []
        kind = KIND_BATCH
        while kind == KIND_BATCH and length <= stop - at:
            if length < HEADER_BYTES:
                raise MalformedFrame(f"a batch of {length} bytes is shorter than its header", "a batch")
            heads.append(check_head(view, at, length))
            at += length
            kind, length = peek(view, at, stop - at, self._bytes_max) if at < stop else (0, 0)
        data = view[self._start : at]
        self._start = at
        if not self._lends or len(data) < LENT_BYTES_MIN:
            return Frames(bytes(data), heads)
        self._is_lent = True
        return Frames(data.toreadonly(), heads)

    def _take_message(self, kind: int, length: int) -> AnyMessage:
        """The complete message that is next, of this length."""
        at = self._start
        if kind == KIND_RECORD:
            raise MalformedFrame(f"a journal record of {length} bytes was not announced", "a record")
        message = decode(self._view[at : at + length])
        self._start = at + length
        if isinstance(message, Answer) and message.size:
            if not 0 < message.size <= self._bytes_max:
                what = f"an answer announces {message.size} bytes, over the limit of {self._bytes_max}"
                raise MalformedFrame(what, "its size")
            self._announced.announce(message)
        return message
