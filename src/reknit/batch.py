"""A batch: consecutive events of one source on one topic, `[first, first + count)`.

One layout in memory, on the wire and on disk. The bytes that came in are the bytes that are kept and go out.

    header, 64 bytes   prefix (see frame) · source 16 B · first u64 · count u32 · topic_len u16 · priority u8 · type u8
                       · time_us u64 · ttl_ms u32 · columns_len u32
    topic              UTF-8, padded to 8
    columns            msgpack {name: [a value per event]}, only where events differ; padded to 8
    lengths            u32 per event, padded to 8
    payloads           one block of bytes, padded to 8

Lengths and one block are an Arrow binary column but for a cumulative sum over the lengths; the block is never
copied. Lengths, not offsets, because plain Python splits by lengths nearly twice as fast.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import islice, repeat
from typing import Any, Final, cast

import msgspec
from xxhash import xxh3_64_intdigest

from reknit.errors import LocalError, MalformedFrame
from reknit.event import Event
from reknit.frame import (
    FRAME_BYTES_MAX,
    KIND_BATCH,
    MAGIC,
    PREFIX,
    PREFIX_BYTES,
    Buffer,
    checksum,
    pad8,
    peek,
)
from reknit.outcome import Code, Outcome

HEADER: Final = struct.Struct("<HBBIQ16sQIHBBQII")
HEADER_BYTES: Final = HEADER.size
SOURCE_BYTES: Final = 16
COUNT_MAX: Final = 1 << 20
SEQ_MAX: Final = (1 << 63) - 1
"""The last seq of a source, so that the one after it still fits 64 bits, signed, everywhere."""
TIME_US_MAX: Final = 253_402_300_800_000_000
"""The end of the year 9999, the last that a calendar here knows."""

TYPE_PUBLISH: Final = 1
TYPE_REQUEST: Final = 2
TYPE_RESPONSE: Final = 3
TYPE_NOTIFICATION: Final = 4

PRIORITY_DEFAULT: Final = 1

FLAG_ATTRIBUTES: Final = 1
"""The events carry uProtocol's attributes as columns (see envelope)."""

_SEED: Final = struct.Struct("<Q")
_NUMBERS_MAX: Final = {"time": TIME_US_MAX, "ttl": 1 << 32}
SAME_MIN: Final = 16
SAME_MAX: Final = 4096
"""So many payloads of one length are split in one call."""
_PADDING: Final = tuple(bytes(n) for n in range(8))
_columns_decoder = msgspec.msgpack.Decoder(dict[str, list[Any]])
_columns_encoder = msgspec.msgpack.Encoder()


@lru_cache(maxsize=32)
def _same(size: int, count: int) -> struct.Struct:
    return struct.Struct(f"{size}s" * count)


def _one_length(lengths: bytes) -> int | None:
    """The length that all payloads have; None where they differ. Far cheaper than to read every number."""
    return int.from_bytes(lengths[:4], "little") if lengths[:4] * (len(lengths) // 4) == lengths else None


def _are_same(lengths: list[int]) -> bool:
    return lengths.count(lengths[0]) == len(lengths)


def total(lengths: list[int]) -> int:
    """Their sum; where all are the same, without adding them up."""
    return lengths[0] * len(lengths) if _are_same(lengths) else sum(lengths)


def _packed(lengths: list[int]) -> array[int]:
    return array("I", lengths[:1]) * len(lengths) if _are_same(lengths) else array("I", lengths)


class Head(msgspec.Struct, frozen=True, gc=False):
    """What a batch's header says: enough to check, route, index and acknowledge it without opening it."""

    source: bytes
    topic: str
    first: int
    count: int
    length: int
    time_us: int
    ttl_ms: int = 0
    priority: int = PRIORITY_DEFAULT
    type: int = TYPE_PUBLISH
    flags: int = 0

    @property
    def stop(self) -> int:
        """The seq after the last."""
        return self.first + self.count


def parse_head(buffer: Buffer, offset: int = 0, bytes_max: int = FRAME_BYTES_MAX) -> Head:
    """The head of the whole batch at `offset`, everything about it validated. Raises `MalformedFrame`."""
    view = memoryview(buffer)
    kind, length = peek(view, offset, len(view) - offset, bytes_max)
    if kind != KIND_BATCH or length < HEADER_BYTES:
        raise MalformedFrame("not a batch", f"kind {kind}, {length} bytes at offset {offset}")
    if offset + length > len(view):
        raise MalformedFrame(
            f"a batch of {length} bytes is cut short", f"{len(view) - offset} bytes at offset {offset}"
        )
    return check_head(view, offset, length)


def check_head(view: memoryview, offset: int, length: int) -> Head:
    """As `parse_head`, for a frame whose prefix was peeked and that is known to be there as a whole."""
    (
        _,
        _,
        flags,
        _,
        found,
        source,
        first,
        count,
        topic_len,
        priority,
        type_,
        time_us,
        ttl_ms,
        columns_len,
    ) = HEADER.unpack_from(view, offset)
    seed = _SEED.unpack_from(view, offset)[0]
    if xxh3_64_intdigest(view[offset + PREFIX_BYTES : offset + length], seed=seed) != found:
        raise MalformedFrame(
            "a batch's checksum does not match its content", f"{length} bytes at offset {offset}"
        )
    lengths_at = HEADER_BYTES + pad8(topic_len) + pad8(columns_len)
    block_at = lengths_at + pad8(4 * count)
    if not 0 < count <= COUNT_MAX or not 1 <= first <= SEQ_MAX - count or block_at > length:
        raise MalformedFrame(f"a batch can't hold {count} events from seq {first}", f"in {length} bytes")
    if time_us >= TIME_US_MAX:
        raise MalformedFrame("a batch can't be from after the year 9999", f"{time_us} microseconds")
    if columns_len:
        columns_at = offset + HEADER_BYTES + pad8(topic_len)
        _check_columns(view[columns_at : columns_at + columns_len], count)
    lengths = bytes(view[offset + lengths_at : offset + lengths_at + 4 * count])
    one = _one_length(lengths)
    payload_bytes = sum(memoryview(lengths).cast("I")) if one is None else one * count
    if pad8(block_at + payload_bytes) != length:
        raise MalformedFrame(
            f"payloads of {payload_bytes} bytes do not fill their batch", f"of {length} bytes"
        )
    try:
        topic = str(view[offset + HEADER_BYTES : offset + HEADER_BYTES + topic_len], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFrame("a batch's topic is not UTF-8", str(error)) from None
    return Head(source, topic, first, count, length, time_us, ttl_ms, priority, type_, flags)


def _check_columns(packed: memoryview, count: int) -> None:
    """Every column has a value per event, of a kind that readers rely on."""
    try:
        columns = _columns_decoder.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedFrame("a batch's columns can't be read", str(error)) from None
    for name, values in columns.items():
        if len(values) != count:
            raise MalformedFrame(f"column {name!r} has {len(values)} values", f"a batch of {count} events")
        high = _NUMBERS_MAX.get(name)
        if high is not None and not all(type(value) is int and 0 <= value < high for value in values):
            raise MalformedFrame(f"column {name!r} must have numbers from 0 to {high}", "a batch")
        if name == "headers" and not all(value is None or isinstance(value, dict) for value in values):
            raise MalformedFrame("column 'headers' must have maps", "a batch")


class Batch:
    """Events `[first, stop)` of one source on one topic, over the bytes that carry them. Frozen by convention.

    >>> batch = Batch.build(bytes(16), "plant/line1/temp", 7, [b"21.5", b"21.6"], time_us=1)
    >>> (batch.first, batch.stop, batch.topic, batch.payloads())
    (7, 9, 'plant/line1/temp', [b'21.5', b'21.6'])
    >>> Batch.parse(batch.data).cut(8, 9).payloads()
    [b'21.6']
    """

    __slots__ = (
        "_whole", "_whole_at", "attempt", "counted", "data", "head", "ordered_to", "position", "settle",
        "stream",
    )  # fmt: skip

    def __init__(
        self, head: Head, data: Buffer, position: int = -1, whole: tuple[Buffer, int] | None = None
    ) -> None:
        self.head = head
        self.data = data
        self._whole, self._whole_at = whole or (data, 0)
        """What this batch lies in and where: reading payloads from bytes needs no copy of the block."""
        self.position = position
        self.attempt = 1
        self.counted = True
        """Whether it used up a subscriber's credit: what was recovered or handed out again did not."""
        self.ordered_to = 0
        """Where order counts: who gives back one of its events gives back what is behind, up to this seq. 0: nowhere."""
        self.settle: Callable[..., Any] | None = None
        """Set by the subscriber that handed this batch out: how its events' outcomes find their way back."""
        self.stream: AsyncIterable[bytes] | None = None
        """Set by the subscriber where the payload comes in pieces."""

    @classmethod
    def build(
        cls,
        source: bytes,
        topic: str,
        first: int,
        payloads: Sequence[Buffer],
        time_us: int,
        ttl_ms: int = 0,
        priority: int = PRIORITY_DEFAULT,
        type: int = TYPE_PUBLISH,
        columns: dict[str, list[Any]] | None = None,
        flags: int = 0,
        lengths: list[int] | None = None,
    ) -> Batch:
        """Encode events into a batch. The caller has checked topic, sizes and limits.

        It may know the events' lengths: then the payloads may be joined already, to any number of buffers.
        """
        lengths = list(map(len, payloads)) if lengths is None else lengths
        count = len(lengths)
        assert count > 0, "an empty batch"
        assert first > 0, "seqs start at 1"
        assert len(source) == SOURCE_BYTES, "a source has 16 bytes"
        name = topic.encode()
        packed = _columns_encoder.encode(columns) if columns else b""
        block_bytes = total(lengths)
        body_at = HEADER_BYTES + pad8(len(name)) + pad8(len(packed)) + pad8(4 * count)
        length = pad8(body_at + block_bytes)
        fields = (source, first, count, len(name), priority, type, time_us, ttl_ms, len(packed))
        header = HEADER.pack(MAGIC, KIND_BATCH, flags, length, 0, *fields)
        frame = bytearray().join(
            (
                *(header, name, _PADDING[-len(name) % 8], packed, _PADDING[-len(packed) % 8]),
                *(_packed(lengths), _PADDING[-4 * count % 8], *payloads, _PADDING[-block_bytes % 8]),
            )
        )
        if len(frame) != length:
            raise TypeError("a payload's items are larger than a byte")
        PREFIX.pack_into(frame, 0, MAGIC, KIND_BATCH, flags, length, checksum(frame))
        return cls(Head(source, topic, first, count, length, time_us, ttl_ms, priority, type, flags), frame)

    @classmethod
    def parse(cls, data: Buffer, offset: int = 0, position: int = -1) -> Batch:
        """The validated batch at `offset`. Raises `MalformedFrame`."""
        head = parse_head(data, offset)
        whole = offset == 0 and len(data) == head.length
        return cls(head, data if whole else memoryview(data)[offset : offset + head.length], position)

    @property
    def source(self) -> bytes:
        return self.head.source

    @property
    def topic(self) -> str:
        return self.head.topic

    @property
    def first(self) -> int:
        return self.head.first

    @property
    def count(self) -> int:
        return self.head.count

    @property
    def stop(self) -> int:
        """The seq after the last."""
        return self.head.first + self.head.count

    @property
    def time_us(self) -> int:
        return self.head.time_us

    def __len__(self) -> int:
        return self.head.count

    def __repr__(self) -> str:
        return f"Batch({self.topic!r}, {self.source.hex()}, [{self.first}, {self.stop}), {self.head.length} bytes)"

    def _places(self) -> tuple[int, int, int]:
        """Where columns, lengths and payloads start."""
        fields = HEADER.unpack_from(self.data)
        columns_at = HEADER_BYTES + pad8(fields[8])
        lengths_at = columns_at + pad8(fields[13])
        return columns_at, lengths_at, lengths_at + pad8(4 * self.head.count)

    def lengths(self) -> memoryview:
        """The payloads' lengths as unsigned 32 bit numbers, without a copy."""
        _, at, _ = self._places()
        return memoryview(self.data)[at : at + 4 * self.head.count].cast("I")

    def block(self) -> memoryview:
        """All payloads back to back, without a copy (up to seven bytes of padding follow the last)."""
        return memoryview(self.data)[self._places()[2] :]

    def payloads(self) -> list[bytes]:
        """Every event's payload."""
        _, lengths_at, block_at = self._places()
        count = self.head.count
        raw = bytes(memoryview(self.data)[lengths_at : lengths_at + 4 * count])
        if SAME_MIN <= count <= SAME_MAX and (one := _one_length(raw)) is not None:
            return list(_same(one, count).unpack_from(self.data, block_at))
        lengths = memoryview(raw).cast("I").tolist()
        if type(self._whole) is bytes:  # which is read where it lies
            stream = BytesIO(self._whole)
            stream.seek(self._whole_at + block_at)
        else:
            stream = BytesIO(memoryview(self.data)[block_at:])
        return list(map(stream.read, lengths))

    def columns(self) -> dict[str, list[Any]]:
        """What differs from event to event beside the payload: {name: [a value per event]}."""
        size = HEADER.unpack_from(self.data)[13]
        if not size:
            return {}
        at = self._places()[0]
        try:
            return _columns_decoder.decode(memoryview(self.data)[at : at + size])
        except msgspec.DecodeError as error:
            raise MalformedFrame("a batch's columns can't be read", str(error)) from None

    def events(self, start: int = 0) -> list[Event]:
        """The events with seq ≥ `start`, as light values."""
        first = self.head.first
        skip = max(0, start - first)
        payloads = self.payloads()
        if skip:
            payloads = payloads[skip:]
        return list(map(cast(Any, Event), repeat(self), range(first + skip, self.stop), payloads))

    def accept(self) -> Awaitable[None]:
        """Every event of it was processed."""
        return self._settle(Outcome.ACCEPTED)

    def release(self) -> Awaitable[None]:
        """None of it is for me: try the next path."""
        return self._settle(Outcome.RELEASED)

    def fail(self, delay_s: float = 0.0, code: int = 0, text: str = "") -> Awaitable[None]:
        """All of it was tried in vain: hand it out again after a back-off of at least `delay_s`.

        A google.rpc code may have a back-off of its own, or be one that is never retried.
        """
        return self._settle(Outcome.FAILED, delay_s=delay_s, code=int(code), text=text)

    def in_progress(self) -> Awaitable[None]:
        """It takes longer: the lease of all of it begins anew."""
        return self._settle(Outcome.RECEIVED)

    def reject(self, code: int = Code.INVALID_ARGUMENT, text: str = "") -> Awaitable[None]:
        """None of it can ever be processed: make dead letters of its events."""
        return self._settle(Outcome.REJECTED, code=int(code), text=text)

    def _settle(self, outcome: Outcome, **details: Any) -> Awaitable[None]:
        if self.settle is None:
            raise LocalError(f"{self!r} was not handed out by a subscription: there is nothing to settle")
        result: Awaitable[None] = self.settle(self.first, self.stop, outcome, **details)
        return result

    def cut(self, start: int, stop: int) -> Batch:
        """The events `[start, stop)` of this batch as a batch of their own."""
        start, stop = max(start, self.first), min(stop, self.stop)
        if (start, stop) == (self.first, self.stop):
            return self
        assert start < stop, "an empty cut"
        low, high = start - self.first, stop - self.first
        columns = {name: values[low:high] for name, values in self.columns().items()}
        payloads = list(islice(self.payloads(), low, high))
        head = self.head
        made = Batch.build(
            head.source,
            head.topic,
            start,
            payloads,
            head.time_us,
            head.ttl_ms,
            head.priority,
            head.type,
            columns,
            head.flags,
        )
        made.position, made.attempt, made.ordered_to = self.position, self.attempt, self.ordered_to
        return made
