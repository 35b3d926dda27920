"""Programs that write events in pieces, and those that read them: complete and in order, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from reknit.errors import Aborted, Undelivered
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import ListeningProgram, Program, Scene

TOPIC: Final = "film/new"
PIECES_MAX: Final = 8
PIECE_BYTES_MAX: Final = 30_000
NAME: Final = "film"
"""The header with a stream's name."""


def film_makers(scene: Scene) -> list[Program]:
    """The writers and readers of a plan."""
    plan, rng = scene.plan, scene.fabric.rng("films")
    nodes = list(scene.fabric.nodes.values())
    if not plan.stream_writers:
        return []
    readers = [StreamReadingProgram(scene, f"sr{at}", rng.choice(nodes)) for at in range(plan.stream_readers)]
    writers = [StreamWritingProgram(scene, f"sw{at}", rng.choice(nodes)) for at in range(plan.stream_writers)]
    return [*readers, *writers]


class StreamWritingProgram(Program):
    """Writes one event after the other, gives some of them up, and is told the outcome of the rest."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._count = 0
        self._is_over = False

    @property
    def is_done(self) -> bool:
        return self._is_over

    async def live(self) -> None:
        async with self.session() as session:
            publisher = session.publisher(TOPIC, resend_released=True, ttl_ms=10_000)
            while not self.scene.is_calm:
                await self._write(publisher)
                await asyncio.sleep(self.rng.expovariate(self.scene.plan.put_rate))
        self._is_over = True

    async def _write(self, publisher: Any) -> None:
        self._count += 1
        film = self.scene.record.film(f"{self.name} {self._count}")
        is_given_up = self.rng.random() < self.scene.plan.give_up_share
        try:
            async with publisher.stream({NAME: film.name}) as out:
                for at in range(self.rng.randint(1, PIECES_MAX)):
                    piece = f"{film.name} {at} ".encode().ljust(self.rng.randrange(30, PIECE_BYTES_MAX), b".")
                    film.written += piece
                    await out.write(piece)
                    await asyncio.sleep(self.rng.uniform(0.0, 0.02))
                if is_given_up:
                    await out.abort()
            film.result = "GIVEN UP" if is_given_up else "ACCEPTED"
        except Undelivered as error:
            film.result = type(error).__name__.upper()


class StreamReadingProgram(ListeningProgram):
    """One of the readers, of which each event has one."""

    async def live(self) -> None:
        self.is_open = False
        async with (
            self.session() as session,
            session.subscribe(TOPIC, auto_accept=False, streams=True) as events,
        ):
            self.is_open = True
            async for event in events:
                await self._read(event)

    async def _read(self, event: Any) -> None:
        plan, film = self.scene.plan, self.scene.record.films[event.headers[NAME]]
        if not self.scene.is_calm and self.rng.random() < plan.release / 2:
            await event.release()
            return
        read = bytearray()
        try:
            async for piece in event.pieces():
                read += piece
                if not film.written.startswith(read):
                    self.scene.record.blame(
                        f"{self.name} read {len(read)} bytes of {film.name} that nobody wrote"
                    )
        except Aborted:
            return
        if film.result == "GIVEN UP" or bytes(read) != bytes(film.written):
            self.scene.record.blame(
                f"{self.name} read all of {film.name}: {len(read)} of {len(film.written)} bytes"
            )
        film.readers.append(self.name)
        await event.accept()
