"""HTTP/1 requests and answers: bytes in, `HttpRequest` out, and the head of an answer as bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote_plus, unquote_to_bytes

import httptools
import msgspec

from reknit.protocol.tunnel.elements import PAYLOAD
from reknit.trust.identities import NOBODY, Identity

HEADERS_BYTES_MAX: Final = 32 << 10
UPGRADES: Final = "/ws"
"""Where a connection may become a WebSocket. Every other upgrade is ignored, and the request answered as it is."""
REASONS: Final = {
    101: "Switching Protocols", 200: "OK", 204: "No Content", 304: "Not Modified", 400: "Bad Request",
    401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
    413: "Content Too Large", 415: "Unsupported Media Type", 417: "Expectation Failed", 426: "Upgrade Required",
    429: "Too Many Requests", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip
TOO_LONG: Final = "the request is longer than http.request_bytes_max"
_PAIRS = re.compile(r"[&;]")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
_BAD_HOST = re.compile(r"[\s/@?#\\]")


class HttpRequest(msgspec.Struct, frozen=True):
    """A complete request. Header names are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    version: str
    keep_alive: bool
    identity: Identity = NOBODY
    """Who sent it."""
    scheme: str = "http"
    """How the client addressed the node: `https` with TLS, here or at a trusted proxy."""
    refusal: str = ""
    """Why its token proves nothing; empty if it does, or if there is none."""

    @property
    def token(self) -> str:
        """The bearer token in the header."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


Form = list[tuple[str, str]]


def parse_form(text: str | bytes) -> Form:
    """The pairs of a query or form in UTF-8, separated by `;` or `&`. Bytes that are not UTF-8 are replaced.

    A payload may have any bytes: those that are not UTF-8 are escaped in it, as surrogates.

    >>> parse_form("kn_to=/what/chat;kn_payload=hi+there&kn_payload=2")
    [('kn_to', '/what/chat'), ('kn_payload', 'hi there'), ('kn_payload', '2')]
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    form: Form = []
    for pair in _PAIRS.split(text):
        name, equals, value = pair.partition("=")
        if name or equals:
            known = _unescaped(name)
            form.append((known, _text(value) if known == PAYLOAD else _unescaped(value)))
    return form


def _text(quoted: str) -> str:
    return unquote_plus(quoted, errors="surrogateescape")


def _unescaped(quoted: str) -> str:
    text = _text(quoted)
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def first(form: Form, name: str, default: str = "") -> str:
    """The first value of a name, or the default."""
    return next((value for key, value in form if key == name), default)


def answer_head(
    status: int, headers: Sequence[tuple[str, str]], reason: str = "", keep_alive: bool = True
) -> bytes:
    """The status line and headers of an answer, up to and including the empty line."""
    lines = [f"HTTP/1.1 {status} {reason or REASONS.get(status, '')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if not keep_alive:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


class RequestRefused(Exception):
    """The request can't be read, or is over a limit: the status to answer with, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status, why)
        self.status = status
        self.why = why


class RequestReader:
    """Reads the requests of one connection, until the connection becomes a tunnel."""

    __slots__ = (
        "_body", "_bytes_max", "_fields", "_headers", "_headers_bytes", "_on_continue", "_on_request", "_parser",
        "_size", "_url",
    )  # fmt: skip

    def __init__(
        self, on_request: Callable[[HttpRequest], None], on_continue: Callable[[], None], bytes_max: int
    ) -> None:
        """`on_continue` is called when a client asks whether it may send its body."""
        self._on_request = on_request
        self._on_continue = on_continue
        self._bytes_max = bytes_max
        self._parser = httptools.HttpRequestParser(self)
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._fields: list[tuple[bytes, bytes]] = []
        """The headers as they came."""
        self._body: list[bytes] = []
        self._size = self._headers_bytes = 0

    def feed(self, data: bytes) -> None:
        """Parse more bytes. Raises `RequestRefused` and `httptools.HttpParserError`."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._is_upgraded:
                self._read_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, RequestRefused):
                raise error.__context__ from None
            raise

    @property
    def _is_upgraded(self) -> bool:
        """Whether the request turns the connection into something else, which `UPGRADES` deals with."""
        is_websocket = self._headers.get("upgrade", "").lower() == "websocket"
        return is_websocket and self._parser.get_method() == b"GET" and self._path == UPGRADES

    @property
    def _path(self) -> str:
        return unquote_to_bytes(self._url.partition(b"?")[0]).decode("utf-8", "replace")

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Read a request again as if it asked for no upgrade: the parser takes its body for the other protocol.

        Curl's `--http2` and Java's own client ask for `h2c` in each first request.
        """
        line = b"%b %b HTTP/%b" % (
            self._parser.get_method(), self._url, self._parser.get_http_version().encode(),
        )  # fmt: skip
        fields = [field for field in self._fields if field[0].lower() not in (b"upgrade", b"connection")]
        if not self._parser.should_keep_alive():
            fields.append((b"Connection", b"close"))
        head = [line, *(b"%b: %b" % field for field in fields), b"", rest]
        self._parser = httptools.HttpRequestParser(self)
        self._begin()
        self.feed(b"\r\n".join(head))

    # -- called by the parser

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        self._fields.append((name, value))
        self._headers[name.decode("latin-1").lower()] = value.decode("utf-8", "replace")

    def _count(self, size: int) -> None:
        self._headers_bytes += size
        if self._headers_bytes > HEADERS_BYTES_MAX:
            raise RequestRefused(431, f"the headers are too long: over {HEADERS_BYTES_MAX} bytes")

    def on_headers_complete(self) -> None:
        if self._parser.get_method() == b"CONNECT":
            raise RequestRefused(501, "this is no proxy: CONNECT is not served")
        self._check_host()
        length = self._headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._bytes_max:
            raise RequestRefused(413, TOO_LONG)
        expected = self._headers.get("expect", "")
        if expected and expected.lower() != "100-continue":
            raise RequestRefused(417, f"Expect: {expected[:40]} is not known here")
        if expected and not self._body:
            self._on_continue()

    def _check_host(self) -> None:
        """ "A server MUST respond with a 400 to any HTTP/1.1 request that lacks a Host header field and to any
        request message that contains more than one." A target in absolute form replaces it. (RFC 9112, 3.2)
        """
        hosts = sum(1 for name, _ in self._fields if name.lower() == b"host")
        if hosts > 1 or (not hosts and self._parser.get_http_version() != "1.0"):
            raise RequestRefused(400, f"the request has {hosts} Host headers; send one")
        if found := _ABSOLUTE.match(self._url):
            self._headers["host"] = found[1].decode("latin-1")
            self._url = b"/" + self._url[found.end() :].removeprefix(b"/")
        if _BAD_HOST.search(self._headers.get("host", "")):
            raise RequestRefused(400, "the Host header is not a name or an address")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._bytes_max:
            raise RequestRefused(413, TOO_LONG)
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade() and not self._is_upgraded:
            return  # it is read again
        request = HttpRequest(
            self._parser.get_method().decode("latin-1"),
            self._path,
            self._url.partition(b"?")[2].decode("latin-1"),
            self._headers,
            b"".join(self._body),
            self._parser.get_http_version(),
            self._parser.should_keep_alive() and not self._is_upgraded,
        )
        if not self._parser.should_upgrade():
            self._begin()
        self._on_request(request)
