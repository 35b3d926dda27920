"""The publishers behind the HTTP server: the events of requests become batches, as any publisher's do.

They are a peer of the node, over a connection in memory. All events for a topic within one turn of the event loop
form one batch. A request is answered when its event is stored.
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
"""How many topics have a publisher. Past it an idle publisher is evicted; it is made again when it is needed."""
BATCH_EVENTS_MAX: Final = 10_000
Storage = asyncio.Future[None]
"""Done when an event is stored. Fails with `Refused` or `Closed`."""


class _TopicPublisher:
    """One topic's publisher: the events of its next batch, and the requests that wait for batches already sent."""

    __slots__ = ("gathered", "machine", "waiting")

    def __init__(self, source: bytes, topic: str) -> None:
        self.machine = machines.SourcePublisher(source, topic, lasting=True)
        self.gathered: list[tuple[bytes, dict[str, str], int, Storage]] = []
        """Payload, headers, time to live in ms, and the future of each event."""
        self.waiting: deque[tuple[int, list[Storage]]] = deque()
        """By the seq at which a batch stops: the futures of its events."""

    @property
    def is_idle(self) -> bool:
        return not self.gathered and not self.waiting

    def make_batches(self) -> None:
        """Make batches of the gathered events: one, unless times to live differ or there are too many events."""
        gathered, self.gathered = self.gathered, []
        start = 0
        for at in range(1, len(gathered) + 1):
            if at < len(gathered) and gathered[at][2] == gathered[start][2] and at - start < BATCH_EVENTS_MAX:
                continue
            part = gathered[start:at]
            columns = {"headers": [headers for _, headers, _, _ in part]}
            payloads = [payload for payload, _, _, _ in part]
            batch = self.machine.put(payloads, time.time_ns() // 1000, ttl_ms=part[0][2], columns=columns)
            self.waiting.append((batch.stop, [stored for _, _, _, stored in part]))
            start = at

    def confirm(self, stop: int) -> None:
        """Everything before `stop` is stored."""
        while self.waiting and self.waiting[0][0] <= stop:
            for stored in self.waiting.popleft()[1]:
                if not stored.done():
                    stored.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fail the requests that wait: their events will not be stored."""
        futures = [stored for _, group in self.waiting for stored in group]
        futures += [stored for _, _, _, stored in self.gathered]
        self.waiting.clear()
        self.gathered.clear()
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()


class HttpPublishers:
    """The publishers of one node's HTTP server, one per topic."""

    def __init__(self, node: Handler, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._by_topic: dict[str, _TopicPublisher] = {}
        """The least recently used first."""
        self._by_source: dict[bytes, _TopicPublisher] = {}
        self._is_turn_due = False
        self._is_up = False
        self._held = ""
        url = f"memory://http-{id(self)}"
        stop = memory.listen(url, node)
        self._connection: Connection = memory.connect(url, self)
        stop()

    def publish(self, topic: str, payload: bytes, headers: Mapping[str, str], ttl_ms: int = 0) -> Storage:
        """Publish an event. The future is done when it is stored, or fails with `Refused` or `Closed`."""
        stored: Storage = self._loop.create_future()
        self._publisher(topic).gathered.append((payload, dict(headers), ttl_ms, stored))
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)
        return stored

    @property
    def held(self) -> str:
        """Why the node accepts no events for now; empty if it does."""
        return self._held

    def _publisher(self, topic: str) -> _TopicPublisher:
        publisher = self._by_topic.pop(topic, None)
        if publisher is None:
            if len(self._by_topic) >= PUBLISHERS_MAX:
                self._evict_idle()
            source = xxhash.xxh3_128_digest(f"http\0{self._name}\0{topic}".encode())
            publisher = self._by_source[source] = _TopicPublisher(source, topic)
            if self._is_up:
                self._receive(publisher, machines.Connected())
        self._by_topic[topic] = publisher
        return publisher

    def _evict_idle(self) -> None:
        for topic, publisher in self._by_topic.items():
            if publisher.is_idle:
                del self._by_topic[topic], self._by_source[publisher.machine.source]
                return

    def close(self) -> None:
        """Close the connection. Requests that still wait fail."""
        self._connection.close()
        self._fail(Closed("the HTTP server", "try again later"))

    def _fail(self, error: Exception) -> None:
        self._is_up = False
        publishers, self._by_topic, self._by_source = self._by_topic, {}, {}
        for publisher in publishers.values():
            publisher.fail(error)

    # -- batches

    def _turn(self) -> None:
        self._is_turn_due = False
        for publisher in list(self._by_topic.values()):
            if publisher.gathered and publisher.machine.numbered:
                publisher.make_batches()
                self._perform(publisher)

    # -- the connection

    def opened(self, connection: Connection) -> None:
        connection.send((encode(Hello(VERSION, "http")),))

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        raise AssertionError(f"our own node broke the protocol: {error}")

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        """A connection in memory is never full."""

    def lost(self, connection: Connection) -> None:
        self._fail(Closed("the node", "try again later"))

    def received(self, connection: Connection, items: list[Item]) -> None:
        for item in items:
            match item:
                case Welcome():
                    self._is_up = True
                    self._receive_all(machines.Connected())
                case Ping():
                    connection.send((encode(Pong()),))
                case Ack() | Expect() | Refuse():
                    publisher = self._by_source.get(item.source)
                    if publisher is not None:
                        self._receive(publisher, item)
                case Hold(text=text):
                    self._held = text
                    self._receive_all(item)
                case Go():
                    self._held = ""
                    self._receive_all(item)
                case Bye():
                    connection.close()
                case _:
                    pass

    def _receive_all(self, message: machines.Input) -> None:
        for publisher in list(self._by_topic.values()):
            self._receive(publisher, message)

    def _receive(self, publisher: _TopicPublisher, message: machines.Input) -> None:
        publisher.machine.receive(message, "node", self._loop.time())
        self._perform(publisher)

    def _perform(self, publisher: _TopicPublisher) -> None:
        """Perform the effects of a publisher's machine."""
        buffers: list[Buffer] = []
        for effect in publisher.machine.take_effects():
            match effect:
                case machines.SendBytes(data=data):
                    buffers.append(data)
                case machines.SendToNode(message=message):
                    buffers.append(encode(message))
                case machines.Confirm(stop=stop):
                    publisher.confirm(stop)
                case machines.Numbered():
                    self._loop.call_soon(self._turn)
                case machines.PublishRefused(code=code, text=text):
                    self._by_source.pop(publisher.machine.source, None)
                    self._by_topic.pop(publisher.machine.topic, None)
                    publisher.fail(Refused(code, text))
        if buffers:
            self._connection.send(buffers)
