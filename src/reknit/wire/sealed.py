"""Sealed datagrams of a group: their layout.

    head, 56 bytes   magic u16 · version u8 · 0 u8 · key u32 · group u64 · sender 16 B · stable u64
                     · to u64 · counter u64
    then             the items of a plain datagram, encrypted · tag 16 B

Little endian. The head is that of a plain datagram (`wire/bundle.py`), with another version and three more fields: `key`
is the id of the shared key, `to` the start of the only member's id that may accept the datagram, or 0, and `counter`
grows with every datagram of a sender. The head is authenticated, not encrypted.
"""

from __future__ import annotations

import struct
from typing import Final

from reknit.frame import Buffer
from reknit.wire.bundle import ENVELOPE, MAGIC

SEALED_VERSION: Final = 2
SEALED_HEAD: Final = struct.Struct("<HBBIQ16sQQQ")
SEALED_START: Final = struct.Struct("<HBBI")
"""The fields before those that are copied from a plain envelope."""
SEALED_END: Final = struct.Struct("<QQ")
"""The fields after them."""
TAG_BYTES: Final = 16
SEAL_BYTES: Final = SEALED_HEAD.size - ENVELOPE.size + TAG_BYTES
"""How much longer a datagram is when it is sealed."""
TO_ALL: Final = 0


def to_member(member: bytes) -> int:
    """The number that directs a datagram to one member alone.

    >>> to_member(b"12345678abcdefgh") == to_member(b"12345678--------")
    True
    """
    return int.from_bytes(member[:8], "little")


def is_sealed(datagram: Buffer) -> bool:
    """Whether this looks like a sealed datagram."""
    if len(datagram) < SEALED_HEAD.size:
        return False
    magic, version, _, _ = SEALED_START.unpack_from(datagram)
    return bool(magic == MAGIC and version == SEALED_VERSION)
