"""Metrics show every topic: only those who may read everything get them."""

from __future__ import annotations

import asyncio
import logging
import socket
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from reknit.config import SecuritySettings
from reknit.node.admin import metrics
from reknit.node.admin.metrics import serve_metrics
from reknit.processes.process import free_port
from reknit.server import build_node
from tests.node.fabric import config, run
from tests.tokens import write_tokens


def scrape(port: int, token: str = "") -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers), timeout=60
        ) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_metrics_need_the_right_to_read_everything(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"ann": "a-token", "bob": "b-token"})
    allow = ("ann subscribe **", "bob subscribe plant/**")
    security = SecuritySettings(tokens_file=tokens, allow=allow)
    port = free_port()

    async def test() -> None:
        async with build_node(replace(config(), security=security)) as node:
            server = serve_metrics(node.figures, f"127.0.0.1:{port}", node.gate)
            try:
                found = [await asyncio.to_thread(scrape, port, token) for token in ("", "guess", "b-token")]
                assert [code for code, _ in found] == [401, 401, 403]
                assert all(b"security.allow" in body and b"reknit_" not in body for _, body in found)
                code, body = await asyncio.to_thread(scrape, port, "a-token")
                assert (code, b"reknit_uptime_seconds" in body) == (200, True)
            finally:
                server.shutdown()
                server.server_close()

    run(test)


def test_a_client_that_sends_nonsense_or_nothing_leaves_no_traceback_and_no_thread(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "REQUEST_S", 0.2)
    port = free_port()

    def disturb() -> None:
        with socket.create_connection(("127.0.0.1", port)) as long:
            long.sendall(b"GET / HTTP/1.1\r\nHost: " + b"x" * 70_000 + b"\r\n\r\n")
        accept = b"Accept: application/openmetrics-text; version=x\r\nConnection: close\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=60) as odd:
            odd.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + accept + b"\r\n")
            assert b" 200 " in odd.recv(100)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
            assert silent.recv(1) == b"", "the node closes it"

    async def test() -> None:
        async with build_node(config()) as node:
            server = serve_metrics(node.figures, f"127.0.0.1:{port}", node.gate)
            try:
                await asyncio.to_thread(disturb)
                assert (await asyncio.to_thread(scrape, port))[0] == 200
            finally:
                server.shutdown()
                server.server_close()

    with caplog.at_level(logging.INFO, "reknit.node"):
        run(test)
    assert "Traceback" not in capfd.readouterr().err
    assert "metrics: a request from" in caplog.text
