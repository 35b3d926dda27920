"""Metrics show every topic: only those who may read everything get them."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

from reknit.config import SecuritySettings
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
