"""The port for Prometheus: requests with changed lines, headers and bodies, to a server with a thread for each."""

from __future__ import annotations

from random import Random
from typing import Final

from reknit.testing.fabric.programs.attacks import mutate_bytes
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.mutations import mutate_order
from reknit.testing.fuzz.targets.http import HEADERS, METHODS
from reknit.testing.fuzz.targets.target import PortTarget, conversation

PATHS: Final = (
    "/metrics",
    "/",
    "/metrics?name[]=reknit_journal_events",
    "/metrics?name[]=reknit_published_total&name[]=%00",
    "/metrics?name[]=",
    "/favicon.ico",
    "//metrics",
    "/%ff",
    "http://localhost/metrics",
    "*",
)
ACCEPT: Final = (
    b"Accept: text/plain",
    b"Accept: application/openmetrics-text; version=1.0.0",
    b"Accept: application/openmetrics-text; version=99; escaping=values",
    b"Accept: application/openmetrics-text; escaping=",
    b"Accept: ;;;,,,",
    b"Accept-Encoding: gzip",
    b"Accept-Encoding: gzip;q=x",
    b"Authorization: Bearer x",
    b"Authorization: Bearer",
    b"Authorization: Basic eDp5",
)


class MetricsTarget(PortTarget):
    """Scrapers that send what they should not."""

    name = port = "metrics"

    def make(self, rng: Random) -> tuple[Step, ...]:
        parts = [_request(rng) for _ in range(rng.choice((1, 1, 2)))]
        if rng.random() < 0.5:
            parts = mutate_order(rng, parts, [_request(rng) for _ in range(3)], _mutate)
        return conversation(rng, [(part, True) for part in parts])


def _request(rng: Random) -> bytes:
    method = rng.choice(METHODS) if rng.random() < 0.3 else "GET"
    version = rng.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/9.9", ""))
    lines = [f"{method} {rng.choice(PATHS)} {version}".encode(), b"Host: localhost"]
    lines += [rng.choice(rng.choice((ACCEPT, ACCEPT, HEADERS))) for _ in range(rng.randrange(4))]
    body = rng.randbytes(rng.randrange(40)) if rng.random() < 0.1 else b""
    return b"\r\n".join([*lines, b"", body])


def _mutate(rng: Random, request: bytes) -> bytes:
    """A long line, many lines, or other bytes."""
    match rng.randrange(4):
        case 0:
            return request.replace(b"Host: ", b"Host: " + b"x" * rng.choice((100, 70_000)), 1)
        case 1:
            return request.replace(b"\r\n", b"\r\n" + b"X: y\r\n" * rng.choice((5, 300)), 1)
        case 2:
            return request.replace(b"\r\n", rng.choice((b"\n", b"\r", b"\x00\r\n")))
        case _:
            return mutate_bytes(rng, request or b"x")
