"""WebSocket: the handshake, and what a client says. What it is sent is made by `websocket_formats.py`."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol
from wsproto.utilities import RemoteProtocolError

from reknit.gateway.http.requests import HttpRequest

KEY_BYTES: Final = 16
GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DEFLATE: Final = "permessage-deflate"
GRANTED: Final = f"{DEFLATE}; server_no_context_takeover; client_no_context_takeover"
HANDSHAKE: Final = (("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"))
"""What a client may do better, in the answer to one whose handshake is refused."""
TOO_LONG: Final = "a message is longer than http.request_bytes_max"
ClientMessage = dict[str, Any]


def handshake_refusal(request: HttpRequest) -> tuple[int, str] | None:
    """Why a request can't become a WebSocket: the status of the answer, and its text."""
    headers = request.headers
    if headers.get("upgrade", "").lower() != "websocket" or "connection" not in headers:
        return 426, "/ws is for WebSocket; request an upgrade. A proxy in between has to pass it on."
    if (version := headers.get("sec-websocket-version", "")) != "13":
        return 426, f"WebSocket version {version[:20]!r} is not spoken here; version 13 is"
    try:
        size = len(base64.b64decode(headers.get("sec-websocket-key", ""), validate=True))
    except ValueError:
        size = 0
    if size != KEY_BYTES:
        return 400, f"Sec-WebSocket-Key must be {KEY_BYTES} bytes in base64"
    return None


def handshake(request: HttpRequest, is_compressed: bool) -> list[tuple[str, str]]:
    """The headers of the answer that makes a connection a WebSocket."""
    accept = hashlib.sha1((request.headers["sec-websocket-key"] + GUID).encode()).digest()
    extensions = [("Sec-WebSocket-Extensions", GRANTED)] if is_compressed else []
    return [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", base64.b64encode(accept).decode()),
        *extensions,
    ]


def offers_compression(request: HttpRequest) -> bool:
    """Whether a client takes messages that are compressed one by one, with the usual window.

    >>> offer = {"sec-websocket-extensions": "x-webkit-deflate-frame, permessage-deflate; client_max_window_bits"}
    >>> offers_compression(HttpRequest("GET", "/ws", "", offer, b"", "1.1", True))
    True
    """
    for one in request.headers.get("sec-websocket-extensions", "").split(","):
        name, *parameters = (part.strip().lower() for part in one.split(";"))
        narrow = (part for part in parameters if part.startswith("server_max_window_bits"))
        if name == DEFLATE and not any(narrow):
            return True
    return False


class BoundedDeflate(PerMessageDeflate):
    """Unpacks what a client sends, and no more of it than a message may have: a few bytes can hold a gigabyte."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(client_no_context_takeover=True, server_no_context_takeover=True)
        self._enabled = True
        self._bytes_max = bytes_max

    def frame_inbound_payload_data(
        self, proto: FrameDecoder | FrameProtocol, data: bytes
    ) -> bytes | CloseReason:
        if not self._inbound_compressed or not self._inbound_is_compressible:
            return data
        assert self._decompressor is not None
        try:
            found: bytes = self._decompressor.decompress(bytes(data), self._bytes_max)
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        if self._decompressor.unconsumed_tail:
            raise RemoteProtocolError(TOO_LONG)
        return found


class WebSocketReader:
    """Reads a client's frames: answers pings and its close, and returns whole messages.

    >>> sent = []
    >>> reader = WebSocketReader(sent.append, bytes_max=100)
    >>> list(reader.feed(bytes((0x81, 0x80 | 11, 0, 0, 0, 0)) + b'{"close":1}'))
    [{'close': 1}]
    """

    def __init__(self, write: Callable[[bytes], None], bytes_max: int, is_compressed: bool = False) -> None:
        self._write = write
        self._bytes_max = bytes_max
        self._text = ""
        self.is_closed = False
        """The client has said goodbye."""
        extensions: list[Extension] = [BoundedDeflate(bytes_max)] if is_compressed else []
        self._connection = Connection(ConnectionType.SERVER, extensions)

    def feed(self, data: bytes) -> Iterator[ClientMessage]:
        """The messages that are complete now. Raises `RemoteProtocolError`, with the reason."""
        self._connection.receive_data(data)
        for event in self._connection.events():
            match event:
                case Ping() | CloseConnection():
                    self._write(self._connection.send(event.response()))
                    self.is_closed = self.is_closed or isinstance(event, CloseConnection)
                case TextMessage():
                    self._text += event.data
                    if len(self._text) > self._bytes_max:
                        raise RemoteProtocolError(TOO_LONG)
                    if event.message_finished:
                        text, self._text = self._text, ""
                        yield parse_message(text)
                case BytesMessage():
                    raise RemoteProtocolError("messages to the node are JSON, in text frames")
                case _:
                    pass


def parse_message(text: str) -> ClientMessage:
    """A client's message. Raises `RemoteProtocolError`."""
    try:
        return msgspec.json.decode(text, type=ClientMessage)
    except (msgspec.DecodeError, RecursionError):
        raise RemoteProtocolError(f"{text[:40]!r} is not an object in JSON") from None
