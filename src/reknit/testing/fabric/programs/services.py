"""Programs that make requests, and the services that answer them."""

from __future__ import annotations

import asyncio
from typing import Any

from reknit.errors import RequestFailed
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Program, Scene

SERVICE = "//plant/1100/1/2"
TTL_MS = 4_000


class RequestingProgram(Program):
    """Makes requests, and gets one answer to each: a reply, or a failure with a code."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._count = 0
        self._open: set[str] = set()

    @property
    def is_done(self) -> bool:
        return self.scene.is_calm and not self._open

    def crash(self) -> None:
        self._open.clear()
        super().crash()

    async def live(self) -> None:
        self._open.clear()
        async with self.session() as session, asyncio.TaskGroup() as waiting:
            while not self.scene.is_calm:
                waiting.create_task(self._request(session))
                await asyncio.sleep(self.rng.expovariate(self.scene.plan.put_rate / 2))

    async def _request(self, session: Any) -> None:
        self._count += 1
        text = f"{self.name} {self._count}"
        self._open.add(text)
        answers = self.scene.record.replies.setdefault(text, [])
        try:
            reply = await session.request(SERVICE, text, ttl_ms=TTL_MS)
            answers.append(reply.payload.decode())
        except RequestFailed as error:
            answers.append(f"failed: {error.code}")
        finally:
            self._open.discard(text)


class ServingProgram(Program):
    """Answers each request with its text."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self.is_open = False

    async def live(self) -> None:
        self.is_open = False
        async with self.session() as session, session.serve(SERVICE, self._answer, name=self.name):
            self.is_open = True
            await asyncio.Event().wait()

    def crash(self) -> None:
        self.is_open = False
        super().crash()

    async def _answer(self, request: Any) -> bytes:
        text = request.payload.decode()
        served = self.scene.record.served
        served[text] = served.get(text, 0) + 1
        await self.think()
        return f"re: {text}".encode()
