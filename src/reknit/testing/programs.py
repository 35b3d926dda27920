"""Client programs in a simulation: the production machines, a simulated connection, and applications with moods.

What a session does over asyncio is done here over the virtual clock: introduce itself, connect again, and bring
every message to the machine that it is for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.ledger import Stream
from reknit.outcome import Outcome
from reknit.protocol import publisher as publishing
from reknit.protocol import subscriber as subscribing
from reknit.protocol.codec import Decoder, Frames, Item, encode
from reknit.protocol.messages import (
    VERSION,
    Ack,
    Deliver,
    Expect,
    Go,
    Hello,
    Hold,
    Lost,
    Message,
    Refuse,
    Settled,
    Start,
    Subscribed,
    Unsubscribed,
    Welcome,
)
from reknit.testing.network import End
from reknit.testing.verdict import Seen, name_of

if TYPE_CHECKING:
    from reknit.testing.simulation import Simulation


class Program:
    """A process with one connection to one node, that crashes and starts again."""

    def __init__(self, name: str, node: str, sim: Simulation, rng: Random) -> None:
        self.name = name
        self.node = node
        self.sim = sim
        self.rng = rng
        self.is_up = False
        self.is_connected = False
        """The node has introduced itself."""
        self.life = 0
        self._end: End | None = None
        self._decoder = Decoder()
        self._delivery: tuple[Deliver, int] | None = None

    # -- life

    def start(self) -> None:
        self.life += 1
        self.is_up = True
        self.sim.tell(self.name, "starts")
        self.begin()
        self._connect()

    def crash(self) -> None:
        self.sim.tell(self.name, "crashes")
        self.life += 1
        self.is_up = self.is_connected = False
        self._end = None
        self.sim.network.fall_silent(self.name)
        self.end()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something later, in this life of the program."""
        life = self.life
        self.sim.clock.after(delay_s, lambda: action() if self.life == life else None)

    # -- the connection

    def _connect(self) -> None:
        if self._end is None and not self.sim.network.connect(self.name, self.node, self):
            self.after(self.rng.uniform(0.0, self.sim.plan.reconnect_s_max) + 0.01, self._connect)

    def opened(self, end: End) -> None:
        self._end, self._decoder, self._delivery = end, Decoder(), None
        end.send(encode(Hello(VERSION, self.name)))

    def lost(self, end: End) -> None:
        if end is not self._end:
            return
        self._end = None
        if self.is_connected:
            self.is_connected = False
            self.sim.tell(self.name, "lost its connection")
            self.unlinked()
        self.after(self.rng.uniform(0.0, self.sim.plan.reconnect_s_max), self._connect)

    def blocked(self, end: End, is_blocked: bool) -> None:
        """A client goes on: its windows bound what it sends."""

    def say(self, *data: bytes) -> None:
        if self._end is not None and self.is_connected:
            self._end.send(b"".join(data))

    def received(self, end: End, data: bytes) -> None:
        if end is not self._end:
            return
        for item in self._decoder.feed(data):
            self._take(item)

    def _take(self, item: Item) -> None:
        match item:
            case Welcome(epoch=epoch):
                self.is_connected = True
                self.sim.tell(self.name, "is connected")
                self.linked(epoch)
            case Deliver():
                self._delivery = (item, item.size)
            case Frames():
                self._delivered(item)
            case _:
                self.sim.tell(f"{self.name} < {self.node}", item)
                self.take(item)

    def _delivered(self, frames: Frames) -> None:
        assert self._delivery is not None, "batches are announced"
        deliver, rest = self._delivery
        rest -= len(frames.data)
        self._delivery = (deliver, rest) if rest > 0 else None
        batches: list[Batch] = []
        at = 0
        for head in frames.heads:
            batches.append(Batch(head, frames.data[at : at + head.length]))
            at += head.length
        position = deliver.position if rest <= 0 else -1
        self.sim.tell(f"{self.name} < {self.node}", deliver, *batches)
        self.take(subscribing.Delivered(batches, position, deliver.attempt, deliver.counted))

    # -- what a kind of program adds

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def linked(self, epoch: str) -> None: ...

    def unlinked(self) -> None: ...

    def take(self, item: object) -> None: ...

    @property
    def is_done(self) -> bool:
        """Whether it is connected and waits for nothing."""
        return self.is_connected


class PublisherProgram(Program):
    """Publishes at random times until the run is over, and remembers what it was promised."""

    def __init__(self, name: str, node: str, sim: Simulation, rng: Random, topic: str, lasting: bool) -> None:
        super().__init__(name, node, sim, rng)
        self.topic = topic
        self.lasting = lasting
        self.machine: publishing.Publisher

    def begin(self) -> None:
        source = f"{self.name}" if self.lasting else f"{self.name}.{self.life}"
        self.machine = self.sim.parts.publisher(source.encode().ljust(16, b"_"), self.topic, self.lasting)
        self._confirmed: dict[int, bytes] = {}
        self._put_later()

    def _put_later(self) -> None:
        self.after(self.rng.expovariate(self.sim.plan.put_rate), self._put)

    def _put(self) -> None:
        if self.sim.is_calm:
            return
        if self.machine.numbered and self.machine.state is not publishing.State.REFUSED:
            plan, machine = self.sim.plan, self.machine
            count = self.rng.randint(1, plan.burst_max)
            first, life = machine.next_seq, self.life
            marks = [f"{self.name} {life} {seq} ".encode() for seq in range(first, first + count)]
            payloads = [mark + bytes(self.rng.randint(0, plan.payload_bytes_max)) for mark in marks]
            self.sim.witness.put((self.topic, machine.source), first, payloads, self.node)
            self._confirmed.update(zip(range(first, first + count), payloads, strict=True))
            batch = machine.put(payloads, self.sim.clock.now_us())
            self.sim.tell(self.name, "publishes", batch)
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
        self.machine.receive(item, self.node, self.sim.clock.now)
        self._perform()

    def _perform(self) -> None:
        out: list[bytes] = []
        for effect in self.machine.take_effects():
            match effect:
                case publishing.SendBytes(data=data):
                    out.append(bytes(data))
                case publishing.SendMessage(message=message):
                    out.append(encode(message))
                case publishing.Confirm(stop=stop):
                    self._confirm(stop)
                case publishing.Numbered():
                    pass
                case publishing.Refused(text=text):
                    self.sim.witness.blame(f"{self.name} was refused: {text}")
        if out:
            self.say(*out)

    def _confirm(self, stop: int) -> None:
        for seq in [seq for seq in self._confirmed if seq < stop]:
            self.sim.witness.confirm((self.topic, self.machine.source), seq, self._confirmed.pop(seq))

    @property
    def is_done(self) -> bool:
        return self.is_connected and not self.machine.unacked


class SubscriberProgram(Program):
    """Takes events at its own pace, and accepts, releases, fails and rejects them as its mood is."""

    def __init__(
        self, name: str, node: str, sim: Simulation, rng: Random, pattern: str, durable: bool, history: bool
    ) -> None:
        super().__init__(name, node, sim, rng)
        self.pattern = pattern
        self.durable = durable
        self.history = history
        self.machine: subscribing.Subscriber
        self.seen: Seen

    def begin(self) -> None:
        plan = self.sim.plan
        start = Start(history=self.history)
        name = self.name if self.durable else ""
        self.machine = self.sim.parts.subscriber(1, self.pattern, name, start, plan.credit_bytes)
        identity = self.name if self.durable else f"{self.name}.{self.life}"
        self.seen = self.sim.witness.subscriber(identity, self.node, self.pattern, self.durable, self.history)
        self._inbox: deque[Batch] = deque()
        self._is_thinking = False
        self._said: deque[tuple[int, Stream, int, int, Outcome]] = deque()

    def end(self) -> None:
        self.seen.crashed()

    def linked(self, epoch: str) -> None:
        self._receive(subscribing.Connected(epoch))

    def unlinked(self) -> None:
        self._receive(subscribing.Disconnected())

    def take(self, item: object) -> None:
        match item:
            case subscribing.Delivered() | Settled() | Subscribed() | Unsubscribed() | Lost():
                self._receive(item)

    def _receive(self, item: subscribing.Input) -> None:
        self.machine.receive(item, self.node, self.sim.clock.now)
        self._perform()

    def _perform(self) -> None:
        out: list[Message] = []
        for effect in self.machine.take_effects():
            match effect:
                case subscribing.Hand(batches=batches):
                    for batch in batches:
                        self.seen.handed(batch)
                    self._inbox += batches
                    self._think()
                case subscribing.SendMessage(message=message):
                    out.append(message)
                case subscribing.Booked(number=number):
                    self._booked(number)
                case subscribing.Opened():
                    self.seen.opened()
                case subscribing.Report():
                    self.sim.tell(self.name, effect)
                    self.seen.reported_lost(effect)
                case subscribing.Ended(text=text):
                    self.sim.witness.blame(f"{self.name} was ended: {text}")
        if out:
            self.say(*map(encode, out))

    # -- the application

    def _think(self) -> None:
        if self._inbox and not self._is_thinking:
            self._is_thinking = True
            self.after(self.rng.uniform(0.0, self.sim.plan.think_s_max), self._decide)

    def _decide(self) -> None:
        self._is_thinking = False
        batch = self._inbox.popleft()
        self.machine.taken(batch.head.length if batch.attempt == 1 else 0)
        start = batch.first
        while start < batch.stop:
            stop = batch.stop if self.rng.random() < 0.7 else self.rng.randint(start + 1, batch.stop)
            self._settle((batch.topic, batch.source), start, stop)
            start = stop
        self._perform()
        self.after(self.rng.choice((0.0, 0.0, 0.05)), self._flush)
        self._think()

    def _settle(self, stream: Stream, start: int, stop: int) -> None:
        outcome = Outcome.ACCEPTED
        if not self.sim.is_calm:
            plan = self.sim.plan
            moods = (Outcome.ACCEPTED, Outcome.RELEASED, Outcome.FAILED, Outcome.REJECTED)
            outcome = self.rng.choices(moods, (plan.accept, plan.release, plan.fail, plan.reject))[0]
        self.seen.settled(stream, start, stop, outcome)
        self._said.append((-1, stream, start, stop, outcome))
        delay_s = self.rng.choice((0.0, 0.3)) if outcome is Outcome.FAILED else 0.0
        self.sim.tell(self.name, outcome.name, name_of(stream), start, stop)
        self.machine.settle(stream, start, stop, outcome, delay_s=delay_s)

    def _flush(self) -> None:
        number = self.machine.flush()
        self._said = deque((at if at >= 0 else number, *rest) for at, *rest in self._said)  # type: ignore[misc]
        self._perform()

    def _booked(self, number: int) -> None:
        while self._said and 0 <= self._said[0][0] <= number:
            _, stream, start, stop, outcome = self._said.popleft()
            if outcome.is_final:
                self.seen.booked(stream, start, stop)

    @property
    def is_done(self) -> bool:
        return self.is_connected and not self._inbox and self.machine.is_settled
