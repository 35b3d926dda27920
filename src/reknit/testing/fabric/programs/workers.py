"""Programs that send events to one of many workers and want each outcome, and the workers."""

from __future__ import annotations

import asyncio
from typing import Any

from reknit.errors import Undelivered
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Program, QuittingProgram, Scene
from reknit.testing.fabric.record import Seen, Sent


class SendingProgram(Program):
    """Publishes on a balanced topic, and waits for the outcome of each event."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, topic: str, is_resent: bool) -> None:
        super().__init__(scene, name, node)
        self.topic, self.is_resent = topic, is_resent
        self._count = 0
        self._open: dict[bytes, Sent] = {}

    @property
    def is_done(self) -> bool:
        return self.scene.is_calm and not self._open

    def crash(self) -> None:
        self._open.clear()
        super().crash()

    async def live(self) -> None:
        self._open.clear()
        async with self.session() as session:
            publisher = session.publisher(self.topic, outcome=True, resend_released=self.is_resent)
            async with asyncio.TaskGroup() as waiting:
                while not self.scene.is_calm:
                    waiting.create_task(self._send(publisher))
                    await asyncio.sleep(self.rng.expovariate(self.scene.plan.put_rate))

    async def _send(self, publisher: Any) -> None:
        self._count += 1
        payload = f"{self.name} {self._count}".encode()
        record = self.scene.record
        sent = self._open[payload] = record.put(payload, self.topic, self.name)
        try:
            outcome = await publisher.publish(payload)
            record.ended(sent, outcome.name)
        except Undelivered as error:
            record.ended(sent, type(error).__name__.upper())
        finally:
            self._open.pop(payload, None)


class WorkingProgram(QuittingProgram):
    """One of the subscribers of a balanced topic."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, pattern: str) -> None:
        super().__init__(scene, name, node)
        self.pattern = pattern
        self.seen = scene.record.seen[name] = Seen(name, pattern, node.name, False)
        self.is_open = False

    async def listen(self) -> None:
        self.is_open = False
        async with (
            self.session() as session,
            session.subscribe(self.pattern, auto_accept=False) as events,
        ):
            self.is_open = True
            async for event in events:
                self.scene.record.received(
                    self.seen, event.topic, event.source, event.seq, bytes(event.payload)
                )
                if self.quits():
                    break
                await self._settle(event)

    def crash(self) -> None:
        self.is_open = False
        super().crash()

    async def _settle(self, event: Any) -> None:
        plan, payload = self.scene.plan, bytes(event.payload)
        await self.think()
        weights = (1.0, 0.0, 0.0) if self.scene.is_calm else (1.0, plan.release, plan.reject)
        match self.rng.choices(("accept", "release", "reject"), weights)[0]:
            case "release":
                await event.release()
            case "reject":
                self.seen.rejected.add(payload)
                await event.reject(text="not wanted")
            case _:
                self.scene.record.accepted(self.seen, payload)
                await event.accept()
