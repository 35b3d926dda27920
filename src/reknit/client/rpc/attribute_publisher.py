"""Events with attributes on their way to the node: gathered per topic, sent as batches, resent until stored."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

from reknit import environment
from reknit.batch import SOURCE_BYTES
from reknit.client.message_router import MessageRouter
from reknit.client.publish.batching import check_payload
from reknit.config import LimitSettings
from reknit.connection.publish_driver import PublishDriver, StoredFuture
from reknit.envelope.attributes import Attributes, check
from reknit.envelope.columns import fields_of
from reknit.errors import Closed, Full, LocalError, Refused
from reknit.lineage import lasting_source
from reknit.protocol.publish import publisher as machines

PublishAttributes = Callable[[Attributes, bytes], StoredFuture]
"""Publishes an event to the address in its attributes."""


class _Pending(NamedTuple):
    attributes: Attributes
    payload: bytes
    stored: StoredFuture


class AttributePublisher:
    """One source on one topic, for events that each have attributes of their own."""

    def __init__(
        self, router: MessageRouter, limits: LimitSettings, *, source: bytes, topic: str, lineage: str
    ) -> None:
        self._driver = PublishDriver(
            machines.SourcePublisher(source, topic, lasting=bool(lineage), lineage=lineage),
            router.connection,
            on_refused=self.fail,
            on_numbered=self._on_numbered,
        )
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._pending: list[_Pending] = []
        self._is_scheduled = False

    @property
    def source(self) -> bytes:
        return self._driver.machine.source

    @property
    def topic(self) -> str:
        return self._driver.machine.topic

    @property
    def is_failed(self) -> bool:
        return self._driver.error is not None

    @property
    def is_idle(self) -> bool:
        """Whether everything that was put in is stored."""
        return not self._pending and self._driver.is_idle

    def put(self, attributes: Attributes, payload: bytes) -> StoredFuture:
        """Publish one event; the awaitable is done when it is stored. Raises `Full` at the window's limit."""
        self._driver.check()
        payload = check_payload(payload, self.topic, self._limits.payload_bytes_max)
        unacked_bytes = self._driver.machine.unacked_bytes
        if unacked_bytes >= self._limits.publish_window_bytes:
            text = f"{unacked_bytes} bytes on {self.topic!r} are not acknowledged yet"
            raise Full(text, "limits.publish_window_bytes")
        stored: StoredFuture = self._loop.create_future()
        self._pending.append(_Pending(attributes, payload, stored))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
        return stored

    def _turn(self) -> None:
        """Once per turn of the event loop: send the gathered events, in as few batches as possible."""
        self._is_scheduled = False
        machine = self._driver.machine
        if not machine.numbered:
            return
        pending, self._pending = self._pending, []
        for part in self._split(pending):
            first_us = part[0].attributes.time_ms * 1000
            fields = fields_of([one.attributes for one in part])
            now_us = environment.time_us()
            machine.put([one.payload for one in part], min(first_us, now_us), **fields)
            self._driver.wait([one.stored for one in part])
        self._driver.perform()

    def _split(self, pending: list[_Pending]) -> Iterator[list[_Pending]]:
        """Neighbours of one priority, within the limits of a batch."""
        count_max, bytes_max = self._limits.batch_events_max, self._limits.batch_bytes
        for _, same in groupby(pending, key=lambda one: one.attributes.priority):
            part: list[_Pending] = []
            size = 0
            for one in same:
                if part and (size + len(one.payload) > bytes_max or len(part) >= count_max):
                    yield part
                    part, size = [], 0
                part.append(one)
                size += len(one.payload)
            yield part

    # -- called by the router and the driver

    def receive(self, message: machines.Input) -> None:
        """The node sent a message about this source, or the connection changed."""
        self._driver.receive(message)

    def _on_numbered(self) -> None:
        self._loop.call_soon(self._turn)

    async def flush(self) -> None:
        """Return when everything put in so far is stored. Raises the error if it is not."""
        pending = [one.stored for one in self._pending]
        if pending:
            await asyncio.shield(asyncio.gather(*pending))
        elif not self._driver.is_idle:
            await self._driver.flush()

    def fail(self, error: LocalError | Refused) -> None:
        """Nothing more can be published here: raise the error in everyone who waits."""
        pending, self._pending = self._pending, []
        self._driver.fail(error)
        self._driver.failed.fail([one.stored for one in pending], error)

    def is_heard(self) -> bool:
        """Whether a caller was told why nothing more can be published."""
        return self._driver.failed.close()


class AttributePublishers:
    """The publishers of one session for events with attributes, by topic. A new one evicts the least recently used."""

    def __init__(
        self, router: MessageRouter, limits: LimitSettings, *, name: str, publishers_max: int
    ) -> None:
        self._router = router
        self._limits = limits
        self._name = name
        self._publishers_max = publishers_max
        self._by_topic: OrderedDict[str, AttributePublisher] = OrderedDict()

    def send(self, attributes: Attributes, payload: bytes) -> StoredFuture:
        """Publish an event to the address in its attributes. Raises `InvalidAttributes`, `Full`, `Closed`."""
        return self.publisher(check(attributes).topic).put(attributes, payload)

    def publisher(self, topic: str) -> AttributePublisher:
        """The publisher on a topic. Raises `Full` if there are too many and all of them are busy."""
        publisher = self._by_topic.get(topic)
        if publisher is not None and not publisher.is_failed:
            self._by_topic.move_to_end(topic)
            return publisher
        if publisher is not None:
            self._router.remove_publisher(self._by_topic.pop(topic))
        self._make_room()
        # A source of its own; a session with a name has the same source after a restart.
        lineage = f"{self._name}\0attributes\0{topic}" if self._name else ""
        made = AttributePublisher(
            self._router,
            self._limits,
            source=lasting_source(lineage, "") if lineage else environment.token_bytes(SOURCE_BYTES),
            topic=topic,
            lineage=lineage,
        )
        self._by_topic[topic] = made
        self._router.add_publisher(made)
        return made

    def _make_room(self) -> None:
        if len(self._by_topic) < self._publishers_max:
            return
        idle = next((topic for topic, publisher in self._by_topic.items() if publisher.is_idle), None)
        if idle is None:
            text = f"publishers to {len(self._by_topic)} addresses are all busy"
            raise Full(text, "rpc.publishers_max")
        publisher = self._by_topic.pop(idle)
        self._router.remove_publisher(publisher)
        publisher.fail(Closed(f"the publisher to {publisher.topic!r}"))
