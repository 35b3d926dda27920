"""The layout of a batch: the only module that knows which byte of a batch means what.

    header, 64 bytes   prefix (see frame) · source 16 B · first u64 · count u32 · topic_len u16 · priority u8 · type u8
                       · time_us u64 · ttl_ms u32 · columns_len u32
    topic              UTF-8, padded to 8
    columns            msgpack {name: [a value per event]}, only where events differ; padded to 8
    lengths            u32 per event, padded to 8
    payloads           one block of bytes, padded to 8

Memory, wire and disk share this layout. A receiver stores and forwards the bytes that it received. The lengths and the
block form an Arrow binary column, except that Arrow needs the cumulative sum of the lengths. The layout has lengths
rather than offsets because plain Python splits a block by lengths nearly twice as fast.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from xxhash import xxh3_64_intdigest

from reknit.decoding import UNREADABLE, decode_packed
from reknit.errors import MalformedFrame
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

HEADER_FIELDS: Final = (
    ("magic", "H"),
    ("kind", "B"),
    ("flags", "B"),
    ("length", "I"),
    ("checksum", "Q"),
    ("source", "16s"),
    ("first", "Q"),
    ("count", "I"),
    ("topic_len", "H"),
    ("priority", "B"),
    ("type", "B"),
    ("time_us", "Q"),
    ("ttl_ms", "I"),
    ("columns_len", "I"),
)
"""The header's fields in order: the name, and the type as `struct` writes it. Little endian, no padding."""
HEADER: Final = struct.Struct("<" + "".join(code for _, code in HEADER_FIELDS))
HEADER_BYTES: Final = HEADER.size
COUNT, TOPIC_LEN, COLUMNS_LEN = (
    [field for field, _ in HEADER_FIELDS].index(name) for name in ("count", "topic_len", "columns_len")
)
"""Where `HEADER.unpack_from` has these fields."""


def _place(field: int) -> slice:
    start = struct.calcsize("<" + "".join(code for _, code in HEADER_FIELDS[:field]))
    return slice(start, start + struct.calcsize(HEADER_FIELDS[field][1]))


COUNT_AT: Final = _place(COUNT)
COLUMNS_LEN_AT: Final = _place(COLUMNS_LEN)
"""The bytes of a batch that hold these fields, for readers that need one of them only. Little endian."""

SOURCE_BYTES: Final = 16
COUNT_MAX: Final = 1 << 20
SEQ_MAX: Final = (1 << 63) - 1
"""The last seq of a source. The seq after it still fits a signed 64-bit number."""
TIME_US_MAX: Final = 253_402_300_800_000_000
"""The end of the year 9999, the last that Python's calendar has."""

TYPE_PUBLISH: Final = 1
TYPE_REQUEST: Final = 2
TYPE_RESPONSE: Final = 3
TYPE_NOTIFICATION: Final = 4

PRIORITY_DEFAULT: Final = 1

FLAG_ATTRIBUTES: Final = 1
"""The events carry uProtocol's attributes as columns (see envelope)."""
FLAG_STREAM: Final = 2
"""The batch has one event whose payload is not in it: it follows in chunks."""
SIZE_COLUMN: Final = "size"
"""The column of a stream's event with the length of the stream, if its publisher knew it at the start."""

_SEED: Final = struct.Struct("<Q")
_TOPICS_MAX: Final = 4096
_PADDING: Final = tuple(bytes(n) for n in range(8))
_columns_decoder = msgspec.msgpack.Decoder(dict[str, list[Any]])
_raw_columns = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_ANY_COLUMN: Final = (msgspec.msgpack.Decoder(list[Any]).decode, "a list of values")
_COLUMNS: Final[dict[str, tuple[Callable[[msgspec.Raw], list[Any]], str]]] = {
    "time": (
        msgspec.msgpack.Decoder(list[Annotated[int, Meta(ge=0, lt=TIME_US_MAX)]]).decode,
        f"numbers from 0 to {TIME_US_MAX - 1}",
    ),
    "ttl": (
        msgspec.msgpack.Decoder(list[Annotated[int, Meta(ge=0, lt=1 << 32)]]).decode,
        f"numbers from 0 to {(1 << 32) - 1}",
    ),
    "headers": (msgspec.msgpack.Decoder(list[dict[str, str] | None]).decode, "maps of texts"),
}
"""How the columns that readers interpret are decoded, and what they must have."""
_columns_encoder = msgspec.msgpack.Encoder()
_topics: dict[bytes, str] = {}


class Head(msgspec.Struct, frozen=True, gc=False):
    """The header of a batch: enough to check, route, index and acknowledge the batch without opening it."""

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


def sections(topic_len: int, columns_len: int, count: int) -> tuple[int, int, int]:
    """Where columns, lengths and payloads begin, counted from the batch's first byte.

    >>> sections(topic_len=5, columns_len=0, count=3)
    (72, 72, 88)
    """
    columns_at = HEADER_BYTES + ((topic_len + 7) & ~7)
    lengths_at = columns_at + ((columns_len + 7) & ~7)
    return columns_at, lengths_at, lengths_at + ((4 * count + 7) & ~7)


# -- reading


def parse_head(buffer: Buffer, offset: int = 0, bytes_max: int = FRAME_BYTES_MAX) -> Head:
    """The head of the whole batch at `offset`, completely validated. Raises `MalformedFrame`."""
    view = memoryview(buffer)
    kind, length = peek(view, offset, len(view) - offset, bytes_max)
    if kind != KIND_BATCH or length < HEADER_BYTES:
        raise _malformed(f"a frame of kind {kind} with {length} bytes is not a batch", offset)
    if offset + length > len(view):
        raise MalformedFrame(
            f"a batch of {length} bytes is cut off after {len(view) - offset}", f"offset {offset}"
        )
    return check_head(view, offset, length)


def check_head(view: memoryview, offset: int, length: int) -> Head:
    """As `parse_head`, for a frame whose prefix was read and whose bytes have all arrived."""
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
        raise _malformed(f"the checksum of a batch of {length} bytes does not match its content", offset)
    columns_at, lengths_at, block_at = sections(topic_len, columns_len, count)
    if not 0 < count <= COUNT_MAX or not 1 <= first <= SEQ_MAX - count or block_at > length:
        raise _malformed(f"{length} bytes can't hold {count} events from seq {first}", offset)
    if time_us >= TIME_US_MAX:
        raise _malformed(f"the time {time_us} µs is after the year 9999", offset)
    if columns_len:
        _check_columns(view[offset + columns_at : offset + columns_at + columns_len], count, offset)
    _check_lengths(view[offset + lengths_at : offset + lengths_at + 4 * count], block_at, length, offset)
    try:
        topic = str(view[offset + HEADER_BYTES : offset + HEADER_BYTES + topic_len], "utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"the topic of a batch is not UTF-8 ({error})", offset) from None
    return Head(source, topic, first, count, length, time_us, ttl_ms, priority, type_, flags)


def _check_lengths(lengths: memoryview, block_at: int, length: int, offset: int) -> None:
    packed = bytes(lengths)
    same = same_length(packed)
    payload_bytes = sum(memoryview(packed).cast("I")) if same is None else same * (len(packed) // 4)
    if pad8(block_at + payload_bytes) != length:
        raise _malformed(f"payloads of {payload_bytes} bytes do not fill a batch of {length}", offset)


def _check_columns(packed: memoryview, count: int, offset: int) -> None:
    """Every column has a value per event, of the type that readers expect."""
    for name, column in decode_packed(_raw_columns.decode, packed, "a batch's columns").items():
        decode, what = _COLUMNS.get(name, _ANY_COLUMN)
        try:
            values = decode(column)
        except UNREADABLE as error:
            raise _malformed(f"column {name!r} must have {what} ({error})", offset) from None
        if len(values) != count:
            raise _malformed(f"column {name!r} has {len(values)} values for {count} events", offset)


def _malformed(what: str, offset: int) -> MalformedFrame:
    return MalformedFrame(what, f"offset {offset}")


def decode_columns(packed: memoryview) -> dict[str, list[Any]]:
    """The columns section. Raises `MalformedFrame`."""
    return decode_packed(_columns_decoder.decode, packed, "a batch's columns")


def read_head(view: memoryview, at: int) -> Head:
    """The head of a batch that is known to be valid, without any check. Topics that repeat are the same object."""
    (_, _, flags, length, _, source, first, count, topic_len, priority, type_, time_us, ttl_ms, _) = (
        HEADER.unpack_from(view, at)
    )
    name = bytes(view[at + HEADER_BYTES : at + HEADER_BYTES + topic_len])
    topic = _topics.get(name)
    if topic is None:
        if len(_topics) >= _TOPICS_MAX:
            _topics.clear()
        topic = _topics[name] = name.decode()
    return Head(source, topic, first, count, length, time_us, ttl_ms, priority, type_, flags)


def same_length(lengths: bytes) -> int | None:
    """The length of all payloads, or None if they differ. Much cheaper than reading every number."""
    return int.from_bytes(lengths[:4], "little") if lengths[:4] * (len(lengths) // 4) == lengths else None


@lru_cache(maxsize=32)
def payload_splitter(size: int, count: int) -> struct.Struct:
    """Splits `count` payloads of `size` bytes in one call."""
    return struct.Struct(f"{size}s" * count)


# -- writing


def pack(
    source: bytes,
    topic: str,
    first: int,
    payloads: Sequence[Buffer],
    time_us: int,
    ttl_ms: int,
    priority: int,
    type: int,
    columns: dict[str, list[Any]] | None,
    flags: int,
    lengths: list[int],
) -> tuple[Head, bytearray]:
    """A batch's head and bytes. The payloads may be joined already, to any number of buffers."""
    count = len(lengths)
    assert count > 0, "an empty batch"
    assert first > 0, "seqs start at 1"
    assert len(source) == SOURCE_BYTES, "a source has 16 bytes"
    name = topic.encode()
    packed = _columns_encoder.encode(columns) if columns else b""
    block_bytes = total(lengths)
    length = pad8(sections(len(name), len(packed), count)[2] + block_bytes)
    fields = (source, first, count, len(name), priority, type, time_us, ttl_ms, len(packed))
    frame = bytearray().join(
        (
            HEADER.pack(MAGIC, KIND_BATCH, flags, length, 0, *fields),
            *(name, _PADDING[-len(name) % 8], packed, _PADDING[-len(packed) % 8]),
            *(_pack_lengths(lengths), _PADDING[-4 * count % 8], *payloads, _PADDING[-block_bytes % 8]),
        )
    )
    if len(frame) != length:
        raise TypeError("a payload's items are larger than one byte; pass bytes")
    PREFIX.pack_into(frame, 0, MAGIC, KIND_BATCH, flags, length, checksum(frame))
    return Head(source, topic, first, count, length, time_us, ttl_ms, priority, type, flags), frame


def _are_same(lengths: list[int]) -> bool:
    return lengths.count(lengths[0]) == len(lengths)


def total(lengths: list[int]) -> int:
    """Their sum; where all are the same, without adding them up."""
    return lengths[0] * len(lengths) if _are_same(lengths) else sum(lengths)


def _pack_lengths(lengths: list[int]) -> array[int]:
    return array("I", lengths[:1]) * len(lengths) if _are_same(lengths) else array("I", lengths)
