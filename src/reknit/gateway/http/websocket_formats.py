"""How events look on a WebSocket: as JSON, or as batches; compressed if the client takes that.

Every message is compressed on its own, so that all clients are sent the same bytes: `server_no_context_takeover`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from reknit.gateway.http.formats import TunnelBatch, TunnelFormat, envelope
from reknit.protocol.tunnel.journal_place import JournalPlace

_json: Final = msgspec.json.Encoder()
_msgpack: Final = msgspec.msgpack.Encoder()

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
COMPRESSED: Final = 0x40
"""The bit beside the opcode that says so."""
GOING_AWAY: Final = 1001
COMPRESSED_BYTES_MIN: Final = 256
"""Shorter messages are sent as they are."""
FLUSHED: Final = b"\x00\x00\xff\xff"
"""What a compressor ends a message with, and what is not sent. (RFC 7692, 7.2.1)"""


def ws_frame(opcode: int, data: bytes) -> bytes:
    """A complete, unmasked frame, as a server sends it.

    >>> ws_frame(TEXT, b"hi")
    b'\\x81\\x02hi'
    """
    size = len(data)
    if size < 126:
        head = bytes((0x80 | opcode, size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")
    return head + data


def compressed_frame(opcode: int, data: bytes) -> bytes:
    """A frame whose data is compressed if it gets shorter by that."""
    if len(data) < COMPRESSED_BYTES_MIN:
        return ws_frame(opcode, data)
    compressor = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    short = (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(FLUSHED)
    return ws_frame(opcode | COMPRESSED, short) if len(short) < len(data) else ws_frame(opcode, data)


def message(**fields: Any) -> bytes:
    """A frame with a message in JSON.

    >>> message(type="closed", why="slow")
    b'\\x81\\x1e{"type":"closed","why":"slow"}'
    """
    return ws_frame(TEXT, _json.encode(fields))


def compressed(frames: bytes) -> bytes:
    """The same frames with their data compressed.

    >>> frames = ws_frame(TEXT, b"short") + ws_frame(TEXT, b"long" * 1000)
    >>> len(frames), len(compressed(frames))
    (4011, 53)
    """
    parts: list[bytes] = []
    at = 0
    while at < len(frames):
        size, start = frames[at + 1], at + 2
        if size >= 126:
            wide = 2 if size == 126 else 8
            size, start = int.from_bytes(frames[start : start + wide], "big"), start + wide
        parts.append(compressed_frame(frames[at] & 0x0F, frames[start : start + size]))
        at = start + size
    return b"".join(parts)


class _WsFormat:
    """The common part of both formats."""

    content_type = ""
    is_chunked = False
    kind = ""

    def __init__(self, is_compressed: bool = False) -> None:
        self._is_compressed = is_compressed
        self.name = f"{self.kind}-compressed" if is_compressed else self.kind

    def status(self, elements: Mapping[str, Any], payload: str = "") -> bytes:
        return message(type="opened", **elements, **({"why": payload} if payload else {}))

    def heartbeat(self, place: JournalPlace) -> bytes:
        return message(type="heartbeat", checkpoint=place.text)

    def closing(self, why: str) -> bytes:
        words = why.encode()[:120].decode("utf-8", "ignore").encode()
        return ws_frame(CLOSE, GOING_AWAY.to_bytes(2, "big") + words)

    def pack(self, data: bytes) -> bytes:
        return compressed(data) if self._is_compressed else data


class WsJsonFormat(_WsFormat):
    """One text message for each event."""

    kind = "ws-json"

    def batch(self, item: TunnelBatch) -> bytes:
        rows = zip(item.checkpoints(), envelope(item), strict=True)
        return b"".join(
            [ws_frame(TEXT, _json.encode({"type": "event", **row, "checkpoint": at})) for at, row in rows]
        )


class WsBinaryFormat(_WsFormat):
    """One binary message for each batch: msgpack `[checkpoint, events to skip, the batch's bytes]`."""

    kind = "ws-binary"

    def batch(self, item: TunnelBatch) -> bytes:
        place = JournalPlace(item.epoch, item.position + item.batch.head.length)
        return ws_frame(BINARY, _msgpack.encode((place.text, item.skip, bytes(item.batch.data))))


WEBSOCKET_FORMATS: Final[dict[tuple[str, bool], TunnelFormat]] = {
    (name, is_compressed): one(is_compressed)
    for name, one in (("json", WsJsonFormat), ("binary", WsBinaryFormat))
    for is_compressed in (False, True)
}
"""By name, and by whether messages are compressed."""
