"""A plain HTTP client for tests, which shows the bytes on the wire."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from reknit.config import (
    Config,
    HttpSettings,
    JournalSettings,
    NodeSettings,
    RetentionSettings,
    SecuritySettings,
)
from reknit.gateway.http.server import HttpServer
from reknit.node.node import Node
from reknit.protocol.tunnel.simple_format import SimpleDecoder
from tests.client.node_thread import serving

Event = dict[str, bytes]
WAIT_S = 150.0
WEBSOCKET = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
"""The headers of a request for a WebSocket."""


def config(
    data_dir: Path | None = None,
    retention: RetentionSettings | None = None,
    segment_bytes: int = 1 << 20,
    port: int = 0,
    tokens_file: str = "",
    allow: tuple[str, ...] = (),
    **http: Any,
) -> Config:
    """The config of a node with HTTP on a free port. With a directory, its journal is on disk."""
    journal = JournalSettings(kind="disk" if data_dir else "memory", segment_bytes=segment_bytes, sync=False)
    node = NodeSettings(name="test", listen=("tcp://127.0.0.1:0",), data_dir=data_dir or Path("none"))
    settings = HttpSettings(listen=f"127.0.0.1:{port}", **http)
    security = SecuritySettings(tokens_file=tokens_file, allow=allow)
    kept = retention or RetentionSettings()
    return Config(node=node, journal=journal, http=settings, security=security, retention=kept)


@contextmanager
def web(settings: Config | None = None) -> Iterator[Web]:
    """A running node that serves HTTP."""
    with serving(settings or config()) as node:
        yield Web(node)


class Answer:
    """A complete answer."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().split("\r\n")
        _, code, self.reason = first.split(" ", 2)
        self.code = int(code)
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        self.body = body

    @property
    def events(self) -> list[Event]:
        return SimpleDecoder().feed(self.body)

    @property
    def status(self) -> str:
        return self.events[0]["status"].decode()


class Stream:
    """An answer that stays open."""

    def __init__(self, sock: socket.socket, request: bytes) -> None:
        self.socket = sock
        self.socket.settimeout(WAIT_S)
        self.socket.sendall(request)
        self.raw = b""
        self.is_ended = False
        self._fill(lambda: b"\r\n\r\n" in self.raw)
        head, _, self.raw = self.raw.partition(b"\r\n\r\n")
        self.head = Answer(head, b"")
        self.body = bytearray()
        self._decoder = SimpleDecoder()
        self._decoded = 0
        self._events: list[Event] = []
        self._is_chunked = self.head.headers.get("transfer-encoding") == "chunked"

    def _fill(self, is_enough: Any) -> None:
        while not is_enough() and not self.is_ended:
            data = self.socket.recv(65536)
            self.is_ended = not data
            self.raw += data

    def _advance(self) -> None:
        """Read more of the body."""
        if not self._is_chunked:
            self._fill(lambda: self.raw)
            self.body += self.raw
            self.raw = b""
            return
        self._fill(lambda: b"\r\n" in self.raw)
        size = self.raw.partition(b"\r\n")[0]
        if not size:
            return
        length = int(size, 16)
        self._fill(lambda: len(self.raw) >= len(size) + length + 4)
        if len(self.raw) >= len(size) + length + 4:
            self.body += self.raw[len(size) + 2 : len(size) + 2 + length]
            self.raw = self.raw[len(size) + length + 4 :]
            self.is_ended = self.is_ended or not length

    def until(self, text: bytes) -> bytes:
        """The body, once it contains this."""
        while text not in self.body:
            assert not self.is_ended, f"ended without {text!r}: {self.body!r}"
            self._advance()
        return bytes(self.body)

    def rest(self) -> bytes:
        """The body, once it has ended."""
        while not self.is_ended:
            self._advance()
        return bytes(self.body)

    def events(self, count: int) -> list[Event]:
        """So many events of the simple format, including the status."""
        while True:
            self._events += self._decoder.feed(bytes(self.body[self._decoded :]))
            self._decoded = len(self.body)
            if len(self._events) >= count:
                return list(self._events)
            assert not self.is_ended, f"ended after {len(self._events)} events"
            self._advance()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def http_of(node: Node) -> HttpServer:
    """The node's HTTP gateway."""
    door = node.doors["http"]
    assert isinstance(door, HttpServer)
    return door


class Web:
    """The pages of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.http = http_of(node)
        self.url = self.http.url
        self.port = urlsplit(self.url).port or 0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S)

    def request(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
        """A request on its own connection."""
        with self.connect() as sock:
            sock.sendall(self._request(path, method, body, headers))
            data = b""
            while piece := sock.recv(65536):
                data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        return Answer(head, rest)

    def _request(self, path: str, method: str, body: bytes, headers: dict[str, str]) -> bytes:
        fields = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", "Content-Length": str(len(body))}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        return "\r\n".join(lines).encode() + body

    def post(self, to: str = "/what/chat", payload: str = "", /, **elements: str) -> Answer:
        """Notify."""
        form = {"kn_to": to, "kn_payload": payload, "kn_response_format": "simple", **elements}
        return self.request("/kn", "POST", urlencode(form).encode())

    def get(self, **parameters: str) -> Answer:
        return self.request("/kn?" + urlencode({"kn_response_format": "simple", **parameters}))

    def stream(self, path: str, **headers: str) -> Stream:
        return Stream(self.connect(), self._request(path, "GET", b"", headers))

    def tunnel(self, topic: str = "/what/chat", **parameters: str) -> Stream:
        form = {"kn_from": topic, "kn_response_format": "simple", **parameters}
        return self.stream("/kn?" + urlencode(form))


def payloads(events: list[Event]) -> list[str]:
    return [event["kn_payload"].decode() for event in events]
