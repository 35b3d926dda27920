"""The frame: the common prefix of every batch, message and journal record, on the wire and on disk.

    prefix, 16 bytes, little endian:  magic u16 · kind u8 · flags u8 · length u32 · checksum u64

`length` is that of the whole frame and a multiple of 8, so that frames can lie back to back and every column in them is
aligned. The checksum covers all bytes after the prefix. Its seed is the first eight bytes of the prefix, so that it also
detects a flipped bit in the length or the kind.
"""

from __future__ import annotations

import struct
from typing import Final

from xxhash import xxh3_64_intdigest

from reknit.errors import MalformedFrame

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 0x4B52  # b"RK"
PREFIX: Final = struct.Struct("<HBBIQ")
PREFIX_BYTES: Final = PREFIX.size
LEAD: Final = struct.Struct("<HBBI")
LEAD_BYTES: Final = LEAD.size
_BODY: Final = struct.Struct("<II")
_SEED: Final = struct.Struct("<Q")
_PADDING: Final = [bytes(count) for count in range(8)]

KIND_BATCH: Final = 1
KIND_MESSAGE: Final = 2
KIND_RECORD: Final = 3
KINDS: Final = frozenset({KIND_BATCH, KIND_MESSAGE, KIND_RECORD})

FRAME_BYTES_MAX: Final = 64 << 20
"""No frame is longer, even if a peer or a file claims so. The configuration may set a lower limit."""


def pad8(length: int) -> int:
    """The next multiple of eight.

    >>> [pad8(n) for n in (0, 1, 8, 9)]
    [0, 8, 8, 16]
    """
    return (length + 7) & ~7


def checksum(frame: Buffer) -> int:
    """The checksum for the prefix of a whole frame."""
    view = memoryview(frame)
    return xxh3_64_intdigest(view[PREFIX_BYTES:], seed=_SEED.unpack_from(view)[0])


def peek(buffer: Buffer, offset: int, available: int, bytes_max: int = FRAME_BYTES_MAX) -> tuple[int, int]:
    """Kind and length of the frame at `offset`, or (0, 0) while fewer than eight bytes of it have arrived.

    Raises `MalformedFrame` as soon as the first bytes can't start a frame, so that garbage is refused early.
    """
    if available < LEAD_BYTES:
        return 0, 0
    magic, kind, _flags, length = LEAD.unpack_from(buffer, offset)
    if magic != MAGIC:
        what = f"a frame starts with the bytes 'RK', not with {magic.to_bytes(2, 'little')!r}"
        raise MalformedFrame(what, f"offset {offset}")
    if kind not in KINDS:
        raise MalformedFrame(f"frame kind {kind} is unknown", f"offset {offset}")
    if length < PREFIX_BYTES + 8 or length & 7:
        raise MalformedFrame(f"a frame can't have {length} bytes", f"offset {offset}")
    if length > bytes_max:
        raise MalformedFrame(
            f"a frame of {length} bytes is over the limit of {bytes_max}", f"offset {offset}"
        )
    return kind, length


def verify(frame: Buffer) -> None:
    """Raise `MalformedFrame` unless the checksum of a whole frame matches its content."""
    found = PREFIX.unpack_from(frame)[4]
    wanted = checksum(frame)
    if found != wanted:
        what = f"the checksum {found:#018x} does not match the content, which has {wanted:#018x}"
        raise MalformedFrame(what, f"a frame of {len(frame)} bytes")


def wrap(kind: int, body: bytes) -> bytes:
    """A whole frame around a packed body (messages and records).

    >>> unwrap(wrap(KIND_MESSAGE, b"hello"))
    b'hello'
    """
    size = len(body)
    content = _BODY.pack(size, 0) + body + _PADDING[-size % 8]
    lead = LEAD.pack(MAGIC, kind, 0, PREFIX_BYTES + len(content))
    return lead + _SEED.pack(xxh3_64_intdigest(content, seed=int.from_bytes(lead, "little"))) + content


def unwrap(frame: Buffer) -> bytes:
    """The packed body of a whole frame, after its checksum was verified."""
    verify(frame)
    size = _BODY.unpack_from(frame, PREFIX_BYTES)[0]
    start = PREFIX_BYTES + _BODY.size
    if start + size > len(frame):
        raise MalformedFrame(
            f"a body of {size} bytes does not fit its frame", f"a frame of {len(frame)} bytes"
        )
    return bytes(frame[start : start + size])
