"""Wrong tokens slow down an address at every door, are counted there, and keep nobody out who has a right one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reknit.client.session import connect
from reknit.config import SecuritySettings
from reknit.errors import Refused
from reknit.node.admin.metrics import serve_metrics
from reknit.outcome import Code
from reknit.processes.process import free_port
from reknit.server import build_node
from reknit.trust.attempts import FREE
from tests.gateway.http.http_client import Web, web
from tests.gateway.http.http_client import config as http_config
from tests.node.fabric import CLIENT, config, run
from tests.tokens import write_tokens
from tests.trust.test_metrics import scrape

pytestmark = pytest.mark.real

TRIES = FREE + 3


@pytest.fixture
def security(tmp_path: Path) -> SecuritySettings:
    tokens = write_tokens(tmp_path / "tokens", {"ann": "a-token"})
    return SecuritySettings(tokens_file=tokens, allow=("ann subscribe **", "ann publish **"))


def test_tcp(security: SecuritySettings) -> None:
    async def test() -> None:
        async with build_node(replace(config(), security=security)) as node:

            async def guess() -> Code:
                with pytest.raises(Refused) as refused:
                    await connect(node.urls[0], config=CLIENT, token="guess").open()
                return Code(refused.value.code)

            assert await asyncio.gather(*(guess() for _ in range(TRIES))) == [Code.UNAUTHENTICATED] * TRIES
            totals = node.gate.attempts.totals()
            assert (totals["failed"], totals["slowed"]) == ({"tcp": TRIES}, TRIES - FREE)
            async with connect(node.urls[0], config=CLIENT, token="a-token") as ann:
                assert (await ann.status())["authentication"]["failed"] == {"tcp": TRIES}
            assert node.gate.attempts.totals()["slowed"] == TRIES - FREE, "a right token does not wait"

    run(test)


@pytest.fixture
def node(security: SecuritySettings) -> Iterator[Web]:
    with web(replace(http_config(), security=security)) as node:
        yield node


def test_http(node: Web) -> None:
    for _ in range(TRIES):
        assert node.request("/sse?topic=a", Authorization="Bearer guess").code == 403
    totals = node.node.gate.attempts.totals()
    assert (totals["failed"], totals["slowed"]) == ({"http": TRIES}, TRIES - FREE)
    with node.stream("/sse?topic=a", Authorization="Bearer a-token") as stream:
        stream.until(b"live")
    assert node.request("/sse?topic=a").code == 403, "who shows nothing has not failed"
    assert node.node.gate.attempts.totals()["failed"] == {"http": TRIES}


def test_too_many_at_a_time_are_closed_without_an_answer(node: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reknit.trust.attempts.WAITING_MAX", 0)
    answers = []
    for _ in range(TRIES):
        with node.connect() as sock:
            head = b"GET /sse?topic=a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            sock.sendall(head + b"Authorization: Bearer x\r\n\r\n")
            try:
                answers.append(sock.recv(65536)[:12])
            except ConnectionResetError:
                answers.append(b"")
    assert answers == [b"HTTP/1.1 403"] * FREE + [b""] * (TRIES - FREE)
    assert node.node.gate.attempts.totals()["dropped"] == TRIES - FREE


def test_metrics(security: SecuritySettings) -> None:
    port = free_port()

    async def test() -> None:
        async with build_node(replace(config(), security=security)) as node:
            server = serve_metrics(node.figures, f"127.0.0.1:{port}", node.gate)
            try:
                for _ in range(TRIES):
                    assert (await asyncio.to_thread(scrape, port, "guess"))[0] == 401
                totals = node.gate.attempts.totals()
                assert (totals["failed"], totals["slowed"]) == ({"metrics": TRIES}, TRIES - FREE)
                code, body = await asyncio.to_thread(scrape, port, "a-token")
                assert code == 200
                assert b'reknit_authentication_failed_total{door="metrics"} %d.0' % TRIES in body
                assert b'reknit_authentication_slowed_total{how="slowed"} %d.0' % (TRIES - FREE) in body
            finally:
                server.shutdown()
                server.server_close()

    run(test)
