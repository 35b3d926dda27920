"""Programs that publish by HTTP, and repeat what was not confirmed."""

from __future__ import annotations

import asyncio
from random import Random

from reknit.address import Address
from reknit.client.tunnel import notify
from reknit.envelope.attributes import Attributes, Format, Kind
from reknit.envelope.cloudevents import to_json
from reknit.envelope.ids import make_id
from reknit.errors import NotConnected, RemoteError
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import AGAIN_S, Program, Scene
from reknit.testing.fabric.programs.web.requests import FAILURES, answer_to
from reknit.testing.fabric.record import Sent

ADDRESS = Address.parse("//web/10/1/8001")
ADDRESS_TOPIC = "up/web/10/0/1/8001"


class PostingProgram(Program):
    """Posts one event after the other, in the form of mod_pubsub or as CloudEvents."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, topic: str) -> None:
        super().__init__(scene, name, node)
        self.topic = topic
        self._count = 0
        self._is_posting = False
        self._asked: Sent | None = None
        """The event in the request that is on its way. That may reach the node in a later life, too."""
        self._lives: set[int] = set()
        """Those of the node in which it may have stored this event."""
        node.on_start(self._count_life)

    @property
    def is_done(self) -> bool:
        return self.scene.is_calm and not self._is_posting

    def crash(self) -> None:
        self._is_posting, self._asked = False, None
        super().crash()

    async def live(self) -> None:
        plan = self.scene.plan
        while not self.scene.is_calm:
            self._is_posting = True
            if self.topic == ADDRESS_TOPIC:
                await self._post_cloudevent()
            else:
                await self._post_form()
            self._is_posting = False
            await asyncio.sleep(self.rng.expovariate(plan.put_rate))

    def _next(self) -> Sent:
        self._count += 1
        size = self.rng.randrange(self.scene.plan.payload_bytes_max)
        return self.scene.record.put(
            f"{self.name} {self._count} {'é' * (size // 2)}".encode(), self.topic, self.name
        )

    async def _post_form(self) -> None:
        """With an id: as long as the node runs, a repeat changes nothing."""
        sent = self._next()
        self._lives = set()
        while True:
            self._asked = sent
            self._count_life()
            try:
                async with asyncio.timeout(20.0):
                    await notify(
                        self.node.http_url, self.topic, sent.payload, id=f"{self.name}-{self._count}"
                    )
                break
            except (NotConnected, RemoteError, TimeoutError):
                self._asked = None
                await asyncio.sleep(AGAIN_S)
        self._asked = None
        self.scene.record.stored(sent)

    def _count_life(self) -> None:
        if self._asked is not None:
            self._lives.add(self.node.starts)
            self._asked.copies_max = len(self._lives)

    async def _post_cloudevent(self) -> None:
        """A repeat is an event of its own, as far as the node knows."""
        sent = self._next()
        while True:
            code = await self._post(sent)
            if code == 200:
                self.scene.record.stored(sent)
            if code in (200, 400):  # a host whose clock is ahead makes ids that are refused
                break
            sent.copies_max += 1
            await asyncio.sleep(AGAIN_S)

    async def _post(self, sent: Sent) -> int:
        event = cloudevent(self.host.time_us(), self.rng)
        headers = {"Content-Type": "application/cloudevents+json"}
        try:
            code, _ = await answer_to(
                self.node, "POST", "/cloudevents", headers, to_json(event, sent.payload)
            )
            return code
        except FAILURES:
            return 0


def cloudevent(time_us: int, rng: Random) -> Attributes:
    """The attributes of an event of `ADDRESS` that was made at this time."""
    made = make_id(time_us // 1000, rng.getrandbits(74))
    return Attributes(id=made, type=Kind.PUBLISH, source=ADDRESS, payload_format=Format.TEXT)
