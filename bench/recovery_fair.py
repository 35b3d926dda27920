"""The fair cases of `python -m bench.recovery`: one course for both sides, default limits, and asyncio's own loop.

Here a side is a middle (a node, a router) that can be killed, a publisher and a subscriber. The subscriber reaches the
middle through a proxy, which is a process of its own and cuts the link.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from bench.recovery_actors import Actor, Meter, Result, ended
from bench.recovery_reknit import reknit_publisher, reknit_subscriber
from bench.recovery_zenoh import zenoh_publisher, zenoh_router, zenoh_subscriber
from reknit.processes.process import NodeProcess, free_port

REVEAL_S = 0.02
"""How often a further event is published, which shows what is missing."""


class Wire:
    """Passes connections on, until it is cut."""

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self._is_cut = False
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._is_cut = True
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def heal(self) -> None:
        self._is_cut = False

    def _accept(self) -> None:
        while True:
            here, _ = self._listening.accept()
            try:
                if self._is_cut:
                    raise OSError
                there = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                here.close()
                continue
            self._open += [here, there]
            for ends in ((here, there), (there, here)):
                ends[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_copy, args=ends, daemon=True).start()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 18):
            other.sendall(data)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def wire(port: int, target: int, pipe: Connection) -> None:
    made = Wire(port, target)
    pipe.send("up")
    while (word := pipe.recv()) is not None:
        (made.cut if word == "cut" else made.heal)()
        pipe.send(word)


class Middle(Protocol):
    """A node or a router."""

    port: int

    @property
    def pid(self) -> int | None: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...


class Router:
    """Zenoh's, on a fixed port."""

    def __init__(self) -> None:
        self.port = free_port()
        self._actor: Actor | None = None

    @property
    def pid(self) -> int | None:
        return self._actor.process.pid if self._actor is not None else None

    def start(self) -> None:
        self._actor = Actor(zenoh_router, self.port).ready()

    def kill(self) -> None:
        if self._actor is not None:
            self._actor.end()


class Side:
    """A middle, a publisher, a subscriber and the link between it and the middle."""

    def __init__(self, is_reknit: bool, folder: Path, count: int, history: bool) -> None:
        self.middle: Middle = NodeProcess(folder) if is_reknit else Router()
        self.middle.start()
        port, via = self.middle.port, free_port()
        self.link = Actor(wire, via, port).ready()
        if is_reknit:
            urls = [f"tcp://127.0.0.1:{one}" for one in (port, via)]
            self.publisher = Actor(reknit_publisher, urls[0], True)
            self.subscriber = Actor(reknit_subscriber, urls[1], history, True)
        else:
            self.publisher = Actor(zenoh_publisher, port, count + 10_000)
            self.subscriber = Actor(zenoh_subscriber, via, history)
        self.publisher.ready()
        self.subscriber.ready()

    def meter(self) -> Meter:
        actors = (self.publisher, self.subscriber, self.link)
        return Meter(self.middle.pid, *(one.process.pid for one in actors))

    def begin(self) -> None:
        """Wait until the subscriber has the first event."""
        self.subscriber.ask(1)
        time.sleep(0.3)  # until Zenoh's publisher knows the subscriber
        self.publisher.ask((1, 2))
        self.subscriber.hear()

    def recovered(self, count: int) -> Result:
        """The time until the subscriber has `count` events from now on. A further event shows what is missing."""
        meter, begun, number = self.meter(), time.monotonic(), count + 1
        self.subscriber.say(count)
        while not self.subscriber.pipe.poll(REVEAL_S):
            self.publisher.ask((number, number + 1))
            number += 1
        return ended(self.subscriber, count, meter, begun)

    def end(self) -> None:
        for actor in (self.publisher, self.subscriber, self.link):
            actor.end()
        self.middle.kill()


@contextmanager
def running(is_reknit: bool, count: int, history: bool = False) -> Iterator[Side]:
    with tempfile.TemporaryDirectory() as folder:
        side = Side(is_reknit, Path(folder), count, history)
        try:
            yield side
        finally:
            side.end()


def late(is_reknit: bool, count: int) -> Result:
    with running(is_reknit, count, history=True) as side:
        side.publisher.ask((1, count + 1))
        time.sleep(0.3)
        meter = side.meter()
        side.subscriber.ask(count)
        return ended(side.subscriber, count, meter)


def cut(is_reknit: bool, count: int) -> Result:
    with running(is_reknit, count) as side:
        side.begin()
        side.link.ask("cut")
        side.publisher.ask((2, count + 1))
        time.sleep(0.3)
        side.link.ask("heal")
        return side.recovered(count)


def outage(is_reknit: bool, count: int) -> Result:
    with running(is_reknit, count) as side:
        side.begin()
        side.middle.kill()
        side.publisher.ask((2, count + 1, "don't wait"))
        side.middle.start()
        return side.recovered(count)
