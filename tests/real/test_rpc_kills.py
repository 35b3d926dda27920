"""kill -9 of a service and of the node while requests are in flight: every request ends once, with its real outcome."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import reknit
from reknit.config import Config, RpcSettings
from reknit.errors import RequestFailed
from reknit.outcome import Code
from reknit.processes.process import NodeProcess, Process, ending
from tests.client.rpc.shared import DOORS, all_kept, run, until

pytestmark = [pytest.mark.real, pytest.mark.slow]

PATIENT = Config(rpc=RpcSettings(grace_s=60.0))
WAIT = "touch begun; while [ ! -e go ]; do sleep 0.02; done; cat"
"""A handler that begins, and goes on once the test says so. What is left of a killed one ends then, too."""


def server(node: NodeProcess, folder: Path, command: str = WAIT) -> Process:
    words = [sys.executable, "-m", "reknit", "serve", str(DOORS), "--exec", command, "--node", node.url]
    return Process("server", words, folder)


async def served(node: NodeProcess, process: Process) -> None:
    """Start a server, and return when it is there."""
    process.start()
    async with reknit.connect(node.url, wait_s=20.0) as session:
        name = f"serve/{DOORS.topic}"
        while name not in {row["name"] for row in (await session.status())["subscribers"] if row["peer"]}:
            assert process.is_running, process.output()
            await asyncio.sleep(0.02)


async def code_of(asked: asyncio.Task[bytes]) -> tuple[int, str]:
    with pytest.raises(RequestFailed) as caught:
        await asked
    return caught.value.code, caught.value.text


def ask(session: reknit.Session, payload: bytes, ttl_ms: int) -> asyncio.Task[bytes]:
    async def payload_of() -> bytes:
        return (await session.request(DOORS, payload, ttl_ms=ttl_ms)).payload

    return asyncio.create_task(payload_of())


@dataclass(frozen=True)
class Asked:
    """A request that is under way, and who has to do with it."""

    node: NodeProcess
    service: Process
    session: reknit.Session
    reply: asyncio.Task[bytes]


@asynccontextmanager
async def begun(folder: Path, ttl_ms: int) -> AsyncIterator[Asked]:
    """A node, a server that has begun with a request, and a session that waits for the reply."""
    node = NodeProcess(folder)
    service = server(node, folder)
    with ending(node, service):
        node.start()
        await served(node, service)
        async with reknit.connect(node.url, config=PATIENT) as session:
            reply = ask(session, b"open", ttl_ms)
            await until((folder / "begun").exists)
            yield Asked(node, service, session, reply)


def test_a_request_whose_server_is_killed_is_answered_by_its_next_life(tmp_path: Path) -> None:
    async def program() -> None:
        async with begun(tmp_path, 60_000) as asked:
            asked.service.kill()
            (tmp_path / "go").touch()
            asked.service.start()
            assert await asked.reply == b"open"

    run(program(), 100)


def test_a_request_whose_server_is_killed_for_good_is_deadline_exceeded(tmp_path: Path) -> None:
    async def program() -> None:
        async with begun(tmp_path, 3_000) as asked:
            asked.service.kill()
            (tmp_path / "go").touch()
            code, text = await code_of(asked.reply)
            assert (code, "got the request and did not answer" in text) == (Code.DEADLINE_EXCEEDED, True)
            assert (await code_of(ask(asked.session, b"again", 100)))[0] == Code.UNAVAILABLE

    run(program(), 100)


def test_a_request_survives_the_nodes_death_and_is_answered(tmp_path: Path) -> None:
    async def program() -> None:
        async with begun(tmp_path, 60_000) as asked:
            asked.node.kill()
            (tmp_path / "go").touch()
            asked.node.start()
            assert await asked.reply == b"open"

    run(program(), 100)


def test_a_node_that_was_killed_still_answers_what_nobody_does(tmp_path: Path) -> None:
    """Whether somebody got it before is not known any more: it says so, and not that nobody was asked."""
    node = NodeProcess(tmp_path)

    async def program() -> None:
        node.start()
        async with reknit.connect(node.url, config=PATIENT) as session:
            asked = ask(session, b"open", 5_000)
            await until(lambda: all_kept(session))
            node.kill()
            node.start()
            code, text = await code_of(asked)
            assert code == Code.DEADLINE_EXCEEDED
            assert "no response arrived in time" not in text, "the client's own word"

    with ending(node):
        run(program(), 100)
