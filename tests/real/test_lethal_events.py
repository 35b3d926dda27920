"""A handler that kills its own process on one event: that one becomes a dead letter, and all others arrive."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

import reknit
from reknit.client.dead_letters import letters
from reknit.outcome import Reason
from reknit.processes.process import NodeProcess, Process, ending

pytestmark = pytest.mark.real

EVENTS = 200
LETHAL = 70
LIMIT = 3
HANDLER = """
import asyncio, os, sys
import reknit

async def main(url, path):
    async with reknit.connect(url) as session:
        async with session.subscribe("jobs/**", name="worker") as jobs:
            async for job in jobs:
                if job.payload == b"kill":
                    os._exit(9)
                with open(path, "ab") as file:
                    file.write(job.payload + b"\\n")

asyncio.run(main(*sys.argv[1:]))
"""
PATIENCE_S = 240.0


def payloads() -> list[bytes]:
    made = [b"%d" % number for number in range(EVENTS)]
    made[LETHAL] = b"kill"
    return made


def crashed_letters(url: str) -> list[tuple[str, bytes | None, int]]:
    async def read() -> list[tuple[str, bytes | None, int]]:
        async with reknit.connect(url) as session:
            found = [letter async for _, letter in letters(session)]
        return [(letter.reason, letter.payload, letter.attempts) for letter in found]

    return asyncio.run(read())


def test_event_that_kills_every_process_is_a_dead_letter_and_all_others_arrive(tmp_path: Path) -> None:
    settings = (
        "dispatch.retry_backoff_s_min=0.01",
        "dispatch.retry_backoff_s_max=0.05",
        f"dispatch.crash_attempts_max={LIMIT}",
    )
    node = NodeProcess(tmp_path, *[word for setting in settings for word in ("--set", setting)])
    handled, code = tmp_path / "handled", tmp_path / "handler.py"
    code.write_text(HANDLER)
    handled.touch()
    worker = Process("worker", [sys.executable, str(code), node.url, str(handled)], tmp_path)
    others = set(payloads()) - {b"kill"}
    deadline = time.monotonic() + PATIENCE_S
    deaths = 0
    with ending(node, worker):
        node.start()
        with reknit.connect_sync(node.url) as session, session.subscribe("jobs/**", name="worker"):
            session.publisher("jobs/a").publish_many(payloads())
        worker.start()
        while not (found := crashed_letters(node.url)) or set(handled.read_bytes().split()) != others:
            assert time.monotonic() < deadline, (deaths, found, worker.output())
            if not worker.is_running:
                deaths += 1
                if deaths == 4:  # after two to find the event, and one that is counted: that is durable
                    node.kill()
                    node.start()
                worker.start()
    assert found == [(Reason.CRASHED, b"kill", LIMIT)]
    assert LIMIT < deaths <= LIMIT + 4, "a few to find it; the one before the node's restart is not counted"
