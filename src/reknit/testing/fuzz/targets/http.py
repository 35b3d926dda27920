"""HTTP: the kn pages, Server-Sent Events, WebSocket, CloudEvents and metrics, with changed parameters and bodies."""

from __future__ import annotations

import zlib
from functools import cached_property
from random import Random
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from reknit.testing.fabric.programs.attacks import http_requests, mutate_bytes
from reknit.testing.fuzz.capture import http_conversations
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.mutations import mutate_order, mutate_text, mutate_value
from reknit.testing.fuzz.targets.target import PortTarget, conversation

EVENT: Final = {
    "specversion": "1.0",
    "id": "0190f7c3-6d2c-7abc-8def-0123456789ab",
    "source": "up://evil/1000/1/8001",
    "type": "up-pub.v1",
    "ttl": 1000,
    "priority": "CS1",
    "data": {"value": 1},
}
PATHS: Final = (
    "/",
    "/metrics",
    "/kn",
    "/kn/",
    "/kn/evil/x",
    "/kn?do_method=whoami",
    "/kn/src/when/topic?do_method=help",
)
METHODS: Final = ("GET", "POST", "OPTIONS", "HEAD", "PUT", "PRI", "get", "")
HEADERS: Final = (
    b"Last-Event-ID: 0-1-2",
    b"Content-Length: -1",
    b"Content-Length: 18446744073709551616",
    b"Transfer-Encoding: chunked",
    b"Expect: 100-continue",
    b"Origin: http://evil",
    b"Authorization: Bearer \xff",
    b"Upgrade: websocket",
    b"Connection: Upgrade, close",
    b"Sec-WebSocket-Key: x",
    b"Sec-WebSocket-Version: 99",
    b"Sec-WebSocket-Extensions: permessage-deflate",
    b"Content-Type: application/cloudevents-batch+json",
    b"Content-Type: multipart/form-data; boundary=x",
)
JSON_NUMBERS: Final = (
    b"0", b"1", b"2", b"7", b"-1", b"65536", b"1.5", b"true", b"null", b"9007199254740992", b"9" * 30,
    b"9" * 400, b"1e300",
)  # fmt: skip
UPGRADE: Final = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: ZXZpbGV2aWxldmlsZXZpbA==\r\n"
)
PARAMETERS: Final = (
    ("do_method", ("route", "notify", "whoami", "batch", "noop", "help", "blank", "lib")),
    ("kn_from", ("/evil/x", "/evil/x/kn_routes", "/plant/a", "/kn_journal")),
    ("kn_to", ("/evil/y", "/evil/y/kn_subtopics", "http://127.0.0.1:1/kn/evil", "javascript:x")),
    ("kn_payload", ("hi", "\x00", "é")),
    ("kn_id", ("evil", "x" * 300)),
    ("kn_uri", ("/evil/x/kn_routes/1",)),
    ("kn_response_format", ("simple", "js", "html")),
    ("kn_response_flush", ("1", "x")),
    ("kn_expires", ("+5", "0", "infinity", "-1", "1e999", "nan")),
    ("kn_status_from", ("/evil/x",)),
    ("do_max_age", ("60", "infinity", "nan", "-1", "1e400")),
    ("do_max_n", ("3", "-1", "99999999999999999999")),
    ("do_since_checkpoint", ("0-1-2", "x", "")),
    ("topic", ("evil/**", "evil/x", "//", "*/*")),
    ("from", ("0-1-2", "-", "f" * 40)),
    ("format", ("json", "binary", "x")),
    ("token", ("x",)),
)


class HttpTarget(PortTarget):
    """Browsers and other clients that send what they should not."""

    name = port = "http"

    @cached_property
    def requests(self) -> list[bytes]:
        return [part for one in http_conversations() for part in one.parts]

    def make(self, rng: Random) -> tuple[Step, ...]:
        parts = [self._request(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        parts = mutate_order(rng, parts, self.requests, mutate_request) if rng.random() < 0.8 else parts
        if b"websocket" in b"".join(parts).lower() or rng.random() < 0.05:
            parts += [_frame(rng) for _ in range(rng.randint(1, 4))]
        return conversation(rng, [(part, True) for part in parts])

    def _request(self, rng: Random) -> bytes:
        match rng.randrange(6):
            case 0:
                return rng.choice(http_requests(rng))
            case 1:
                return rng.choice(self.requests)
            case 2:
                return _cloudevents(rng)
            case 3:
                return b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % rng.choice(PATHS).encode()
            case _:
                return _asked(rng)


def _asked(rng: Random) -> bytes:
    """A request with some of the parameters that the pages know."""
    chosen = rng.sample(PARAMETERS, rng.randint(1, 6))
    values = ((name, rng.choice(known)) for name, known in chosen)
    pairs = [
        f"{name}={_quoted(rng, mutate_text(rng, value) if rng.random() < 0.3 else value)}"
        for name, value in values
    ]
    form = rng.choice("&;").join(pairs).encode("utf-8", "surrogatepass")
    if rng.random() < 0.4:
        return b"POST /kn HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(form), form)
    path = rng.choice((b"/kn", b"/kn", b"/sse", b"/ws", b"/kn/evil/x"))
    return b"GET %b?%b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (
        path,
        form,
        UPGRADE if path == b"/ws" else b"",
    )


def _quoted(rng: Random, value: str) -> str:
    if rng.random() < 0.05:
        return rng.choice(("%", "%zz", "%ff%fe", "%00", "+%"))
    return quote(value.encode("utf-8", "surrogatepass"))


def _cloudevents(rng: Random) -> bytes:
    event: Any = mutate_value(rng, dict(EVENT)) if rng.random() < 0.8 else EVENT
    is_batch = rng.random() < 0.4
    try:
        body = msgspec.json.encode([event] * rng.choice((1, 2, 50)) if is_batch else event)
    except (ValueError, TypeError, UnicodeEncodeError):
        body = b"[[[["
    if rng.random() < 0.1:
        body = mutate_bytes(rng, body)
    kind = b"application/cloudevents%b+json" % (b"-batch" if is_batch else b"")
    head = b"POST /cloudevents HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (kind, len(body)) + body


def mutate_request(rng: Random, request: bytes) -> bytes:
    """Another method, header, length or coding, or other bytes."""
    head, gap, body = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    match rng.randrange(8):
        case 0:
            lines[0] = rng.choice(METHODS).encode() + b" " + lines[0].partition(b" ")[2]
        case 1 | 2:
            lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(HEADERS))
        case 3:
            del lines[rng.randrange(len(lines))]
        case 4:
            lines[0] = lines[0].replace(b"HTTP/1.1", rng.choice((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"")))
        case 5:
            sizes = (b"%x" % len(body), b"ffffffffffffffff", b"-1", b"0", b"x")
            return (
                _head(lines, b"Transfer-Encoding: chunked")
                + rng.choice(sizes)
                + b"\r\n"
                + body
                + b"\r\n0\r\n\r\n"
            )
        case 6:
            lines[0] = unquote_to_bytes(lines[0])
        case _:
            return mutate_bytes(rng, request or b"x")
    return b"\r\n".join(lines) + gap + body


def _head(lines: list[bytes], line: bytes) -> bytes:
    kept = [one for one in lines if not one.lower().startswith(b"content-length")]
    return b"\r\n".join([*kept, line, b"", b""])


def _command(rng: Random) -> bytes:
    """What a page says on a WebSocket: it opens and closes channels, and gives credit."""
    number, size = rng.choice(JSON_NUMBERS), rng.choice(JSON_NUMBERS)
    topic = rng.choice((b"evil/**", b"**", b"canary/*", b"//", b"evil/x"))
    return rng.choice((
        b'{"open": "%b", "channel": %b, "credit": %b}' % (topic, number, size),
        b'{"open": "%b", "channel": %b, "from": "%b"}' % (topic, number, rng.choice((b"0-1-2", b"x", b""))),
        b'{"open": "%b", "channel": 1, "credit": %b}' % (topic, size),
        b'{"close": %b}' % number,
        b'{"taken": %b, "channel": %b}' % (size, number),
        b'{"taken": %b}' % size,
        b"[" * 2_000,
        b'"open"',
    ))  # fmt: skip


def _frame(rng: Random) -> bytes:
    """A WebSocket frame: right, reserved, unmasked, too long or cut."""
    code = rng.choice((0, 1, 2, 8, 9, 10, rng.randrange(16))) | rng.choice((0x80, 0x80, 0, 0x70, 0xF0))
    body = rng.choice((b"", b"hi", b"\xff\xfe", rng.randbytes(rng.randrange(200)), b"\x03\xe8bye", b"{}"))
    if rng.random() < 0.5:
        code, body = rng.choice((0x81, 0x81, 0x81, 0x01, 0xC1)), _command(rng)
    if code & 0x40 or rng.random() < 0.05:
        packed = zlib.compressobj(wbits=-15)
        body = (packed.compress(body * rng.choice((1, 1, 9_000))) + packed.flush(zlib.Z_SYNC_FLUSH))[:-4]
    mask = rng.randbytes(4) if rng.random() < 0.9 else b""
    right = len(body) if len(body) < 126 else 126 if len(body) < 65_536 else 127
    size = rng.choice((right, right, right, right, right, 127, rng.randrange(128)))
    length = bytes([(0x80 if mask else 0) | size])
    if size == 126:
        length += rng.choice((*[min(len(body), 65_535)] * 4, 0, 65_535)).to_bytes(2, "big")
    elif size == 127:
        length += rng.choice((*[len(body)] * 4, 1 << 63, (1 << 64) - 1)).to_bytes(8, "big")
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(body)) if mask else body
    return bytes([code]) + length + mask + masked
