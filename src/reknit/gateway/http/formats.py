"""How events look on a tunnel: the simple and the js format of mod_pubsub, Server-Sent Events, WebSocket.

A format turns a batch into bytes once; every tunnel of the same format and topics is sent those very bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from reknit.batch import Batch
from reknit.protocol.tunnel import simple_format as simple
from reknit.protocol.tunnel.elements import (
    CHECKPOINT,
    HASH,
    ID,
    LOCATION,
    PAYLOAD,
    ROUTED_FROM,
    TIME,
    fingerprint,
    is_hop_by_hop,
)
from reknit.protocol.tunnel.journal_place import JournalPlace

_json: Final = msgspec.json.Encoder()
_msgpack: Final = msgspec.msgpack.Encoder()


class Parcel(msgspec.Struct, frozen=True):
    """A batch on its way to a tunnel: which of its events, where it is in the journal, and by which route it came."""

    batch: Batch
    epoch: str
    position: int
    skip: int = 0
    location: str = ""
    is_population: bool = False
    """Sent because a route is new: such an event is no place to go on from."""

    def checkpoints(self) -> list[str]:
        """The place behind each event."""
        head = self.batch.head
        within = [f"{self.epoch}-{self.position}-{index}" for index in range(self.skip + 1, head.count)]
        return [*within, JournalPlace(self.epoch, self.position + head.length).text]


class Format(Protocol):
    """A way to write events to a tunnel."""

    name: str
    content_type: str
    is_chunked: bool
    """Whether HTTP frames it, in chunks."""

    def batch(self, parcel: Parcel) -> bytes:
        """A batch's events."""

    def status(self, elements: Mapping[str, Any], payload: str = "") -> bytes:
        """The first event on a tunnel, or the answer to a request."""

    def heartbeat(self, place: JournalPlace) -> bytes:
        """A sign of life on a quiet tunnel."""

    def closing(self, why: str) -> bytes:
        """The last that a tunnel is sent."""


def elements_of(parcel: Parcel) -> list[tuple[dict[str, str], bytes, str]]:
    """Each event's headers without hop-by-hop ones, its payload and its `kn_event_hash`."""
    batch = parcel.batch
    columns = batch.columns()
    headers: Sequence[Mapping[str, str] | None] = columns.get("headers") or [None] * batch.count
    times: Sequence[int] = columns.get("time") or [batch.time_us] * batch.count
    source = batch.source.hex()
    found: list[tuple[dict[str, str], bytes, str]] = []
    payloads = batch.payloads()
    for index in range(parcel.skip, batch.count):
        elements = {ID: f"{source}:{batch.first + index}", TIME: str(times[index] // 1_000_000)}
        for name, value in (headers[index] or {}).items():
            if not is_hop_by_hop(name) and name not in (PAYLOAD, HASH):
                elements[name] = str(value)
        payload = payloads[index]
        hashed = {name: value.encode() for name, value in elements.items()}
        hashed[PAYLOAD] = payload
        found.append((elements, payload, fingerprint(hashed)))
    return found


class _Kn:
    """What the two formats of mod_pubsub have in common: which elements an event has on a tunnel."""

    is_chunked = True

    def batch(self, parcel: Parcel) -> bytes:
        places = parcel.checkpoints()
        out: list[bytes] = []
        for place, (elements, payload, event_hash) in zip(places, elements_of(parcel), strict=True):
            elements[HASH] = event_hash
            if parcel.location:
                elements[LOCATION] = parcel.location
            elements[ROUTED_FROM] = f"/{parcel.batch.topic}"
            if not parcel.is_population:
                elements[CHECKPOINT] = place
            out.append(self.event(elements, payload))
        return b"".join(out)

    def event(self, elements: Mapping[str, str], payload: bytes) -> bytes:
        raise NotImplementedError

    def status(self, elements: Mapping[str, Any], payload: str = "") -> bytes:
        return self.event(elements, payload.encode())

    def closing(self, why: str) -> bytes:
        return self.event({"status": "503 Closing", LOCATION: ""}, why.encode())


class Simple(_Kn):
    """`kn_response_format=simple`."""

    name = "simple"
    content_type = "text/plain; charset=utf-8"

    def event(self, elements: Mapping[str, str], payload: bytes) -> bytes:
        return simple.encode(elements.items(), payload)

    def heartbeat(self, place: JournalPlace) -> bytes:
        return b"\n"


class Js(_Kn):
    """`kn_response_format=js`: a page in a frame, which calls its parent."""

    name = "js"
    content_type = "text/html; charset=utf-8"

    def event(self, elements: Mapping[str, str], payload: bytes) -> bytes:
        rows = [*elements.items(), (PAYLOAD, payload.decode("utf-8", "replace"))]
        listed = ",".join(f"{{name:{_script(name)},value:{_script(value)}}}" for name, value in rows)
        call = f"parent.kn_sendCallback({{elements:[{listed}]}}, window)"
        return f"<script>{call}</script>\n".encode()

    def heartbeat(self, place: JournalPlace) -> bytes:
        return b"\n"


def _script(text: str) -> str:
    """A text inside a script element: nothing in it can end the element or the line."""
    quoted = json.dumps(text)
    return quoted.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def envelope(parcel: Parcel) -> list[dict[str, Any]]:
    """Each event as today's clients get it."""
    batch = parcel.batch
    columns = batch.columns()
    headers: Sequence[Mapping[str, str] | None] | None = columns.get("headers")
    times: Sequence[int] | None = columns.get("time")
    source, payloads = batch.source.hex(), batch.payloads()
    rows: list[dict[str, Any]] = []
    for index in range(parcel.skip, batch.count):
        row: dict[str, Any] = {
            "topic": batch.topic,
            "source": source,
            "seq": batch.first + index,
            "time_us": times[index] if times else batch.time_us,
        }
        if headers and headers[index]:
            row["headers"] = headers[index]
        payload = payloads[index]
        try:
            row["payload"] = payload.decode()
        except UnicodeDecodeError:
            row["payload_base64"] = base64.b64encode(payload).decode()
        rows.append(row)
    return rows


class Sse:
    """Server-Sent Events: `id` is the checkpoint."""

    name = "sse"
    content_type = "text/event-stream; charset=utf-8"
    is_chunked = True

    def batch(self, parcel: Parcel) -> bytes:
        rows = zip(parcel.checkpoints(), envelope(parcel), strict=True)
        return b"".join([b"id: %b\ndata: %b\n\n" % (at.encode(), _json.encode(row)) for at, row in rows])

    def status(self, elements: Mapping[str, Any], payload: str = "") -> bytes:
        """The stream's first event, which also sets the wait before the next connection and the place so far."""
        rest = {name: value for name, value in elements.items() if name not in ("retry", "checkpoint")}
        if payload:
            rest["why"] = payload
        data = _json.encode(rest).decode()
        return f"retry: {elements['retry']}\nid: {elements['checkpoint']}\nevent: opened\ndata: {data}\n\n".encode()

    def heartbeat(self, place: JournalPlace) -> bytes:
        """Moves the browser's place on without an event, so that a quiet topic's does not grow too old."""
        return b"id: %b\n\n" % place.text.encode()

    def closing(self, why: str) -> bytes:
        return b"event: closing\ndata: %b\n\n" % _json.encode({"why": why})


def ws_frame(opcode: int, data: bytes) -> bytes:
    """A whole, unmasked frame, as a server sends it.

    >>> ws_frame(1, b"hi")
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


TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
GOING_AWAY = 1001


class _Ws:
    content_type = ""
    is_chunked = False

    def status(self, elements: Mapping[str, Any], payload: str = "") -> bytes:
        row = {"type": "opened", **elements, **({"why": payload} if payload else {})}
        return ws_frame(TEXT, _json.encode(row))

    def heartbeat(self, place: JournalPlace) -> bytes:
        return ws_frame(TEXT, _json.encode({"type": "heartbeat", "checkpoint": place.text}))

    def closing(self, why: str) -> bytes:
        words = why.encode()[:120].decode("utf-8", "ignore").encode()
        return ws_frame(CLOSE, GOING_AWAY.to_bytes(2, "big") + words)


class WsJson(_Ws):
    """WebSocket with an event a text message."""

    name = "ws-json"

    def batch(self, parcel: Parcel) -> bytes:
        rows = zip(parcel.checkpoints(), envelope(parcel), strict=True)
        return b"".join(
            [ws_frame(TEXT, _json.encode({"type": "event", **row, "checkpoint": at})) for at, row in rows]
        )


class WsBinary(_Ws):
    """WebSocket with a batch a binary message: msgpack `[checkpoint, events to skip, the batch's own bytes]`."""

    name = "ws-binary"

    def batch(self, parcel: Parcel) -> bytes:
        place = JournalPlace(parcel.epoch, parcel.position + parcel.batch.head.length)
        return ws_frame(BINARY, _msgpack.encode((place.text, parcel.skip, bytes(parcel.batch.data))))


FORMATS: Final[dict[str, Format]] = {one.name: one for one in (Simple(), Js(), Sse(), WsJson(), WsBinary())}
