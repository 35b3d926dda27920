"""A program that asks its node for an address of its own, as AMQP clients do for replies, and writes to it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from reknit.testing.fabric.nodes import AMQP_PORT, FabricNode
from reknit.testing.fabric.programs.amqp.client import AmqpClient
from reknit.testing.fabric.programs.amqp.messages import decode_message, encode_message
from reknit.testing.fabric.programs.program import Program, Scene

CREDIT: Final = 10


class AmqpEchoProgram(Program):
    """Attaches a link with a dynamic address, and sends messages there that name the address themselves."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._client: AmqpClient
        self._count = 0
        self._address = ""
        self._sent: dict[str, bytes] = {}
        """By tag: what has no outcome."""

    @property
    def is_done(self) -> bool:
        return self.scene.is_calm and not self._sent and not self.scene.record.echoes

    def crash(self) -> None:
        super().crash()
        self._forget()

    def _forget(self) -> None:
        """The address went with its link, and everything on its way to it."""
        self._address = ""
        self._sent.clear()
        self.scene.record.echoes.clear()

    async def live(self) -> None:
        self._forget()
        client = self._client = AmqpClient(self.name, self._on_event)
        try:
            session = await client.open(self.node.host.address, AMQP_PORT)
            link = session.receiver("replies")
            link.source.dynamic = True
            link.open()
            link.flow(CREDIT)
            sender = session.sender("to anybody")
            sender.open()
            client.turn()
            while not client.over.done():
                if self._address and sender.credit > 0 and not self.scene.is_calm:
                    self._send(sender)
                await asyncio.wait((client.over,), timeout=self.rng.expovariate(self.scene.plan.put_rate))
                if self.rng.random() < 0.2:
                    link.drain(CREDIT)
                elif link.credit < CREDIT // 2:
                    link.flow(CREDIT)
                client.turn()
            await client.over
        finally:
            client.abort()
            self._forget()

    def _send(self, sender: Any) -> None:
        self._count += 1
        text = f"{self.name} {self._count}".encode()
        delivery = sender.delivery(str(self._count))
        self._sent[delivery.tag] = text
        sender.stream(encode_message(text, self.rng, self._address))
        sender.advance()

    def _on_event(self, name: str, what: Any) -> None:
        if name == "PN_LINK_REMOTE_OPEN" and what.is_receiver:
            self._address = str(what.remote_source.address)
        elif name == "PN_LINK_REMOTE_CLOSE":
            self._client.abort()
        elif name == "PN_DELIVERY" and what.link is not None and what.link.is_receiver:
            if what.readable and not what.partial:
                self._receive(what)
        elif name == "PN_DELIVERY" and what.settled:
            self._told(self._sent.pop(what.tag, b""), what.remote_state.name)
            what.settle()

    def _told(self, text: bytes, state: str) -> None:
        if text and state == "ACCEPTED" and not self.scene.record.echoes.pop(text, False):
            self.scene.record.echoes[text] = False  # it is owed now

    def _receive(self, delivery: Any) -> None:
        data, tag = delivery.link.recv(delivery.pending), delivery.tag
        delivery.link.advance()
        text = decode_message(data, self._address, tag).payload
        is_owed = self.scene.record.echoes.pop(text, None) is not None
        if not is_owed and text in self._sent.values():
            self.scene.record.echoes[text] = True  # it came before its outcome
        delivery.update(delivery.ACCEPTED)
        delivery.settle()
        self._client.turn()
