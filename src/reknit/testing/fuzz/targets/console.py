"""The console's JSON: figures and orders with changed parameters, bodies and headers, some through a proxy."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final
from urllib.parse import quote

import msgspec

from reknit.console.api import ROOT
from reknit.console.resources import RESOURCES, Resource
from reknit.gateway.http.forwarded import SIGNATURE
from reknit.testing.fabric.programs.attacks import mutate_bytes
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.mutations import NUMBERS, mutate_order, mutate_text, mutate_value
from reknit.testing.fuzz.targets.http import mutate_request
from reknit.testing.fuzz.targets.target import PortTarget, conversation

SOURCE: Final = "5e" * 16
TEXTS: Final[dict[str, Sequence[str]]] = {
    "topic": ("evil/x", "evil/**", "canary/beat", "**", "//", "reknit/dead-letters"),
    "id": (f"{SOURCE}:1", f"{SOURCE}:0", f"{SOURCE}:999999999999999999", "7", f"{SOURCE}:", ":1"),
    "subscriber": ("canary", "evil", "anycast"),
    "code": ("UNAVAILABLE", "14", "NONSENSE"),
}
"""By parameter: what it may be, beside its default and choices."""
NUMBER_TEXTS: Final = (
    "0",
    "1",
    "7",
    "100",
    "1000",
    "1001",
    "-1",
    "1e3",
    "0" * 30 + "7",
    "0" * 20 + "9" * 5_000,
    "²",
)
ORDER: Final = {
    "wanted": {"reason": "", "topic": "evil/**", "code": "", "subscriber": "", "since_us": 0, "until_us": 0},
    "after": 0,
    "stop": (1 << 63) - 1,
    "limit": 10,
    "is_dry": False,
}
OTHERS: Final = (
    "/", "/healthz", "/readyz", "/ticket", "/console/", "/console/main.js", "/console/../../etc/passwd",
    "/console/%00", f"{ROOT}openapi.json", ROOT, "/reknit.js",
)  # fmt: skip
HOPS: Final = (
    "6.6.6.6", "127.0.0.1, 6.6.6.6", "6.6.6.6:80", "[::1]:7", "::1%x", "fe80::1%" + "x" * 3_000, "unknown", "", ",,,",
    "127.0.0.1, " * 2_000,
)  # fmt: skip
HOSTS: Final = (
    "localhost",
    "evil.example",
    "[::1",
    "a b",
    "localhost, localhost",
    "localhost\t",
    "[::1]:x",
    "",
)
SCHEMES: Final = ("https", "http", "javascript", "")
ADDRESSES: Final = {0x11: 12, 0x12: 12, 0x21: 36, 0x31: 216, 0x00: 0, 0xFF: 5}
"""By family and protocol of a proxy's header: how long its addresses are."""


class ConsoleTarget(PortTarget):
    """Pages, programs and proxies that send what they should not."""

    name = "console"
    port = "http"

    def make(self, rng: Random) -> tuple[Step, ...]:
        parts = [_request(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        if rng.random() < 0.5:
            parts = mutate_order(rng, parts, [_request(rng) for _ in range(3)], mutate_request)
        if rng.random() < 0.3:
            parts.insert(0, _proxy_header(rng))
        return conversation(rng, [(part, True) for part in parts])


def _request(rng: Random) -> bytes:
    if rng.random() < 0.1:
        method = rng.choice(("GET", "HEAD", "POST"))
        accept = rng.choice((b"", b"Accept: text/html\r\n", b'If-None-Match: "x"\r\n'))
        return b"%b %b HTTP/1.1\r\nHost: localhost\r\n%b%b\r\n" % (
            method.encode(), rng.choice(OTHERS).encode(), accept, _forwarded(rng),
        )  # fmt: skip
    resource = rng.choice(RESOURCES)
    method = resource.method if rng.random() < 0.95 else rng.choice(("GET", "POST", "DELETE"))
    body = b"" if resource.body is None else _order(rng)
    kind = rng.choice(("application/json", "application/json", "application/json; charset=x", "text/plain"))
    head = f"{method} {ROOT}{resource.path}{_query(rng, resource)} HTTP/1.1\r\nHost: localhost\r\n"
    headers = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
    return (head + headers).encode() + _forwarded(rng) + b"\r\n" + body


def _query(rng: Random, resource: Resource) -> str:
    known = list(resource.parameters)
    chosen = rng.sample(known, rng.randint(0, len(known)))
    pairs = [(one.name, _value(rng, one)) for one in chosen]
    if pairs and rng.random() < 0.1:
        pairs.append(rng.choice((pairs[0], ("evil", "1"), (mutate_text(rng, pairs[0][0]), "1"))))
    quoted = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in pairs)
    return f"?{quoted}" if quoted or rng.random() < 0.1 else ""


def _value(rng: Random, parameter: Any) -> str:
    if isinstance(parameter.default, int):
        text = rng.choice(NUMBER_TEXTS) if rng.random() < 0.8 else str(rng.choice(NUMBERS))
    else:
        known = (*TEXTS.get(parameter.name, ("evil", "")), parameter.default, *parameter.choices)
        text = rng.choice(known)
    return mutate_text(rng, text) if rng.random() < 0.2 else text


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"))


def _order(rng: Random) -> bytes:
    """An order about dead letters, with numbers that JSON has and others have not."""
    order = mutate_value(rng, dict(ORDER)) if rng.random() < 0.8 else ORDER
    try:
        body = msgspec.json.encode(order)
    except (ValueError, TypeError, UnicodeEncodeError):
        body = b'{"wanted": {"topic": "\\ud800"}}'
    if rng.random() < 0.1:
        body = body.replace(b":0", b":" + rng.choice((b"9" * 30, b"9" * 5_000, b"1e400", b"-0", b"null")), 1)
    return mutate_bytes(rng, body) if rng.random() < 0.1 else body


# -- proxies


def _forwarded(rng: Random) -> bytes:
    """What a proxy adds to a request."""
    if rng.random() < 0.6:
        return b""
    lines = [
        f"X-Forwarded-For: {rng.choice(HOPS)}",
        f"X-Forwarded-Host: {rng.choice(HOSTS)}",
        f"X-Forwarded-Proto: {rng.choice(SCHEMES)}",
        f"Origin: https://{rng.choice(HOSTS)}",
        "Authorization: Bearer x",
    ]
    return "".join(f"{line}\r\n" for line in rng.sample(lines, rng.randint(1, 3))).encode()


def _proxy_header(rng: Random) -> bytes:
    """The PROXY protocol's header, mostly of version 2 and whole."""
    if rng.random() < 0.1:
        return rng.choice((b"PROXY TCP4 6.6.6.6 127.0.0.1 1 2\r\n", SIGNATURE, SIGNATURE[:5], SIGNATURE * 2))
    family = rng.choice(list(ADDRESSES))
    size = ADDRESSES[family]
    told = size if rng.random() < 0.8 else rng.choice((0, size - 1, size + 9, 4_096, 4_097, 65_535)) & 0xFFFF
    body = rng.randbytes(told if rng.random() < 0.9 else size)
    version = rng.choice((0x20, 0x21, 0x21, 0x21, 0x22, 0x11, 0xFF))
    return SIGNATURE + bytes((version, family)) + told.to_bytes(2, "big") + body
