"""Programs that publish, and record the node's confirmations."""

from __future__ import annotations

from random import Random

from reknit.protocol.publish import publisher as publishing
from reknit.testing.programs import Program
from reknit.testing.world import World
from reknit.wire.codec import encode
from reknit.wire.messages import Ack, Expect, Go, Hold, Refuse


class PublisherProgram(Program):
    """Publishes at random times until the faults are over, and reports confirmed events to the witness."""

    def __init__(self, name: str, node: str, world: World, rng: Random, topic: str, lasting: bool) -> None:
        super().__init__(name, node, world, rng)
        self.topic = topic
        self.lasting = lasting
        self.machine: publishing.SourcePublisher

    def begin(self) -> None:
        source = f"{self.name}" if self.lasting else f"{self.name}.{self.life}"
        self.machine = self.world.parts.publisher(source.encode().ljust(16, b"_"), self.topic, self.lasting)
        self._confirmed: dict[int, bytes] = {}
        self._put_later()

    def _put_later(self) -> None:
        self.after(self.rng.expovariate(self.world.plan.put_rate), self._put)

    def _put(self) -> None:
        if self.world.is_calm:
            return
        if self.machine.numbered and self.machine.state is not publishing.PublisherState.REFUSED:
            plan, machine = self.world.plan, self.machine
            count = self.rng.randint(1, plan.burst_max)
            first, life = machine.next_seq, self.life
            marks = [f"{self.name} {life} {seq} ".encode() for seq in range(first, first + count)]
            payloads = [mark + bytes(self.rng.randint(0, plan.payload_bytes_max)) for mark in marks]
            self.world.witness.put((self.topic, machine.source), first, payloads, self.node)
            self._confirmed.update(zip(range(first, first + count), payloads, strict=True))
            batch = machine.put(payloads, self.world.clock.now_us(), ttl_ms=plan.ttl_ms)
            self.world.tell(self.name, "publishes", batch)
            self._perform()
        self._put_later()

    def linked(self, epoch: str) -> None:
        self._receive(publishing.Connected())

    def unlinked(self) -> None:
        self._receive(publishing.Disconnected())

    def take(self, item: object) -> None:
        match item:
            case Ack(source=source) | Expect(source=source) | Refuse(source=source):
                if source == self.machine.source:
                    self._receive(item)
            case Hold() | Go():
                self._receive(item)

    def _receive(self, item: publishing.Input) -> None:
        self.machine.receive(item, self.node, self.world.clock.now)
        self._perform()

    def _perform(self) -> None:
        out: list[bytes] = []
        for effect in self.machine.take_effects():
            match effect:
                case publishing.SendBytes(data=data):
                    out.append(bytes(data))
                case publishing.SendToNode(message=message):
                    out.append(encode(message))
                case publishing.Confirm(stop=stop):
                    self._confirm(stop)
                case publishing.Numbered():
                    pass
                case publishing.PublishRefused(text=text):
                    self.world.witness.blame(f"{self.name} was refused: {text}")
        if out:
            self.say(*out)

    def _confirm(self, stop: int) -> None:
        for seq in [seq for seq in self._confirmed if seq < stop]:
            self.world.witness.confirm((self.topic, self.machine.source), seq, self._confirmed.pop(seq))

    @property
    def is_done(self) -> bool:
        return self.is_connected and not self.machine.unacked
