"""How events look on a tunnel: the simple and js formats of mod_pubsub, Server-Sent Events.

A format encodes a batch once. All tunnels with the same format and topics are sent the same bytes.
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


class TunnelBatch(msgspec.Struct, frozen=True):
    """A batch to write to a tunnel: without its first `skip` events, its journal position, and its route."""

    batch: Batch
    epoch: str
    position: int
    skip: int = 0
    location: str = ""
    is_population: bool = False
    """Sent because a route is new. A client can't resume from such an event."""

    def checkpoints(self) -> list[str]:
        """The place after each event."""
        head = self.batch.head
        within = [f"{self.epoch}-{self.position}-{index}" for index in range(self.skip + 1, head.count)]
        return [*within, JournalPlace(self.epoch, self.position + head.length).text]


class TunnelFormat(Protocol):
    """A way to write events to a tunnel."""

    name: str
    content_type: str
    is_chunked: bool
    """Whether HTTP's chunked coding frames it."""

    def batch(self, item: TunnelBatch) -> bytes:
        """The events of a batch."""

    def status(self, elements: Mapping[str, Any], payload: str = "") -> bytes:
        """The first event on a tunnel, or the answer to a request."""

    def heartbeat(self, place: JournalPlace) -> bytes:
        """Sent on a tunnel that has been quiet for a while."""

    def closing(self, why: str) -> bytes:
        """The last bytes of a tunnel, with the reason why it closes."""

    def pack(self, data: bytes) -> bytes:
        """Events as they are sent: compressed, perhaps."""


def elements_of(item: TunnelBatch) -> list[tuple[dict[str, str], bytes, str]]:
    """Each event's headers without hop-by-hop ones, its payload and its `kn_event_hash`."""
    batch = item.batch
    columns = batch.columns()
    headers: Sequence[Mapping[str, str] | None] = columns.get("headers") or [None] * batch.count
    times: Sequence[int] = columns.get("time") or [batch.time_us] * batch.count
    source = batch.source.hex()
    found: list[tuple[dict[str, str], bytes, str]] = []
    payloads = batch.payloads()
    for index in range(item.skip, batch.count):
        elements = {ID: f"{source}:{batch.first + index}", TIME: str(times[index] // 1_000_000)}
        for name, value in (headers[index] or {}).items():
            if not is_hop_by_hop(name) and name not in (PAYLOAD, HASH):
                elements[name] = str(value)
        payload = payloads[index]
        hashed = {name: value.encode() for name, value in elements.items()}
        hashed[PAYLOAD] = payload
        found.append((elements, payload, fingerprint(hashed)))
    return found


class _KnFormat:
    """The common part of both formats of mod_pubsub: the elements of an event on a tunnel."""

    is_chunked = True

    def batch(self, item: TunnelBatch) -> bytes:
        places = item.checkpoints()
        out: list[bytes] = []
        for place, (elements, payload, event_hash) in zip(places, elements_of(item), strict=True):
            elements[HASH] = event_hash
            if item.location:
                elements[LOCATION] = item.location
            elements[ROUTED_FROM] = f"/{item.batch.topic}"
            if not item.is_population:
                elements[CHECKPOINT] = place
            out.append(self.event(elements, payload))
        return b"".join(out)

    def event(self, elements: Mapping[str, str], payload: bytes) -> bytes:
        raise NotImplementedError

    def status(self, elements: Mapping[str, Any], payload: str = "") -> bytes:
        return self.event(elements, payload.encode())

    def closing(self, why: str) -> bytes:
        return self.event({"status": "503 Closing", LOCATION: ""}, why.encode())

    def pack(self, data: bytes) -> bytes:
        return data


class SimpleFormat(_KnFormat):
    """`kn_response_format=simple`."""

    name = "simple"
    content_type = "text/plain; charset=utf-8"

    def event(self, elements: Mapping[str, str], payload: bytes) -> bytes:
        return simple.encode(elements.items(), payload)

    def heartbeat(self, place: JournalPlace) -> bytes:
        return b"\n"


class JsFormat(_KnFormat):
    """`kn_response_format=js`: a page in a frame that calls its parent for each event."""

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
    """A string literal for a script element. It can't end the element or the line."""
    quoted = json.dumps(text)
    return quoted.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def envelope(item: TunnelBatch) -> list[dict[str, Any]]:
    """Each event as clients of SSE and WebSocket get it."""
    batch = item.batch
    columns = batch.columns()
    headers: Sequence[Mapping[str, str] | None] | None = columns.get("headers")
    times: Sequence[int] | None = columns.get("time")
    source, payloads = batch.source.hex(), batch.payloads()
    rows: list[dict[str, Any]] = []
    for index in range(item.skip, batch.count):
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


class SseFormat:
    """Server-Sent Events: `id` is the checkpoint."""

    name = "sse"
    content_type = "text/event-stream; charset=utf-8"
    is_chunked = True

    def batch(self, item: TunnelBatch) -> bytes:
        rows = zip(item.checkpoints(), envelope(item), strict=True)
        return b"".join([b"id: %b\ndata: %b\n\n" % (at.encode(), _json.encode(row)) for at, row in rows])

    def status(self, elements: Mapping[str, Any], payload: str = "") -> bytes:
        """The first event. It also sets the delay before a reconnect, and the place to resume from."""
        rest = {name: value for name, value in elements.items() if name not in ("retry", "checkpoint")}
        if payload:
            rest["why"] = payload
        data = _json.encode(rest).decode()
        return f"retry: {elements['retry']}\nid: {elements['checkpoint']}\nevent: opened\ndata: {data}\n\n".encode()

    def heartbeat(self, place: JournalPlace) -> bytes:
        """Says that the stream lives, as an event that a page can see; EventSource hides comments.

        It also advances the browser's place, so that retention does not overtake it on a quiet topic.
        """
        return b"id: %b\nevent: heartbeat\ndata: {}\n\n" % place.text.encode()

    def closing(self, why: str) -> bytes:
        return b"event: closing\ndata: %b\n\n" % _json.encode({"why": why})

    def pack(self, data: bytes) -> bytes:
        return data


FORMATS: Final[dict[str, TunnelFormat]] = {one.name: one for one in (SimpleFormat(), JsFormat(), SseFormat())}
"""The formats of answers. Those of WebSocket are in `websocket_formats.py`."""
