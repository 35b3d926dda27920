"""Hostile peers: garbage, mutated messages, floods and connections that say nothing, to every port of a node."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from reknit.testing.fabric.nodes import AMQP_PORT, HTTP_PORT, PORT, FabricNode
from reknit.testing.fabric.programs.attacks import (
    amqp_frames,
    http_requests,
    mutate_bytes,
    mutate_frame,
    tcp_messages,
)
from reknit.testing.fabric.programs.program import Program, Scene

OPEN_MAX: Final = 20
"""How many of its connections stay open."""
FLOOD_BYTES: Final = 200_000


class HostileProgram(Program):
    """Connects again and again, and never behaves."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._open: list[asyncio.StreamWriter] = []

    async def live(self) -> None:
        self._open.clear()
        nodes = list(self.scene.fabric.nodes.values())
        while not self.scene.is_calm:
            with suppress(OSError):
                await self._attack(self.rng.choice(nodes))
            await asyncio.sleep(self.rng.expovariate(self.scene.plan.put_rate))
        for writer in self._open:
            writer.transport.abort()

    async def _attack(self, node: FabricNode) -> None:
        ports = [PORT, PORT]
        ports += [HTTP_PORT] if node.config.http.listen else []
        ports += [AMQP_PORT] if node.config.amqp.listen else []
        port = self.rng.choice(ports)
        _, writer = await asyncio.wait_for(asyncio.open_connection(node.host.address, port), 2.0)
        self._open.append(writer)
        writer.write(self._data(port))
        await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.3)))
        match self.rng.randrange(4):
            case 0:
                writer.close()
            case 1:
                writer.transport.abort()
            case 2 if writer.can_write_eof() and not writer.is_closing():
                writer.write_eof()  # half closed
            case _:
                pass  # it stays, and reads nothing
        if len(self._open) > OPEN_MAX:
            self._open.pop(0).transport.abort()

    def _data(self, port: int) -> bytes:
        rng = self.rng
        parts = {PORT: tcp_messages, HTTP_PORT: http_requests, AMQP_PORT: amqp_frames}[port](rng)
        match rng.randrange(7):
            case 0:
                return rng.randbytes(rng.randrange(1, 300))
            case 1:
                return b"".join(parts)[: rng.randrange(1, 200)]
            case 2:
                rng.shuffle(parts)
            case 3:
                return _flood(parts)
            case 4:
                parts.insert(rng.randrange(len(parts)), rng.choice(parts))
            case _:
                at = rng.randrange(0 if rng.random() < 0.1 else min(1, len(parts) - 1), len(parts))
                mutate = mutate_frame if port == PORT and rng.random() < 0.8 else mutate_bytes
                parts[at] = mutate(rng, parts[at])
        return b"".join(parts)


def _flood(parts: list[bytes]) -> bytes:
    first, rest = parts[0], b"".join(parts[1:]) or parts[0]
    return first + rest * min(200, FLOOD_BYTES // len(rest) + 1)
