"""Programs that publish to every subscriber, and know which events they were told to be stored."""

from __future__ import annotations

import asyncio
from typing import Any

from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Program, Scene
from reknit.testing.fabric.programs.stored_events import stored_events_are_durable
from reknit.testing.fabric.record import Sent, key_of


class PublishingProgram(Program):
    """Publishes bursts of events, singly or as a batch."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, topic: str, is_lasting: bool) -> None:
        super().__init__(scene, name, node)
        self.topic, self.is_lasting = topic, is_lasting
        self._count = 0
        self._open: dict[bytes, Sent] = {}

    @property
    def is_done(self) -> bool:
        return self.scene.is_calm and not self._open

    def crash(self) -> None:
        self._open.clear()  # nobody waits for them any more
        super().crash()

    async def live(self) -> None:
        self._open.clear()
        plan = self.scene.plan
        async with self.session(self.name if self.is_lasting else "") as session:
            publisher = session.publisher(self.topic)
            if self.is_lasting:
                await publisher.resume()
            async with asyncio.TaskGroup() as waiting:
                while not self.scene.is_calm:
                    self._publish(publisher, waiting)
                    await asyncio.sleep(self.rng.expovariate(plan.put_rate))

    def _publish(self, publisher: Any, waiting: asyncio.TaskGroup) -> None:
        plan, record = self.scene.plan, self.scene.record
        burst = [
            record.put(self._payload(), self.topic, self.name)
            for _ in range(self.rng.randint(1, plan.burst_max))
        ]
        self._open |= {sent.payload: sent for sent in burst}
        has_keys = plan.queue_order == "key" or (plan.order == "key" and self.topic.startswith("plant/"))
        if has_keys:
            keys = [key_of(sent.payload) for sent in burst]
            stored = publisher.publish_many([sent.payload for sent in burst], keys)
            waiting.create_task(self._stored(publisher, stored, burst))
        elif self.rng.random() < 0.5:
            stored = publisher.publish_many([sent.payload for sent in burst])
            waiting.create_task(self._stored(publisher, stored, burst))
        else:
            for sent in burst:
                waiting.create_task(self._stored(publisher, publisher.publish(sent.payload), [sent]))

    async def _stored(self, publisher: Any, stored: asyncio.Future[None], burst: list[Sent]) -> None:
        await stored
        self.scene.record.problems += stored_events_are_durable(self.scene, self.node, publisher, burst[-1])
        for sent in burst:
            self._open.pop(sent.payload, None)
            self.scene.record.stored(sent)

    def _payload(self) -> bytes:
        self._count += 1
        text = f"{self.name} {self._count} ".encode()
        return text + b"." * self.rng.randrange(self.scene.plan.payload_bytes_max)
