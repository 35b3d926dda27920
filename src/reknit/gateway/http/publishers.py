"""The publishers behind the HTTP server: the events of requests become batches, as any publisher's do.

They are a peer of the node, over a connection in memory. All events for a topic within one turn of the event loop
form one batch. A request is answered when its event is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from reknit import environment
from reknit.connection.futures import fail_all
from reknit.connection.publish_driver import PublishDriver, StoredFuture
from reknit.errors import Closed, LocalError, MalformedFrame, Refused
from reknit.frame import Buffer
from reknit.lineage import lasting_source
from reknit.protocol.publish import publisher as machines
from reknit.transport import memory
from reknit.transport.connection import Connection, Handler
from reknit.wire.codec import Item, encode
from reknit.wire.messages import (
    VERSION,
    Ack,
    Bye,
    Expect,
    Go,
    Hello,
    Hold,
    Message,
    Ping,
    Pong,
    Refuse,
    Welcome,
)

PUBLISHERS_MAX: Final = 10_000
"""How many topics have a publisher. Past it an idle publisher is evicted; it is made again when it is needed."""
BATCH_EVENTS_MAX: Final = 10_000


class _TopicPublisher:
    """One topic's publisher: the events of its next batch, and the driver of batches already sent."""

    __slots__ = ("driver", "gathered")

    def __init__(self, driver: PublishDriver) -> None:
        self.driver = driver
        self.gathered: list[tuple[bytes, dict[str, str], int, StoredFuture]] = []
        """Payload, headers, time to live in ms, and the future of each event."""

    @property
    def is_idle(self) -> bool:
        return not self.gathered and self.driver.is_idle

    def publish_gathered(self) -> None:
        """Make batches of the gathered events: one, unless times to live differ or there are too many events."""
        gathered, self.gathered = self.gathered, []
        start = 0
        for at in range(1, len(gathered) + 1):
            if at < len(gathered) and gathered[at][2] == gathered[start][2] and at - start < BATCH_EVENTS_MAX:
                continue
            part = gathered[start:at]
            columns = {"headers": [headers for _, headers, _, _ in part]}
            payloads = [payload for payload, _, _, _ in part]
            self.driver.machine.put(payloads, environment.time_us(), ttl_ms=part[0][2], columns=columns)
            self.driver.wait([stored for _, _, _, stored in part])
            start = at
        self.driver.perform()

    def fail(self, error: LocalError | Refused) -> None:
        """Nothing that waits will be stored."""
        gathered, self.gathered = self.gathered, []
        self.driver.fail(error)
        fail_all([stored for _, _, _, stored in gathered], error)


class HttpPublishers:
    """The publishers of one node's HTTP server, one per topic."""

    def __init__(self, node: Handler, name: str, epoch: str) -> None:
        self._name, self._epoch = name, epoch
        self._loop = asyncio.get_running_loop()
        self._by_topic: dict[str, _TopicPublisher] = {}
        """The least recently used first."""
        self._by_source: dict[bytes, _TopicPublisher] = {}
        self._is_turn_due = False
        self._is_up = False
        self._held = ""
        url = memory.new_url("http")
        stop = memory.listen(url, node)
        self._connection: Connection = memory.connect(url, self)
        stop()

    def publish(
        self, topic: str, payload: bytes, headers: Mapping[str, str], ttl_ms: int = 0
    ) -> StoredFuture:
        """Publish an event. The future is done when it is stored, or fails with `Refused` or `Closed`."""
        stored: StoredFuture = self._loop.create_future()
        self._publisher(topic).gathered.append((payload, dict(headers), ttl_ms, stored))
        self._turn_soon()
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
            publisher = self._make(topic)
        self._by_topic[topic] = publisher
        return publisher

    def _make(self, topic: str) -> _TopicPublisher:
        source = lasting_source(f"http\0{self._name}\0{topic}", self._epoch)
        driver = PublishDriver(
            machines.SourcePublisher(source, topic, lasting=True),
            self,
            on_refused=lambda error: self._refused(publisher, error),
            on_numbered=self._turn_soon,
        )
        publisher = self._by_source[source] = _TopicPublisher(driver)
        if self._is_up:
            driver.receive(machines.Connected())
        return publisher

    def _refused(self, publisher: _TopicPublisher, error: Refused) -> None:
        machine = publisher.driver.machine
        self._by_source.pop(machine.source, None)
        self._by_topic.pop(machine.topic, None)
        publisher.fail(error)

    def _evict_idle(self) -> None:
        for topic, publisher in self._by_topic.items():
            if publisher.is_idle:
                del self._by_topic[topic], self._by_source[publisher.driver.machine.source]
                return

    def close(self) -> None:
        """Close the connection. Requests that still wait fail."""
        self._connection.close()
        self._fail(Closed("the HTTP server", "try again later"))

    def _fail(self, error: LocalError) -> None:
        self._is_up = False
        publishers, self._by_topic, self._by_source = self._by_topic, {}, {}
        for publisher in publishers.values():
            publisher.fail(error)

    # -- batches

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        for publisher in list(self._by_topic.values()):
            if publisher.gathered and publisher.driver.machine.numbered:
                publisher.publish_gathered()

    def send(self, *messages: Message) -> None:
        """Called by the drivers: send messages to the node."""
        self._connection.send([encode(message) for message in messages])

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Called by the drivers: send batches to the node."""
        self._connection.send(buffers)

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
                        publisher.driver.receive(item)
                case Hold(text=text, sources=sources):
                    self._held = text
                    self._hold(item, sources)
                case Go():
                    self._held = ""
                    self._receive_all(item)
                case Bye():
                    connection.close()
                case _:
                    pass

    def _hold(self, hold: Hold, sources: list[bytes]) -> None:
        """Some topics have to wait; all of them, if the node names none."""
        if not sources:
            self._receive_all(hold)
        for source in sources:
            if (publisher := self._by_source.get(source)) is not None:
                publisher.driver.receive(hold)

    def _receive_all(self, message: machines.Input) -> None:
        for publisher in list(self._by_topic.values()):
            publisher.driver.receive(message)
