"""Publishing on one topic: single calls become batches, and every event is stored or its caller gets an error.

The hot path is `send`: it appends to a list and counts bytes. Everything else happens once per batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from reknit import environment
from reknit.batch import total
from reknit.client.message_router import MessageRouter
from reknit.client.options import PublisherOptions
from reknit.client.publish.batching import (
    LENGTH_BYTES,
    BatchLimits,
    JoinedPayloads,
    check_payload,
    check_payloads,
)
from reknit.client.publish.event_fields import (
    EventFields,
    FieldLimit,
    GatheredFields,
    Headers,
    check_priority,
    check_ttl,
    split_with_fields,
)
from reknit.client.publish.window import PublishWindow
from reknit.client.recovery.publisher_recovery import PublisherRecovery, PublisherRecoverySettings
from reknit.client.streams import OutgoingStream
from reknit.config import Config
from reknit.connection.futures import resolve
from reknit.connection.publish_driver import PublishDriver, StoredFuture
from reknit.errors import Closed, LocalError, Refused
from reknit.frame import Buffer
from reknit.protocol.publish import publisher as machines

NEVER_FITS = -1


class EventTracker(Protocol):
    """Follows what becomes of each event, for a publisher whose calls give more than that it is stored."""

    @property
    def has_path(self) -> bool:
        """Whether events may be sent."""

    def number(self, first: int, count: int) -> None:
        """All events without a seq become `[first, first + count)`."""

    def stored(self, stop: int) -> None:
        """Everything before `stop` is stored."""

    def fail(self, error: Exception) -> None:
        """Raise the error in everyone who waits."""


class Publisher:
    """One source on one topic. Made by `session.publisher(topic)`.

    `await publisher.send(payload)` returns as soon as there is room, `await publisher.flush()` when everything so far
    is stored. `await publisher.publish(payload)` returns when that event is stored.

    It gathers events until they become a batch. Its parts do the rest: the driver resends batches until the node
    acknowledges them, the window limits unacknowledged events, and `PublisherRecovery` has the cache and the
    heartbeats. It has more than 15 attributes because `send` reads two limits and the gathered events
    directly.
    """

    def __init__(
        self,
        router: MessageRouter,
        config: Config,
        *,
        source: bytes,
        topic: str,
        is_lasting: bool,
        lineage: str,
        options: PublisherOptions,
        outcomes: EventTracker | None = None,
    ) -> None:
        self._fields: dict[str, Any] = {
            "ttl_ms": check_ttl(options.ttl_ms),
            "priority": check_priority(options.priority),
        }
        machine = machines.SourcePublisher(source, topic, is_lasting, options.stored_by, lineage)
        self._router = router
        self._outcomes = outcomes
        self._loop = asyncio.get_running_loop()
        self._driver = PublishDriver(
            machine,
            router.connection,
            on_refused=self.fail,
            on_stored=self._on_stored,
            on_numbered=self._on_numbered,
        )
        self._window = PublishWindow(
            machine, config.limits, waits=options.wait, count_unstored=lambda: self.unkept
        )
        self._recovery = PublisherRecovery(
            router, self._driver, PublisherRecoverySettings.of(config, options)
        )
        self._is_resent = options.resend_released
        self._patience_s = config.recovery.patience_s if options.stored_by > 1 else None

        self._limits = BatchLimits.of(config.limits)
        self._batch_bytes = self._limits.batch_bytes
        self._payload_bytes_max = self._limits.payload_bytes_max
        """Nothing fits any more after a failure, so that `send` needs no check of its own for that."""

        self._joined = JoinedPayloads()
        """Calls with many events that are not in a batch yet. They are older than the single events."""
        self._payloads: list[Buffer] = []
        """Single events that are not in a batch yet."""
        self._event_fields = GatheredFields()
        """Their keys, headers and ttls."""
        self._field_limit = FieldLimit(
            topic, min(config.limits.headers_bytes_max, config.limits.frame_bytes_max // 4)
        )
        self._bytes = 0
        """The size of both."""
        self._futures: list[StoredFuture] = []
        """The futures of their calls: one each, because a caller may stop waiting."""
        self._is_scheduled = False
        self._done: StoredFuture = self._loop.create_future()
        self._done.set_result(None)

    @property
    def source(self) -> bytes:
        """The source of its events. In a session with a name it is known once the session is connected."""
        return self._driver.machine.source

    @property
    def topic(self) -> str:
        return self._driver.machine.topic

    @property
    def next_seq(self) -> int:
        """The seq that the next event gets."""
        return self._driver.machine.next_seq + len(self._joined) + len(self._payloads)

    @property
    def unkept(self) -> int:
        """How many events are not known to be stored yet."""
        return self.next_seq - self._driver.first_unacked

    async def resume(self) -> int:
        """The seq that the next event gets, once the node has told the last seq of this source.

        A program that numbers its own work by seq resumes there after a crash, and publishes everything once.
        """
        await self._driver.numbered()
        return self.next_seq

    # -- publishing

    def send(
        self,
        payload: Buffer | str,
        *,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
    ) -> StoredFuture:
        """Publish one event; the awaitable is done when there is room for more. `flush` raises errors."""
        if type(payload) is not bytes:
            payload = self._check(payload)
        size = len(payload)
        if size > self._payload_bytes_max:
            self._check(payload)
        if key is not None or headers is not None or ttl_ms is not None:
            self._add_fields(self._field_limit.of_one(key, headers, ttl_ms))
        self._payloads.append(payload)
        self._bytes += size + 4
        if self._bytes >= self._batch_bytes:
            return self._send_full()
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
        return self._done

    def publish(
        self,
        payload: Buffer | str,
        *,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
    ) -> StoredFuture:
        """Publish one event; the awaitable is done when it is stored.

        `key`: on a topic with `order = "key"`, an event waits only for events of the same key. `headers` are texts for
        subscribers. `ttl_ms` is how long the event is worth delivering, in place of the publisher's.
        """
        self._window.admit(self._bytes)
        if type(payload) is not bytes or len(payload) > self._payload_bytes_max:
            payload = self._check(payload)
        if key is not None or headers is not None or ttl_ms is not None:
            self._add_fields(self._field_limit.of_one(key, headers, ttl_ms))
        self._payloads.append(payload)
        self._bytes += len(payload) + LENGTH_BYTES
        return self._stored_later()

    def publish_many(
        self,
        payloads: Iterable[Buffer | str],
        keys: Sequence[str] | None = None,
        *,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
    ) -> StoredFuture:
        """Publish many events; done when all of them are stored. They are one batch, if the limits allow.

        Calls in one turn of the event loop share a batch, as single events do. There is one key for each event;
        `headers` are those of all events, or a list with those of each.
        """
        many = check_payloads(payloads)
        if not many:
            return self._done
        self._window.admit(self._bytes)
        if keys is not None or headers is not None or ttl_ms is not None:
            fields = self._field_limit.of_many(len(many), keys, headers, ttl_ms)
            self._gather([self._check(payload) for payload in many], fields)
            return self._stored_later()
        try:
            lengths = list(map(len, many))
        except TypeError:  # one of them is no payload
            lengths = [len(self._check(payload)) for payload in many]
        size = total(lengths)
        block = self._join(many, lengths, size)
        if block is None:
            self._gather([self._check(payload) for payload in many])
            return self._stored_later()
        size += LENGTH_BYTES * len(many)
        events = len(self._joined) + len(many)
        if self._payloads or self._bytes + size > self._batch_bytes or events > self._limits.events_max:
            self._cut()
        self._joined.add(block, lengths)
        self._bytes += size
        return self._stored_later()

    def stream(self, headers: dict[str, str] | None = None, size: int | None = None) -> OutgoingStream:
        """One event, written in pieces that are sent at once: `async with publisher.stream() as out`.

        For topics that are balanced or closest. The event is not stored: the subscriber that takes it decides its
        outcome, and leaving the `async with` raises `Released`, `Rejected` or `Modified` if that is not ACCEPTED. An
        AMQP client gets a long event only if its `size` in bytes is given here.
        """
        return OutgoingStream(
            self._router,
            self.topic,
            is_resent=self._is_resent,
            wait_for_path=self._wait_for_path,
            fields=self._fields,
            headers=headers or {},
            size=size,
        )

    async def _wait_for_path(self) -> None:
        """Return when a subscriber is there, as far as this publisher knows."""
        self._driver.check()

    async def flush(self) -> None:
        """Return when everything published so far is stored. Raises the error if it is not."""
        self._cut()
        if self._bytes and self._driver.error is None:
            await self._stored_later()  # the source has no seq yet
        else:
            await self._driver.flush()

    async def finish(self) -> None:
        """As `flush`, but wait at most `recovery.patience_s` for further caches. Raises `TooFewCopies` after that."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self.flush()
        except TimeoutError:
            shortage = self._driver.machine.shortage()
            if shortage is not None:
                raise shortage from None
            await self.flush()  # the node is away: it is waited for

    # -- gathering

    def _check(self, payload: Buffer | str) -> bytes:
        self._driver.check()
        return check_payload(payload, self.topic, self._payload_bytes_max)

    def _join(self, payloads: list[Buffer], lengths: list[int], size: int) -> bytes | None:
        """The payloads as one block of bytes; None if each needs a look: for its limits, or because it is a text."""
        if not self._driver.machine.numbered or self._driver.error is not None:
            return None
        if not self._limits.allow(lengths, size):
            return None
        try:
            block = b"".join(payloads)
        except TypeError:  # there are texts among them
            return None
        return block if len(block) == size else None  # otherwise they have items larger than a byte

    def _add_fields(self, fields: EventFields) -> None:
        """The next event has these fields."""
        self._bytes += self._event_fields.put(len(self._payloads), fields)

    def _gather(self, payloads: list[Buffer], fields: Sequence[EventFields] = ()) -> None:
        """Put checked payloads behind those that wait for a batch."""
        self._bytes += self._event_fields.put_many(len(self._payloads), fields)
        self._payloads += payloads
        self._bytes += sum(map(len, payloads)) + LENGTH_BYTES * len(payloads)

    def _schedule(self) -> None:
        """Make a batch now if it is large enough, otherwise at the next turn of the event loop."""
        if self._bytes >= self._batch_bytes:
            self._cut()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _stored_later(self) -> StoredFuture:
        """Done when everything that is gathered now is stored."""
        stored: StoredFuture = self._loop.create_future()
        self._futures.append(stored)
        if not self._is_scheduled or self._bytes >= self._batch_bytes:
            self._schedule()
        return stored

    def _turn(self) -> None:
        self._is_scheduled = False
        self._cut()

    def _send_full(self) -> StoredFuture:
        """A batch is full: send it, and yield to the event loop."""
        if self._window.is_full(self._bytes):
            self._refuse_last()
        if self._driver.machine.numbered:
            self._cut()
        if self._window.is_full(self._bytes):
            return self._window.wait()
        turn: StoredFuture = self._loop.create_future()
        self._loop.call_soon(resolve, turn)
        return turn

    def _refuse_last(self) -> None:
        """The window is full. A publisher that does not wait gives the event back to its caller."""
        try:
            self._window.check()
        except LocalError:
            self._bytes -= len(self._payloads.pop()) + LENGTH_BYTES
            self._bytes -= self._event_fields.drop(len(self._payloads))
            raise

    # -- batches

    def _cut(self) -> None:
        """Make batches of everything gathered, and give them to the machine."""
        machine = self._driver.machine
        if not self._bytes or not machine.numbered:
            return
        if self._outcomes is not None:
            if not self._outcomes.has_path:
                return
            self._outcomes.number(machine.next_seq, len(self._payloads))
        payloads, size, futures = self._payloads, self._bytes, self._futures
        blocks, lengths = self._joined.take()
        self._payloads, self._bytes, self._futures = [], 0, []
        if blocks:
            self._put(blocks, lengths)
        if payloads and self._event_fields:
            fields = self._event_fields.take(len(payloads))
            for some, more in split_with_fields(payloads, fields, self._limits):
                self._put(some, **more)
        elif payloads:
            for part in self._limits.split(payloads, size):
                self._put(part)
        self._sent(futures)

    def _put(self, payloads: Sequence[Buffer], lengths: list[int] | None = None, **more: Any) -> None:
        now_us = environment.time_us()
        batch = self._driver.machine.put(payloads, now_us, lengths=lengths, **(self._fields | more))
        self._recovery.put(batch, now_us)

    def _sent(self, futures: list[StoredFuture]) -> None:
        self._recovery.published()
        if futures:
            self._driver.wait(futures)
        self._driver.perform()

    # -- called by the router and the driver

    def receive(self, message: machines.Input) -> None:
        """The node sent a message about this source, or the connection changed."""
        before = self.source
        self._driver.receive(message)
        if self.source != before:
            self._recovery.renamed()
        if isinstance(message, machines.Connected):
            self._recovery.reconnected()

    def _on_numbered(self) -> None:
        self._loop.call_soon(self._turn)

    def _on_stored(self, stop: int) -> None:
        self._window.acknowledged()
        if self._outcomes is not None:
            self._outcomes.stored(stop)

    def fail(self, error: LocalError | Refused) -> None:
        """Nothing more can be published here: raise the error in everyone who waits."""
        self._payload_bytes_max = NEVER_FITS
        self._recovery.stop()
        futures, self._futures = self._futures, []
        self._joined.take()
        self._payloads, self._bytes = [], 0
        self._event_fields = GatheredFields()
        self._driver.fail(error)
        self._window.fail(error)
        self._driver.failed.fail(futures, error)
        if self._outcomes is not None:
            self._outcomes.fail(error)

    def is_heard(self) -> bool:
        """Whether a caller was told why nothing more can be published."""
        return self._driver.failed.close()

    async def close(self) -> None:
        """Return when everything is stored; afterwards nothing can be published. Raises what nobody was told yet."""
        was_heard = self._driver.error is not None and self.is_heard()
        try:
            if not was_heard:
                await self.finish()
        finally:
            self._router.remove_publisher(self)
            self._recovery.close()
            self.fail(Closed(f"the publisher on {self.topic!r}"))

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()
