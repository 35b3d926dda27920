"""Programs that send and receive by AMQP 1.0: senders that record each outcome, and receivers of every temper."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from reknit.testing.fabric.nodes import AMQP_PORT, FabricNode
from reknit.testing.fabric.programs.amqp.client import AmqpClient
from reknit.testing.fabric.programs.amqp.messages import GARBAGE, decode_message, encode_message
from reknit.testing.fabric.programs.program import ListeningProgram, Program, Scene
from reknit.testing.fabric.record import Seen, Sent

CREDIT: Final = 10
PIECE_BYTES: Final = 1_500
"""A long message arrives in pieces of this size."""
GARBAGE_SHARE: Final = 0.05
ABORT_SHARE: Final = 0.1


class AmqpSendingProgram(Program):
    """Sends messages without waiting, and takes note of the outcome of each."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, topic: str, is_balanced: bool) -> None:
        super().__init__(scene, name, node)
        self.topic, self.is_balanced = topic, is_balanced
        self.is_relayed = not is_balanced and scene.fabric.rng(f"relayed {name}").random() < 0.4
        """Whether each message names its topic, and not the link."""
        self._count = 0
        self._client: AmqpClient
        self._open: dict[str, Sent] = {}

    @property
    def is_done(self) -> bool:
        return self.scene.is_calm and not self._open

    def crash(self) -> None:
        self._open.clear()
        super().crash()

    async def live(self) -> None:
        self._open.clear()
        client = self._client = AmqpClient(self.name, self._on_event)
        try:
            session = await client.open(self.node.host.address, AMQP_PORT)
            link = session.sender(self.name)
            if not self.is_relayed:
                link.target.address = link.source.address = self.topic
            link.open()
            client.turn()
            while True:
                if not self.scene.is_calm and link.credit > 0 and not client.is_blocked:
                    await self._send(client, link)
                await asyncio.wait((client.over,), timeout=self.rng.expovariate(self.scene.plan.put_rate))
                if client.over.done():
                    await client.over
        finally:
            self._open.clear()
            client.abort()

    async def _send(self, client: AmqpClient, link: Any) -> None:
        for _ in range(min(self.rng.randint(1, self.scene.plan.burst_max), link.credit)):
            if self.rng.random() < GARBAGE_SHARE:
                self._send_garbage(link)
                continue
            sent = self._next()
            delivery = link.delivery(str(self._count))
            self._open[delivery.tag] = sent
            data = encode_message(sent.payload, self.rng, self.topic if self.is_relayed else "")
            while len(data) > PIECE_BYTES and self.rng.random() < 0.9:
                link.stream(data[:PIECE_BYTES])
                data = data[PIECE_BYTES:]
                client.turn()
                await asyncio.sleep(self.rng.uniform(0.0, 0.02))
                if client.over.done():
                    return
                if self.rng.random() < ABORT_SHARE:
                    self._open.pop(delivery.tag, None)
                    delivery.abort()
                    break
            else:
                link.stream(data)
                link.advance()
            client.turn()

    def _send_garbage(self, link: Any) -> None:
        """Bytes that are not a message: they have to be rejected."""
        self._count += 1
        link.delivery(f"garbage {self._count}")
        link.stream(self.rng.choice(GARBAGE))
        link.advance()

    def _next(self) -> Sent:
        self._count += 1
        text = f"{self.name} {self._count} ".encode()
        most = self.scene.plan.payload_bytes_max
        size = self.rng.choice((10, most, most * 4, most * 15))
        return self.scene.record.put(text + b"." * self.rng.randrange(size), self.topic, self.name)

    def _on_event(self, name: str, what: Any) -> None:
        if name == "PN_LINK_REMOTE_CLOSE":
            self._client.abort()
        elif name == "PN_DELIVERY" and what.settled:
            sent = self._open.pop(what.tag, None)
            if sent is not None:
                self._ended(sent, what.remote_state.name)
            elif what.tag.startswith("garbage") and what.remote_state.name != "REJECTED":
                self.scene.record.blame(f"{self.name} sent garbage, and it was {what.remote_state.name}")
            what.settle()

    def _ended(self, sent: Sent, state: str) -> None:
        record = self.scene.record
        if self.is_balanced:
            record.ended(sent, state)
        elif state == "ACCEPTED":
            record.stored(sent)


class AmqpReceivingProgram(ListeningProgram):
    """Receives, and accepts, releases, rejects, modifies, keeps, detaches or leaves."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, pattern: str, is_durable: bool) -> None:
        super().__init__(scene, name, node)
        self.pattern, self.is_durable = pattern, is_durable
        self.is_balanced = pattern.startswith("jobs/")
        self._lives = 0
        self._link: Any = None
        self._attached = 0
        """How often a link was attached."""
        self._client: AmqpClient
        self.seen = self._watch()

    def _watch(self) -> Seen:
        self._lives += 1
        name = f"amqp/{self.name}/in" if self.is_durable else f"{self.name}.{self._lives}"
        if self.is_durable and name in self.scene.record.seen:
            return self.scene.record.seen[name]
        seen = Seen(name, self.pattern, self.node.name, self.is_durable)
        self.scene.record.seen[name] = seen
        return seen

    async def live(self) -> None:
        self.is_open = False
        self._forget()
        self.seen = self._watch()
        client = self._client = AmqpClient(self.name, self._on_event)
        try:
            session = await client.open(self.node.host.address, AMQP_PORT)
            while True:
                self._attach(client, session)
                await self._stay(client)
                self._link.detach()
                self._link.free()
                client.turn()
        finally:
            self.is_open = False
            client.abort()
            self._forget()

    def crash(self) -> None:
        super().crash()
        self._forget()

    def _forget(self) -> None:
        """A receiver without a name is not owed anything once it is gone. What a worker did counts nevertheless."""
        if not self.is_durable and not self.is_balanced:
            self.scene.record.seen.pop(self.seen.name, None)

    def _attach(self, client: AmqpClient, session: Any) -> None:
        self._attached += 1
        link = self._link = session.receiver("in" if self.is_durable else f"in{self._lives}")
        link.source.address = self.pattern
        if self.is_durable:
            link.source.durability, link.source.expiry_policy = 2, 3
        link.open()
        link.flow(CREDIT)
        client.turn()

    async def _stay(self, client: AmqpClient) -> None:
        """Receive for a while; for ever if nothing else is wanted."""
        while True:
            done, _ = await asyncio.wait((client.over,), timeout=self.rng.uniform(0.5, 3.0))
            if done:
                await client.over
            leaves = self.rng.random() < self.scene.plan.leave_share
            if leaves and not self.scene.is_calm and (self.is_durable or self.is_balanced):
                return

    # -- deliveries

    def _on_event(self, name: str, what: Any) -> None:
        if name == "PN_LINK_REMOTE_OPEN":
            self.is_open = True
        elif name == "PN_LINK_REMOTE_CLOSE":
            self._client.abort()
        elif name == "PN_DELIVERY" and what.link is not None and what.readable and not what.partial:
            self._receive(what)

    def _receive(self, delivery: Any) -> None:
        link, tag = delivery.link, delivery.tag
        if delivery.aborted:
            delivery.settle()
            link.flow(1)
            return
        data = link.recv(delivery.pending)
        link.advance()
        event = decode_message(data, self.pattern, tag)
        payload = self.scene.record.name(event)
        self.scene.record.received(self.seen, event.topic, event.source, event.seq, payload)
        asyncio.get_running_loop().call_later(self.think_s(), self._settle, self._attached, delivery, payload)

    def _settle(self, attached: int, delivery: Any, payload: bytes) -> None:
        client, link = self._client, self._link
        if client.over.done() or attached != self._attached:
            return  # the delivery went with its link
        plan = self.scene.plan
        weights = (1.0, 0.0, 0.0, 0.0) if self.scene.is_calm else (1.0, plan.release, plan.fail, plan.reject)
        match self.rng.choices(("accept", "release", "modify", "reject"), weights)[0]:
            case "release" if self.is_durable or self.is_balanced:
                delivery.update(delivery.RELEASED)
            case "modify" if self.is_durable or self.is_balanced:
                delivery.local.failed = True
                delivery.local.undeliverable = self.is_balanced and self.rng.random() < 0.3
                delivery.update(delivery.MODIFIED)
            case "reject" if self.is_durable or self.is_balanced:
                self.seen.rejected.add(payload)
                delivery.local.condition = refusal()
                delivery.update(delivery.REJECTED)
            case _:
                self.scene.record.accepted(self.seen, payload)
                delivery.update(delivery.ACCEPTED)
        delivery.settle()
        link.flow(1)
        client.turn()


def refusal() -> Any:
    """Why a receiver rejects a message."""
    from proton import Condition

    return Condition("app:unwanted", "not wanted")
