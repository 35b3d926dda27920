"""Publishing from within the node's process: what HTTP requests bring becomes batches, as any publisher's.

It is a peer of the node like others, over a connection in memory. What comes for a topic in one turn of the loop is
one batch; a request is answered when its event is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

import xxhash

from reknit.errors import Closed, MalformedFrame, Refused
from reknit.frame import Buffer
from reknit.protocol.publish import publisher as machines
from reknit.transport import memory
from reknit.transport.connection import Connection, Handler
from reknit.wire.codec import Item, encode
from reknit.wire.messages import VERSION, Ack, Bye, Expect, Go, Hello, Hold, Ping, Pong, Refuse, Welcome

PUBLISHERS_MAX: Final = 10_000
"""Topics with a publisher at hand; an idle one is dropped first, and made anew when it is needed."""
BATCH_EVENTS_MAX: Final = 10_000
Kept = asyncio.Future[None]


class _Source:
    """One topic's publisher: what gathers for the next batch, and who waits for what was sent."""

    __slots__ = ("gathered", "machine", "waiting")

    def __init__(self, source: bytes, topic: str) -> None:
        self.machine = machines.Publisher(source, topic, lasting=True)
        self.gathered: list[tuple[bytes, dict[str, str], int, Kept]] = []
        self.waiting: deque[tuple[int, list[Kept]]] = deque()

    @property
    def is_idle(self) -> bool:
        return not self.gathered and not self.waiting


class Inlet:
    """The publishers behind the HTTP server of one node."""

    def __init__(self, node: Handler, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._sources: dict[str, _Source] = {}
        self._by_source: dict[bytes, _Source] = {}
        self._is_turn_due = False
        self._is_up = False
        self._held = ""
        url = f"memory://http-{id(self)}"
        stop = memory.listen(url, node)
        self._connection: Connection = memory.connect(url, self)
        stop()

    def publish(self, topic: str, payload: bytes, headers: Mapping[str, str], ttl_ms: int = 0) -> Kept:
        """Publish an event; the future is done when it is kept, or fails with `Refused` or `Closed`."""
        kept: Kept = self._loop.create_future()
        self._source(topic).gathered.append((payload, dict(headers), ttl_ms, kept))
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)
        return kept

    @property
    def held(self) -> str:
        """Why the node takes nothing for now, or nothing."""
        return self._held

    def _source(self, topic: str) -> _Source:
        source = self._sources.pop(topic, None)
        if source is None:
            if len(self._sources) >= PUBLISHERS_MAX:
                self._drop_idle()
            name = xxhash.xxh3_128_digest(f"http\0{self._name}\0{topic}".encode())
            source = self._by_source[name] = _Source(name, topic)
            if self._is_up:
                self._feed(source, machines.Connected())
        self._sources[topic] = source  # the one used last is dropped last
        return source

    def _drop_idle(self) -> None:
        for topic, source in self._sources.items():
            if source.is_idle:
                del self._sources[topic], self._by_source[source.machine.source]
                return

    def close(self) -> None:
        """Part. Who still waits is told."""
        self._connection.close()
        self._fail(Closed("the HTTP server", "try again later"))

    def _fail(self, error: Exception) -> None:
        self._is_up = False
        sources, self._sources, self._by_source = self._sources, {}, {}
        for source in sources.values():
            _refuse(source, error)

    # -- batches

    def _turn(self) -> None:
        self._is_turn_due = False
        for source in list(self._sources.values()):
            if source.gathered and source.machine.numbered:
                self._cut(source)

    def _cut(self, source: _Source) -> None:
        """Batches of what gathered: one, unless times to live differ or there is very much."""
        gathered, source.gathered = source.gathered, []
        start = 0
        for at in range(1, len(gathered) + 1):
            if at < len(gathered) and gathered[at][2] == gathered[start][2] and at - start < BATCH_EVENTS_MAX:
                continue
            part = gathered[start:at]
            columns = {"headers": [headers for _, headers, _, _ in part]}
            payloads = [payload for payload, _, _, _ in part]
            batch = source.machine.put(payloads, time.time_ns() // 1000, ttl_ms=part[0][2], columns=columns)
            source.waiting.append((batch.stop, [kept for _, _, _, kept in part]))
            start = at
        self._perform(source)

    # -- the connection

    def opened(self, connection: Connection) -> None:
        connection.send((encode(Hello(VERSION, "http")),))

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        raise AssertionError(f"our own node: {error}")

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        """A connection in memory is never full."""

    def lost(self, connection: Connection) -> None:
        self._fail(Closed("the node", "try again later"))

    def received(self, connection: Connection, items: list[Item]) -> None:
        for item in items:
            match item:
                case Welcome():
                    self._is_up = True
                    self._tell(machines.Connected())
                case Ping():
                    connection.send((encode(Pong()),))
                case Ack() | Expect() | Refuse():
                    source = self._by_source.get(item.source)
                    if source is not None:
                        self._feed(source, item)
                case Hold(text=text):
                    self._held = text
                    self._tell(item)
                case Go():
                    self._held = ""
                    self._tell(item)
                case Bye():
                    connection.close()
                case _:
                    pass

    def _tell(self, message: machines.Input) -> None:
        for source in list(self._sources.values()):
            self._feed(source, message)

    def _feed(self, source: _Source, message: machines.Input) -> None:
        source.machine.receive(message, "node", self._loop.time())
        self._perform(source)

    def _perform(self, source: _Source) -> None:
        buffers: list[Buffer] = []
        for effect in source.machine.take_effects():
            match effect:
                case machines.SendBytes(data=data):
                    buffers.append(data)
                case machines.SendToNode(message=message):
                    buffers.append(encode(message))
                case machines.Confirm(stop=stop):
                    while source.waiting and source.waiting[0][0] <= stop:
                        for kept in source.waiting.popleft()[1]:
                            if not kept.done():
                                kept.set_result(None)
                case machines.Numbered():
                    self._loop.call_soon(self._turn)
                case machines.PublishRefused(code=code, text=text):
                    self._by_source.pop(source.machine.source, None)
                    self._sources.pop(source.machine.topic, None)
                    _refuse(source, Refused(code, text))
        if buffers:
            self._connection.send(buffers)


def _refuse(source: _Source, error: Exception) -> None:
    futures = [kept for _, group in source.waiting for kept in group]
    futures += [kept for _, _, _, kept in source.gathered]
    source.waiting.clear()
    source.gathered.clear()
    for future in futures:
        if not future.done():
            future.set_exception(error)
            future.exception()
