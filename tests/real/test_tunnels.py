"""curl and the Python client, and a node that is killed with -9."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reknit.client import tunnel
from reknit.processes.process import start_tied
from tests.gateway.http.node_process import Living
from tests.gateway.http.programs import needs

pytestmark = pytest.mark.real

curl = needs("curl")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Living]:
    with Living(tmp_path / "data", "http.retry_ms=200") as one:
        yield one


# -- curl


def read(wanted: str, *args: str) -> str:
    """What curl says until this comes: a tunnel has no end."""
    process = start_tied(["curl", "-sN", *args], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = ""
    try:
        while wanted not in found:
            line = process.stdout.readline()
            assert line, f"it ended without {wanted}: {found}"
            found += line
        return found
    finally:
        process.kill()
        process.communicate()


@curl
def test_curl_posts_and_reads(node: Living) -> None:
    def ask(*args: str) -> str:
        return subprocess.run(["curl", "-sN", *args], capture_output=True, text=True, timeout=150).stdout

    posted = ask(
        "-d", "kn_to=/what/chat;kn_payload=hello;kn_id=m1;kn_response_format=simple", f"{node.url}/kn"
    )
    assert "status: 200 Notified\n" in posted
    tunnel_text = read("kn_id: m1", f"{node.url}/kn/what/chat?do_max_age=60;kn_response_format=simple")
    assert "200 Watching topic" in tunnel_text
    read('"state":"lost"', "-H", f"Last-Event-ID: {'0' * 16}-0-0", f"{node.url}/sse?topic=what/**")
    refused = ask("-i", f"{node.url}/kn?kn_from=/what/chat;do_since_checkpoint=00-0-0")
    assert refused.startswith("HTTP/1.1 404 Expired")


# -- kill -9


@pytest.mark.parametrize("scheme", ["kn_event_hash", "kn_route_checkpoint"])
def test_the_python_client_gets_every_event_once_through_kill_9(tmp_path: Path, scheme: str) -> None:
    async def test(node: Living) -> None:
        got: list[str] = []
        async with tunnel.open(node.url, "what/chat") as one:
            events = aiter(one)
            for round_ in range(3):
                for number in range(20):
                    await tunnel.notify(node.url, "what/chat", f"{round_}:{number}")
                node.kill()
                await asyncio.to_thread(node.start)
                while len(got) < 20 * (round_ + 1):
                    got.append((await anext(events)).payload.decode())
            assert got == [f"{round_}:{number}" for round_ in range(3) for number in range(20)]
            await tunnel.notify(node.url, "what/chat", "the end")
            assert (await anext(events)).payload == b"the end"
            assert one.state is tunnel.State.RECOVERED

    with Living(tmp_path / "data", f"http.scheme={scheme}") as node:
        asyncio.run(asyncio.wait_for(test(node), 150))
