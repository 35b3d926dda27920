"""Events with attributes on their way to the node: gathered per topic, sent as batches, kept or their sender is told."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from reknit.batch import SOURCE_BYTES
from reknit.connection.futures import fail_all, resolve
from reknit.envelope.attributes import Attributes, check
from reknit.envelope.columns import fields_of
from reknit.errors import Closed, Full, LocalError, Refused
from reknit.frame import Buffer
from reknit.protocol.publish import publisher as machines
from reknit.wire.messages import Message

if TYPE_CHECKING:
    from reknit.client.session import Session

Kept = asyncio.Future[None]


class _Put(NamedTuple):
    attributes: Attributes
    payload: bytes
    kept: Kept


class Outlet:
    """One source on one topic, as a publisher is, for events that each have attributes of their own."""

    def __init__(self, session: Session, source: bytes, topic: str, is_lasting: bool) -> None:
        self._session = session
        self._machine = machines.Publisher(source, topic, is_lasting)
        self._limits = session.config.limits
        self._loop = asyncio.get_running_loop()
        self._gathered: list[_Put] = []
        self._waiting: deque[tuple[int, Kept]] = deque()
        self._is_scheduled = False
        self._failed: LocalError | Refused | None = None

    @property
    def source(self) -> bytes:
        return self._machine.source

    @property
    def topic(self) -> str:
        return self._machine.topic

    @property
    def is_failed(self) -> bool:
        return self._failed is not None

    @property
    def is_idle(self) -> bool:
        """Whether everything that was put in is kept."""
        return not self._gathered and not self._waiting

    def put(self, attributes: Attributes, payload: bytes) -> Kept:
        """Send one event; the awaitable is done when it is kept. Raises `Full` at the publishing window's limit."""
        if self._failed is not None:
            raise self._failed
        if len(payload) > self._limits.payload_bytes_max:
            raise Full(f"a payload of {len(payload)} bytes on {self.topic!r}", "limits.payload_bytes_max")
        if self._machine.unacked_bytes >= self._limits.publish_window_bytes:
            text = f"{self._machine.unacked_bytes} bytes on {self.topic!r} are not acknowledged yet"
            raise Full(text, "limits.publish_window_bytes")
        kept: Kept = self._loop.create_future()
        self._gathered.append(_Put(attributes, payload, kept))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
        return kept

    def _turn(self) -> None:
        """The loop came round: what gathered since goes out, in as few batches as possible."""
        self._is_scheduled = False
        if not self._machine.numbered:
            return
        gathered, self._gathered = self._gathered, []
        for part in self._parts(gathered):
            first_us = part[0].attributes.time_ms * 1000
            fields = fields_of([one.attributes for one in part])
            now_us = time.time_ns() // 1000
            self._machine.put([one.payload for one in part], min(first_us, now_us), **fields)
            stop = self._machine.next_seq
            self._waiting.extend((stop, one.kept) for one in part)
        self._perform()

    def _parts(self, gathered: list[_Put]) -> Iterator[list[_Put]]:
        """Neighbours of one priority, within the limits of a batch."""
        count_max, bytes_max = self._limits.batch_events_max, self._limits.batch_bytes
        for _, same in groupby(gathered, key=lambda one: one.attributes.priority):
            part: list[_Put] = []
            size = 0
            for one in same:
                if part and (size + len(one.payload) > bytes_max or len(part) >= count_max):
                    yield part
                    part, size = [], 0
                part.append(one)
                size += len(one.payload)
            yield part

    # -- the session's side

    def receive(self, message: machines.Input) -> None:
        """Something for this source came in, or the connection changed."""
        self._machine.receive(message, "node", self._loop.time())
        self._perform()

    def _perform(self) -> None:
        buffers: list[Buffer] = []
        messages: list[Message] = []
        for effect in self._machine.take_effects():
            match effect:
                case machines.SendBytes(data=data):
                    buffers.append(data)
                case machines.SendToNode(message=message):
                    messages.append(message)
                case machines.Confirm(stop=stop):
                    self._confirm(stop)
                case machines.Numbered():
                    self._loop.call_soon(self._turn)
                case machines.PublishRefused(code=code, text=text):
                    self.fail(Refused(code, text))
        if messages:
            self._session.link.send(*messages)
        if buffers:
            self._session.link.send_buffers(buffers)

    def _confirm(self, stop: int) -> None:
        while self._waiting and self._waiting[0][0] <= stop:
            resolve(self._waiting.popleft()[1])

    async def flush(self) -> None:
        """Return when everything put in so far is kept. Raises what became of it otherwise."""
        futures = [one.kept for one in self._gathered] + [kept for _, kept in self._waiting]
        if futures:
            await asyncio.shield(asyncio.gather(*futures))

    def fail(self, error: LocalError | Refused) -> None:
        """Nothing more can be sent here: everyone who waits is told."""
        self._failed = error
        futures = [one.kept for one in self._gathered] + [kept for _, kept in self._waiting]
        self._gathered = []
        self._waiting.clear()
        fail_all(futures, error)


class Outlets:
    """The outlets of one session, by topic. The one that was not used for longest makes room for a new one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_topic: OrderedDict[str, Outlet] = OrderedDict()

    def send(self, attributes: Attributes, payload: bytes) -> Kept:
        """Check an event and send it to where its attributes say. Raises `InvalidAttributes`, `Full`, `Closed`."""
        return self._outlet(check(attributes).topic).put(attributes, payload)

    def _outlet(self, topic: str) -> Outlet:
        outlet = self._by_topic.get(topic)
        if outlet is not None and not outlet.is_failed:
            self._by_topic.move_to_end(topic)
            return outlet
        if outlet is not None:
            self._session.forget(self._by_topic.pop(topic))
        self._make_room()
        made = Outlet(self._session, self._source(topic), topic, is_lasting=bool(self._session.name))
        self._by_topic[topic] = made
        self._session.add_publisher(made)
        return made

    def _make_room(self) -> None:
        publishers_max = self._session.config.rpc.publishers_max
        if len(self._by_topic) < publishers_max:
            return
        idle = next((topic for topic, outlet in self._by_topic.items() if outlet.is_idle), None)
        if idle is None:
            text = f"{len(self._by_topic)} addresses are written to, and none of them is done"
            raise Full(text, "rpc.publishers_max")
        outlet = self._by_topic.pop(idle)
        self._session.forget(outlet)
        outlet.fail(Closed(f"the outlet to {outlet.topic!r}"))

    def _source(self, topic: str) -> bytes:
        """A source of its own; in a session with a name the same one in its next life."""
        if self._session.name:
            return xxhash.xxh3_128_digest(f"{self._session.name}\0attributes\0{topic}".encode())
        return secrets.token_bytes(SOURCE_BYTES)
