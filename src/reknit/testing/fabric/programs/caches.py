"""Caches that hang or lie, and subscribers without a name that recover from them and from honest ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from reknit.batch import Batch
from reknit.errors import ReknitError
from reknit.testing.fabric.nodes import PORT, FabricNode
from reknit.testing.fabric.programs.program import ListeningProgram, Program, Scene
from reknit.testing.fabric.programs.subscribers import SubscribingProgram
from reknit.wire.codec import Decoder, encode
from reknit.wire.messages import Hello, Ping, Pong, Welcome
from reknit.wire.recovery import Recover, Recovered, Span, Survey, Surveyed

PATTERNS: Final = ("plant/**", "plant/*")
LIES: Final = ("hang", "deny", "other series", "other range", "damaged", "too little", "close", "unasked")


def recovering_programs(scene: Scene) -> list[Program]:
    """The false caches of a plan, and the subscribers that ask them."""
    plan, rng = scene.plan, scene.fabric.rng("caches")
    nodes = [node for node in scene.fabric.nodes.values() if node.name not in scene.outposts]
    liars = [LyingCache(scene, f"liar{at}", nodes[0]) for at in range(plan.liars)]
    made: list[Program] = list(liars)
    for at in range(plan.recoverers):
        urls = [liar.url for liar in liars] + [node.url for node in rng.sample(nodes, min(2, len(nodes)))]
        rng.shuffle(urls)
        program = RecoveringProgram(
            scene, f"re{at}", rng.choice(nodes), rng.choice(PATTERNS), is_durable=False
        )
        program.caches, program.history = tuple(urls), rng.choice((False, True, 5, 2.0))
        made.append(program)
    return made


class RecoveringProgram(SubscribingProgram):
    """Subscribes without a name, and asks caches for what it misses and for history."""

    caches: tuple[str, ...] = ()
    history: bool | int | float = False

    def options(self) -> dict[str, Any]:
        return {"caches": self.caches, "history": self.history, "query_s": 1.0}


class LyingCache(ListeningProgram):
    """Speaks the protocol of a node, and answers requests for events wrongly or not at all.

    It never makes up an event: nobody could tell.
    """

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self.url = f"tcp://{self.host.address}:{PORT}"

    async def live(self) -> None:
        await asyncio.start_server(self._talk, self.host.address, PORT)
        self.is_open = True
        await asyncio.get_running_loop().create_future()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        with suppress(OSError, ReknitError):
            while data := await reader.read(1 << 16):
                for item in decoder.feed(data):
                    writer.write(self._answer(item, writer))
                await writer.drain()
        writer.transport.abort()

    def _answer(self, item: object, writer: asyncio.StreamWriter) -> bytes:
        match item:
            case Hello(version=version):
                return encode(Welcome(version, self.name, "epoch of a liar", 0.5, 1 << 20))
            case Ping():
                return encode(Pong())
            case Survey(id=number):
                return self._surveyed(number)
            case Recover():
                return self._recovered(item, writer)
            case _:
                return b""

    def _surveyed(self, number: int) -> bytes:
        match self.rng.randrange(4):
            case 0:
                return b""
            case 1:
                return encode(Surveyed(number, []))
            case 2:
                span = Span("evil/none", self.rng.randbytes(16), [(1, 9)], 8)
                return encode(Surveyed(number, [span], is_last=self.rng.random() < 0.5))
            case _:
                return encode(Surveyed(number + 1, []))

    def _recovered(self, asked: Recover, writer: asyncio.StreamWriter) -> bytes:
        start, stop = asked.ranges[0]
        data, covered, size = b"", asked.ranges, -1
        match self.rng.choice(LIES):
            case "hang":
                return b""
            case "close":
                writer.transport.abort()
                return b""
            case "other series":
                data = _batch(self.rng.randbytes(16), asked.topic, start)
            case "other range":
                data = _batch(asked.source, asked.topic, stop + 1000)
            case "damaged":
                data = bytearray(_batch(asked.source, asked.topic, start))  # type: ignore[assignment]
                data[-1] ^= 1  # type: ignore[index]
            case "too little":
                size = 1000
            case "unasked":
                covered = [(stop + 1000, stop + 2000)]
            case _:
                pass  # it says that it has none of them
        return encode(Recovered(asked.id, len(data) if size < 0 else size, covered)) + bytes(data)


def _batch(source: bytes, topic: str, first: int) -> bytes:
    return bytes(Batch.build(source, topic, first, [b"a lie"], time_us=1).data)
