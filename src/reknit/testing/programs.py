"""A client program in a simulation: the production machines behind a simulated connection.

It does over the virtual clock what a session does over asyncio: introduce itself, reconnect, and pass every message to
its machine.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from reknit.batch import Batch
from reknit.protocol.recovery.cache_requests import CacheRequests
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.testing.network import ConnectionEnd
from reknit.testing.world import World
from reknit.wire.announced import Announced
from reknit.wire.codec import Decoder, Frames, Item, encode
from reknit.wire.messages import VERSION, Deliver, Hello, Welcome
from reknit.wire.recovery import Recovered, Surveyed


class Program:
    """A process with one connection to one node, that crashes and restarts."""

    def __init__(self, name: str, node: str, world: World, rng: Random) -> None:
        self.name = name
        self.node = node
        self.world = world
        self.rng = rng
        self.is_up = False
        self.is_connected = False
        """The node has introduced itself."""
        self.is_retired = False
        """It does not start again."""
        self.life = 0
        self._end: ConnectionEnd | None = None
        self._decoder = Decoder()
        self._announced: Announced[Deliver] = Announced()
        self.inquiries = CacheRequests()

    # -- life

    def start(self) -> None:
        self.life += 1
        self.is_up = True
        self.world.tell(self.name, "starts")
        self.begin()
        self._connect()

    def crash(self) -> None:
        self.world.tell(self.name, "crashes")
        self.life += 1
        self.is_up = self.is_connected = False
        self._end = None
        self.inquiries = CacheRequests()
        self.world.network.crash(self.name)
        self.end()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run an action later, unless the program has crashed by then."""
        life = self.life
        self.world.clock.after(delay_s, lambda: action() if self.life == life else None)

    # -- the connection

    def _connect(self) -> None:
        if self._end is None and not self.world.network.connect(self.name, self.node, self):
            self.after(self.rng.uniform(0.0, self.world.plan.reconnect_s_max) + 0.01, self._connect)

    def opened(self, end: ConnectionEnd) -> None:
        self._end, self._decoder, self._announced = end, Decoder(), Announced()
        end.send(encode(Hello(VERSION, self.name)))

    def lost(self, end: ConnectionEnd) -> None:
        if end is not self._end:
            return
        self._end = None
        if self.is_connected:
            self.is_connected = False
            self.world.tell(self.name, "lost its connection")
            self.inquiries.lost()
            self.unlinked()
        if self.is_up:
            self.after(self.rng.uniform(0.0, self.world.plan.reconnect_s_max), self._connect)

    def blocked(self, end: ConnectionEnd, is_blocked: bool) -> None:
        """Ignored: a client's windows limit its sending."""

    def say(self, *data: bytes) -> None:
        if self._end is not None and self.is_connected:
            self._end.send(b"".join(data))

    def received(self, end: ConnectionEnd, data: bytes) -> None:
        if end is not self._end:
            return
        for item in self._decoder.feed(data):
            self._take(item)

    def _take(self, item: Item) -> None:
        match item:
            case Welcome(epoch=epoch):
                self.is_connected = True
                self.world.tell(self.name, "is connected")
                self.linked(epoch)
            case Deliver():
                self._announced.announce(item)
            case Frames() if self._announced.message is None:
                rest = self.inquiries.take_frames(item)
                assert rest is None, "batches are announced"
            case Frames():
                self._delivered(item)
            case Recovered() | Surveyed():
                self.world.tell(f"{self.name} < {self.node}", item)
                self.inquiries.take(item)
            case _:
                self.world.tell(f"{self.name} < {self.node}", item)
                self.take(item)

    def _delivered(self, frames: Frames) -> None:
        announced = self._announced.take(len(frames.data))
        assert announced is not None, "batches are announced"
        deliver, is_last = announced
        batches: list[Batch] = []
        at = 0
        for head in frames.heads:
            batches.append(Batch(head, frames.data[at : at + head.length]))
            at += head.length
        position = deliver.position if is_last else -1
        self.world.tell(f"{self.name} < {self.node}", deliver, *batches)
        how = (deliver.attempt, deliver.counted, deliver.ordered_to)
        self.take(subscribing.Delivered(batches, position, *how))

    # -- overridden by publishers and subscribers

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def linked(self, epoch: str) -> None: ...

    def unlinked(self) -> None: ...

    def take(self, item: object) -> None: ...

    @property
    def is_done(self) -> bool:
        """Whether it is connected and waits for nothing."""
        return self.is_connected
