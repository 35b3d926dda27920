"""Datagrams of a group: their layout, and how messages and pieces of batches are bundled into them.

    envelope, 40 bytes   magic u16 · version u8 · 0 u8 · to u32 · group u64 · sender 16 B · stable u64
    then items           piece:    1 u8 · is_relayed u8 · index u16 · size u16 · 0 u16 · first u64 · count u32
                                   · length u32 · (source 16 B if relayed) · data up to `size`
                         message:  2 u8 · 0 u8 · 0 u16 · length u32 · msgpack

Little endian. `group` is a hash of the group's name, so that datagrams of other groups on the same address are
ignored. `to` is the beginning of the id of the member that the datagram is for, 0 if it is for all: at its address may
be a later process, which would take an acknowledgement for one of its own events. `stable` is the last seq of the sender
that all members have. Everything for the same destination in one turn
is sent together, up to the size of a datagram. A batch that needs several datagrams is cut into pieces of equal size,
so that the kernel can send all of them with one call (UDP segmentation offload).
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from reknit.batch import SOURCE_BYTES, Batch
from reknit.batch_layout import COUNT_MAX, SEQ_MAX
from reknit.decoding import decode_packed
from reknit.errors import MalformedFrame
from reknit.frame import FRAME_BYTES_MAX, Buffer
from reknit.seqset import Range
from reknit.wire.groups import AnyGroupMessage, GroupPiece
from reknit.wire.pieces import piece_count

MAGIC: Final = 0x4752  # b"RG"
VERSION: Final = 1
ENVELOPE: Final = struct.Struct("<HBBIQ16sQ")
PIECE: Final = struct.Struct("<BBHHHQII")
MESSAGE: Final = struct.Struct("<BBHI")
DATAGRAM_BYTES_MAX: Final = 65_507
"""The largest payload of an IPv4 UDP datagram."""
PIECE_BYTES_MAX: Final = 65_400
"""Nearly the size of the largest datagram, so that receive buffers are well used."""
OVERHEAD_BYTES: Final = ENVELOPE.size + PIECE.size + SOURCE_BYTES
"""The overhead of a piece in its datagram, at most."""

TO_MASK: Final = 0xFFFF_FFFF
"""The part of a member's number that is in an envelope."""
_KIND_PIECE: Final = 1
_KIND_MESSAGE: Final = 2
_decoder: msgspec.msgpack.Decoder[AnyGroupMessage] = msgspec.msgpack.Decoder(AnyGroupMessage)
_encoder = msgspec.msgpack.Encoder()

Item = GroupPiece | AnyGroupMessage
Datagram = list[Buffer]
"""A datagram's bytes, in parts."""


def group_hash(name: str) -> int:
    """The number that identifies a group on the wire."""
    return xxh3_64_intdigest(name.encode())


class Bundler:
    """Packs everything that one member sends to one destination in one turn into few datagrams.

    >>> from reknit.wire.groups import GroupAck, GroupAskStart
    >>> bundler = Bundler(group_hash("robots"), b"m" * 16, 1472)
    >>> bundler.add(GroupAck(7))
    >>> bundler.add(GroupAskStart())
    >>> [datagram] = bundler.take(stable=0)
    >>> unbundle(datagram, group_hash("robots"))[1]
    [GroupAck(seq=7), GroupAskStart()]
    """

    def __init__(self, group: int, me: bytes, datagram_bytes: int, to: int = 0) -> None:
        self._group, self._me, self._to = group, me, to & TO_MASK
        self._limit = min(datagram_bytes, DATAGRAM_BYTES_MAX) - ENVELOPE.size
        self._items: list[list[Buffer]] = []
        self._room = 0

    def add(self, message: AnyGroupMessage) -> None:
        """Bundle a message."""
        body = _encoder.encode(message)
        self._put(MESSAGE.pack(_KIND_MESSAGE, 0, 0, len(body)) + body)

    def add_batch(self, batch: Batch, size: int, pieces: list[Range] | None = None) -> None:
        """Bundle a batch, or some of its pieces, cut at `size`."""
        head = batch.head
        is_relayed = head.source != self._me
        origin = head.source if is_relayed else b""
        data = memoryview(batch.data)
        for start, stop in pieces if pieces is not None else [(0, piece_count(head.length, size))]:
            for index in range(start, stop):
                at = index * size
                fields = (is_relayed, index, size, 0, head.first, head.count, head.length)
                self._put(PIECE.pack(_KIND_PIECE, *fields) + origin, data[at : at + size])

    def add_piece(self, piece: GroupPiece) -> None:
        """Bundle a piece of a batch that is incomplete here."""
        fields = (True, piece.index, piece.size, 0, piece.first, piece.count, piece.length)
        self._put(PIECE.pack(_KIND_PIECE, *fields) + piece.source, piece.data)

    def _put(self, *parts: Buffer) -> None:
        length = sum(map(len, parts))
        if length > self._room:
            self._items.append([])
            self._room = self._limit
        self._items[-1] += parts
        self._room -= length

    def take(self, stable: int) -> list[bytes]:
        """The datagrams, in order."""
        return [b"".join(parts) for parts in self.take_parts(stable)]

    def take_parts(self, stable: int) -> list[Datagram]:
        """The datagrams, each as parts that the kernel joins: batches are not copied."""
        if not self._items:
            return []
        envelope = ENVELOPE.pack(MAGIC, VERSION, 0, self._to, self._group, self._me, stable)
        items, self._items = self._items, []
        self._room = 0
        return [[envelope, *parts] for parts in items]


def is_for(datagram: Buffer, member: bytes) -> bool:
    """Whether a datagram is for a member, alone or with all others; if it is none, `unbundle` says so.

    >>> bundler = Bundler(1, b"m" * 16, 1472, to=int.from_bytes(b"abcd", "little"))
    >>> bundler.add_piece(GroupPiece(b"s" * 16, 1, 1, 8, 8, 0, 0, memoryview(bytes(8))))
    >>> [datagram] = bundler.take(stable=0)
    >>> is_for(datagram, b"abcd" * 4), is_for(datagram, b"efgh" * 4)
    (True, False)
    """
    if len(datagram) < ENVELOPE.size:
        return True
    magic, version, _, to, *_ = ENVELOPE.unpack_from(datagram)
    is_ours = magic == MAGIC and version == VERSION
    return not is_ours or to in (0, int.from_bytes(member[:4], "little"))


def unbundle(datagram: Buffer, group: int) -> tuple[bytes, list[Item]]:
    """The sender and the items of a datagram; no items if it belongs to another group. Raises `MalformedFrame`."""
    view = memoryview(datagram)
    if len(view) < ENVELOPE.size:
        raise MalformedFrame(f"a datagram of {len(view)} bytes is shorter than its envelope", "byte 0")
    magic, version, _, _, named, sender, stable = ENVELOPE.unpack_from(view)
    if magic != MAGIC or version != VERSION:
        what = f"magic {magic:#06x} and version {version} are not those of a group's datagram"
        raise MalformedFrame(what, "byte 0")
    if named != group:
        return sender, []
    return sender, unbundle_items(datagram, sender, stable, ENVELOPE.size)


def unbundle_items(data: Buffer, sender: bytes, stable: int, at: int = 0) -> list[Item]:
    """The items of a datagram, which are in `data` from `at` on. Raises `MalformedFrame`."""
    if stable > SEQ_MAX:
        raise MalformedFrame(f"no source has a seq {stable}", "byte 32")
    items: list[Item] = []
    view = memoryview(data)
    whole = data if type(data) is bytes else None
    end = len(view)
    while at < end:
        kind = view[at]
        if kind == _KIND_PIECE and at + PIECE.size <= end:
            piece, at = _piece(view, at, sender, stable, whole)
            items.append(piece)
        elif kind == _KIND_MESSAGE and at + MESSAGE.size <= end:
            length = MESSAGE.unpack_from(view, at)[3]
            at += MESSAGE.size
            items.append(_message(view[at : at + length], length))
            at += length
        else:
            raise MalformedFrame(f"item kind {kind} is unknown or cut off", f"byte {at} of a datagram")
    return items


def _piece(
    view: memoryview, at: int, sender: bytes, stable: int, whole: bytes | None
) -> tuple[GroupPiece, int]:
    _, is_relayed, index, size, _, first, count, length = PIECE.unpack_from(view, at)
    at += PIECE.size
    source = sender
    if is_relayed:
        source, stable = bytes(view[at : at + SOURCE_BYTES]), 0
        at += SOURCE_BYTES
    rest = length - index * size
    stop = at + (size if size < rest else rest)
    is_batch = 0 < count <= COUNT_MAX and 0 < first <= SEQ_MAX - count and length <= FRAME_BYTES_MAX
    if not (at < stop <= len(view) and is_batch):
        what = f"a piece of {size} bytes can't be number {index} of a batch of {length} bytes"
        raise MalformedFrame(what, f"byte {at} of a datagram")
    place = None if whole is None else (whole, at)
    return GroupPiece(source, first, count, length, size, index, stable, view[at:stop], place), stop


def _message(body: memoryview, length: int) -> AnyGroupMessage:
    if len(body) != length:
        raise MalformedFrame(f"a message of {length} bytes is cut off after {len(body)}", "a datagram")
    return decode_packed(_decoder.decode, body, "a group's message")
