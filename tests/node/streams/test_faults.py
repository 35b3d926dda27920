"""Streams over three linked nodes while readers release, pin, refuse, leave and are cut off, and writers give up.

Whatever happens: ACCEPTED means that one reader had all of it and accepted it, RELEASED that none did, and nobody ever
took a part for the whole. Nothing stays behind on any node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from reknit.client.session import Session, connect
from reknit.config import AnycastSettings, Config, JournalSettings, LinkSettings, NodeSettings, TopicSettings
from reknit.errors import Aborted, Undelivered
from reknit.event import Event
from reknit.node.node import Node
from reknit.server import build_node
from reknit.topic import Pattern
from tests.node.node_processes import run, until

TOPIC = "films/new"
STREAMS = 12
WRITERS = 4


def config(folder: Path, name: str, *links: str) -> Config:
    return Config(
        node=NodeSettings(name=name, listen=("tcp://127.0.0.1:0",), data_dir=folder / name),
        journal=JournalSettings(kind="disk", sync=False),
        links=LinkSettings(to=links),
        topics=(TopicSettings(pattern=Pattern("films/**"), distribution="balanced"),),
        anycast=AnycastSettings(stream_window_bytes=4096, streams_held_bytes_max=16_384),
    )


class Storm:
    """The streams that were written, the receivers that accepted them, and the outcomes that the writers heard."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.written: dict[str, bytes] = {}
        self.accepted: Counter[str] = Counter()
        self.handed: Counter[tuple[str, str]] = Counter()
        self.outcomes: dict[str, str] = {}
        self.problems: list[str] = []

    # -- reading

    async def read(self, session: Session, name: str) -> None:
        """Take streams until cancelled; now and then leave and come again under another name."""
        number = 0
        while True:
            number += 1
            async with session.subscribe("films/**", auto_accept=False, streams=True) as events:
                async for event in events:
                    self.handed[f"{name}/{number}", event.id] += 1
                    await self._one(event, session)
                    if self.rng.random() < 0.15:
                        break

    async def _one(self, event: Event, session: Session) -> None:
        what = self.rng.choice(["accept"] * 4 + ["release", "midway", "pin", "reject", "cut"])
        if what == "release":
            event.release()
            return
        if what == "pin":
            event.in_progress()
        content = b""
        with suppress(Aborted):
            async for piece in event.pieces():
                content += piece
                if what == "midway" and self.rng.random() < 0.2:
                    event.release()
                    return
                if what == "cut" and self.rng.random() < 0.1:
                    session.connection.drop()
                await asyncio.sleep(0)
            self._end(event, content, what)

    def _end(self, event: Event, content: bytes, what: str) -> None:
        if content != self.written[event.id]:
            self.problems.append(f"{event.id} ended after {len(content)} bytes")
        if what == "reject":
            event.reject()
        else:
            self.accepted[event.id] += 1
            event.accept()

    # -- writing

    async def write(self, session: Session) -> None:
        publisher = session.publisher(TOPIC, resend_released=self.rng.random() < 0.8)
        for _ in range(STREAMS):
            content = self.rng.randbytes(self.rng.choice([0, 1, 5000, 100_000]))
            is_aborted = self.rng.random() < 0.15
            try:
                async with publisher.stream() as out:
                    self.written[out.id] = b"" if is_aborted else content
                    for at in range(0, len(content), 3000):
                        await out.write(content[at : at + 3000])
                        await asyncio.sleep(0)
                    if is_aborted:
                        self.written[out.id] = b"never whole"
                        await out.abort()
                self.outcomes[out.id] = "ABORTED" if is_aborted else "ACCEPTED"
            except Undelivered as error:
                self.outcomes[out.id] = type(error).__name__.upper()

    def check(self) -> None:
        assert self.problems == []
        assert set(self.handed.values()) <= {1}, "nobody gets a stream twice"
        assert len(self.outcomes) == WRITERS * STREAMS
        for one, outcome in self.outcomes.items():
            times = self.accepted[one]
            if outcome == "ACCEPTED":
                assert times == 1, one
            elif outcome == "MODIFIED":
                assert times <= 1, "in doubt, and not sent again"
            else:
                assert times == 0, f"{outcome} is a promise that nobody has it: {one}"


def is_idle(nodes: list[Node]) -> bool:
    return not any(
        any(node.anycast.streams.status().values()) or node.anycast.machine.records() for node in nodes
    )


@pytest.mark.parametrize("seed", range(6))
def test_what_an_outcome_promises_holds_in_a_storm_of_streams(tmp_path: Path, seed: int) -> None:
    async def test() -> None:
        storm = Storm(seed)
        async with AsyncExitStack() as stack:
            nodes: list[Node] = []
            for name in "abc":
                links = [node.urls[0] for node in nodes[-1:]]
                nodes.append(await stack.enter_async_context(build_node(config(tmp_path, name, *links))))
            await until(lambda: all(len(node.links.routes.reachable()) == 2 for node in nodes))
            readers = []
            for number in range(5):
                node = storm.rng.choice(nodes)
                session = await stack.enter_async_context(connect(node.urls[0], config=node.config))
                readers.append(asyncio.create_task(storm.read(session, f"r{number}")))
            writers = []
            for _ in range(WRITERS):
                session = await stack.enter_async_context(connect(nodes[0].urls[0], config=nodes[0].config))
                writers.append(storm.write(session))
            await asyncio.gather(*writers)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            await until(lambda: is_idle(nodes))
        storm.check()

    run(test)
