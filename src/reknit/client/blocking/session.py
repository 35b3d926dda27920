"""The blocking interface of the client: the same session, run by a loop in a thread of its own.

Events cross threads in batches: published events gather on the caller's side until the loop takes all of them,
received batches are passed on all at once, and so are outcomes.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack, overload

from reknit.address import Address
from reknit.batch import PRIORITY_DEFAULT
from reknit.checkpoint import Checkpoint
from reknit.client.blocking.group import SyncGroup
from reknit.client.blocking.loop_thread import LoopThread
from reknit.client.blocking.outcomes import SyncOutcomePublisher
from reknit.client.blocking.publisher import SyncPublisher
from reknit.client.blocking.service import SyncHandler, SyncService
from reknit.client.blocking.subscription import SyncSubscription
from reknit.client.blocking.typed import SyncTypedPublisher, SyncTypedSubscription
from reknit.client.codecs import CodecOf, codec_of
from reknit.client.options import (
    GroupOptions,
    OnLost,
    PublisherKeywords,
    PublisherOptions,
    SubscribeOptions,
    SyncSubscribeKeywords,
)
from reknit.client.publish.event_fields import Headers, check_priority, variant_of
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.publish.scheduling import ScheduledEvent
from reknit.client.publish.typed_publisher import encode_all_typed, encode_typed
from reknit.client.rpc.requests import Reply
from reknit.client.session import Session, connect
from reknit.config import Config, MulticastSettings
from reknit.envelope.attributes import Attributes
from reknit.errors import Closed, NotOpen, ReknitError
from reknit.frame import Buffer
from reknit.queue_order import QueueOrder

log = logging.getLogger("reknit.client")

T = TypeVar("T")


class SyncSession:
    """Made by `reknit.connect_sync`; open while in its `with`. Any number of threads may use it."""

    def __init__(
        self, make: Callable[[], Session], start_thread: Callable[[], LoopThread] = LoopThread
    ) -> None:
        self._make, self._start_thread = make, start_thread
        self._thread: LoopThread | None = None
        self._was_open = False
        self._lock = threading.Lock()
        self._publishers: list[SyncPublisher] = []
        self._by_topic: dict[tuple[str, int], SyncPublisher] = {}

    def open(self) -> SyncSession:
        """Connect. Raises `NotConnected` when no node answers in time."""
        thread = self._start_thread()
        try:
            self._session = thread.run(self._open())
        except BaseException:
            thread.stop()
            raise
        self._thread, self._was_open = thread, True
        return self

    async def _open(self) -> Session:
        return await self._make().open()

    def close(self) -> None:
        """Return when everything published is stored, then disconnect."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            unheard = self._flush_all() if self._session.is_connected else None
            thread.run(self._session.close())
        finally:
            thread.stop()
        if unheard is not None:
            raise unheard

    def _flush_all(self) -> ReknitError | None:
        """Store everything that was published; returns the first error that no call has raised before."""
        unheard: ReknitError | None = None
        for publisher in self._publishers:
            was_heard = publisher.is_heard
            try:
                publisher.flush()
            except ReknitError as error:
                unheard = unheard or (None if was_heard else error)
        return unheard

    def __enter__(self) -> SyncSession:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, *args: object) -> None:
        try:
            self.close()
        except ReknitError as error:
            if kind is None:
                raise
            log.warning("not all events of the session with %s were stored: %s", self._session.url, error)

    @property
    def _loop(self) -> LoopThread:
        if self._thread is None:
            raise Closed("the session", "connect again") if self._was_open else NotOpen("the session")
        return self._thread

    @property
    def url(self) -> str:
        return self._session.url

    @property
    def is_connected(self) -> bool:
        return self._thread is not None and self._session.is_connected

    # -- publishing

    @overload
    def publisher(
        self,
        topic: str,
        *,
        codec: None = None,
        outcome: bool = False,
        resend_released: bool = False,
        **options: Unpack[PublisherKeywords],
    ) -> SyncPublisher: ...

    @overload
    def publisher(
        self,
        topic: str,
        *,
        codec: CodecOf[T],
        outcome: bool = False,
        resend_released: bool = False,
        **options: Unpack[PublisherKeywords],
    ) -> SyncTypedPublisher[T]: ...

    def publisher(
        self,
        topic: str,
        *,
        codec: CodecOf[Any] | None = None,
        wait: bool = True,
        ttl_ms: int = 0,
        priority: int = PRIORITY_DEFAULT,
        source: bytes | None = None,
        cache: bool = True,
        history: int | None = None,
        heartbeat_s: float | None = None,
        is_heartbeat_periodic: bool = False,
        stored_by: int = 1,
        resend_released: bool = False,
        outcome: bool = False,
    ) -> SyncPublisher | SyncTypedPublisher[Any]:
        """A publisher on one topic, with a source of its own; see `Session.publisher`."""
        options = PublisherOptions(
            wait=wait,
            ttl_ms=ttl_ms,
            priority=priority,
            source=source,
            cache=cache,
            history=history,
            heartbeat_s=heartbeat_s,
            is_heartbeat_periodic=is_heartbeat_periodic,
            stored_by=stored_by,
            resend_released=resend_released,
            outcome=outcome,
        )
        chosen = None if codec is None else codec_of(codec)
        made = self._make_publisher(topic, options)
        return made if chosen is None else SyncTypedPublisher(made, chosen)

    def _make_publisher(self, topic: str, options: PublisherOptions, variant: str = "") -> SyncPublisher:
        made = self._loop.call(lambda: self._session.make_publisher(topic, options, variant))
        limits = self._session.config.limits
        if isinstance(made, OutcomePublisher):
            publisher: SyncPublisher = SyncOutcomePublisher(self._loop, made, limits)
        else:
            publisher = SyncPublisher(self._loop, made, limits)
        self._publishers = [one for one in self._publishers if not one.is_closed] + [publisher]
        return publisher

    def _publisher_of(self, topic: str, priority: int | None) -> SyncPublisher:
        level = PRIORITY_DEFAULT if priority is None else check_priority(priority)
        with self._lock:
            publisher = self._by_topic.get((topic, level))
            if publisher is None:
                variant = variant_of(level)
                publisher = self._make_publisher(topic, PublisherOptions(priority=level), variant)
                self._by_topic[topic, level] = publisher
        return publisher

    @overload
    def publish(
        self,
        topic: str,
        payload: Buffer | str,
        *,
        codec: None = None,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
    ) -> None: ...

    @overload
    def publish(
        self,
        topic: str,
        payload: T,
        *,
        codec: CodecOf[T],
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
    ) -> None: ...

    @overload
    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        at: datetime | float,
        codec: CodecOf[Any] | None = None,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
    ) -> ScheduledEvent: ...

    @overload
    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        delay_s: float,
        codec: CodecOf[Any] | None = None,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
    ) -> ScheduledEvent: ...

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        codec: CodecOf[Any] | None = None,
        key: str | None = None,
        headers: Headers | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
        at: datetime | float | None = None,
        delay_s: float | None = None,
    ) -> ScheduledEvent | None:
        """Publish one event; returns when it is stored. See `Session.publish`."""
        if codec is not None:
            payload, headers = encode_typed(codec_of(codec), payload, headers)
        if at is not None or delay_s is not None:
            fields = {"key": key, "headers": headers, "ttl_ms": ttl_ms, "priority": priority}
            return self._loop.run(self._schedule(topic, payload, {"at": at, "delay_s": delay_s, **fields}))
        self._publisher_of(topic, priority).publish(payload, key=key, headers=headers, ttl_ms=ttl_ms)
        return None

    async def _schedule(self, topic: str, payload: Any, fields: dict[str, Any]) -> ScheduledEvent:
        scheduled: ScheduledEvent = await self._session.publish(topic, payload, **fields)
        return scheduled

    def scheduled(self, pattern: str = "**") -> list[ScheduledEvent]:
        """The events that are to be published later; see `Session.scheduled`."""
        return self._loop.run(self._session.scheduled(pattern))

    def cancel(self, event: ScheduledEvent) -> bool:
        """Cancel an event that was to be published later; see `Session.cancel`."""
        return self._loop.run(self._session.cancel(event))

    def cancel_scheduled(self, pattern: str, ids: Sequence[str] | None = None) -> list[str]:
        """Cancel scheduled events; see `Session.cancel_scheduled`."""
        return self._loop.run(self._session.cancel_scheduled(pattern, ids))

    @overload
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[Buffer | str],
        *,
        codec: None = None,
        keys: Sequence[str] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
    ) -> None: ...

    @overload
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[T],
        *,
        codec: CodecOf[T],
        keys: Sequence[str] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
    ) -> None: ...

    def publish_many(
        self,
        topic: str,
        payloads: Iterable[Any],
        *,
        codec: CodecOf[Any] | None = None,
        keys: Sequence[str] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
    ) -> None:
        """Publish many events in one call; returns when all are stored. See `Session.publish_many`."""
        if codec is not None:
            payloads, headers = encode_all_typed(codec_of(codec), payloads, headers)
        publisher = self._publisher_of(topic, priority)
        publisher.publish_many(payloads, keys, headers=headers, ttl_ms=ttl_ms)

    def publish_event(self, attributes: Attributes, payload: bytes) -> None:
        """Publish one event to the address in its uProtocol attributes; returns when it is stored."""
        self._loop.run(self._publish_event(attributes, payload))

    async def _publish_event(self, attributes: Attributes, payload: bytes) -> None:
        await self._session.publish_event(attributes, payload)

    # -- requests

    def request(
        self,
        address: Address | str,
        payload: bytes | str = b"",
        *,
        ttl_ms: int | None = None,
        priority: int | None = None,
        **attributes: Any,
    ) -> Reply:
        """Send a request to the service at an address, and wait for the reply; see `Session.request`."""
        return self._loop.run(
            self._session.request(address, payload, ttl_ms=ttl_ms, priority=priority, **attributes)
        )

    def serve(
        self, address: Address | str, handler: SyncHandler, *, name: str = "", handlers_max: int | None = None
    ) -> SyncService:
        """Answer requests to the address with the handler's results, while in its `with`; see `Session.serve`.

        Each is handled in a thread of its own, `handlers_max` at a time.
        """
        limit = self._session.config.rpc.handlers_max if handlers_max is None else handlers_max
        return SyncService(
            self._loop,
            handler,
            handlers_max=limit,
            serve=lambda handle: self._session.serve(address, handle, name=name, handlers_max=limit),
        )

    # -- groups

    def group(
        self,
        name: str,
        *,
        member: str = "",
        seeds: Sequence[str] | None = None,
        settings: MulticastSettings | None = None,
        discard_own: bool = False,
        is_given: bool = False,
        is_journaled: bool = True,
    ) -> SyncGroup:
        """A member of a group, to be used with `with`; see `Session.group`."""
        options = GroupOptions(
            member=member,
            seeds=seeds,
            settings=settings,
            discard_own=discard_own,
            is_given=is_given,
            is_journaled=is_journaled,
        )
        return SyncGroup(self._loop, self._loop.call(lambda: self._session.make_group(name, options)))

    # -- subscribing

    @overload
    def subscribe(
        self, pattern: str, *, codec: None = None, **options: Unpack[SyncSubscribeKeywords]
    ) -> SyncSubscription: ...

    @overload
    def subscribe(
        self, pattern: str, *, codec: CodecOf[T], **options: Unpack[SyncSubscribeKeywords]
    ) -> SyncTypedSubscription[T]: ...

    def subscribe(
        self,
        pattern: str,
        *,
        codec: CodecOf[Any] | None = None,
        name: str = "",
        queue: str = "",
        order: QueueOrder = "",
        history: bool | int | float | timedelta = False,
        start: Checkpoint | None = None,
        auto_accept: bool = True,
        on_lost: OnLost | None = None,
        idle_s: float | None = None,
        caches: Sequence[str] | None = None,
        recover: bool = True,
        query_s: float | None = None,
        streams: bool = False,
    ) -> SyncSubscription | SyncTypedSubscription[Any]:
        """Events that match the pattern, in order per source; see `Session.subscribe`.

        With `idle_s`, it ends when no event has come for that time. `on_lost` is called on the loop's thread. One
        thread at a time takes events; any thread may settle them. With `streams`, `events.pieces(event)` reads one.
        """
        chosen = None if codec is None else codec_of(codec)
        options = SubscribeOptions(
            name=name,
            queue=queue,
            order=order,
            history=history,
            start=start,
            auto_accept=False,  # the blocking subscription accepts events itself
            on_lost=on_lost,
            caches=caches,
            recover=recover,
            query_s=query_s,
            streams=streams,
        )
        made = self._loop.call(lambda: self._session.make_subscription(pattern, options))
        events = SyncSubscription(self._loop, made, auto_accept=auto_accept, idle_s=idle_s)
        return events if chosen is None else SyncTypedSubscription(events, chosen, pattern)

    # -- admin requests

    def ask(self, what: str, **args: Any) -> Any:
        """Make an admin request to the node (`status`, `ledger`, …); returns the answer's body."""
        return self._loop.run(self._session.ask(what, **args))

    def status(self) -> dict[str, Any]:
        """The node's state: journal, topics, rates, subscribers."""
        return self._loop.run(self._session.status())

    def ledger(self, topic: str = "", unbalanced: bool = False) -> list[dict[str, Any]]:
        """published = accepted + dead-lettered + lost + in flight, per durable subscriber and topic."""
        return self._loop.run(self._session.ledger(topic, unbalanced))

    def pause(self, pattern: str) -> list[str]:
        """Deliver nothing on topics that match, until `resume`; returns all patterns that are paused."""
        return self._loop.run(self._session.pause(pattern))

    def resume(self, pattern: str) -> list[str]:
        """Resume the delivery that `pause` stopped; returns the patterns that are still paused."""
        return self._loop.run(self._session.resume(pattern))


def connect_sync(
    url: str = "tcp://127.0.0.1:7440",
    *,
    name: str = "",
    config: Config | None = None,
    token: str = "",
    tls: ssl.SSLContext | None = None,
    wait_s: float = 5.0,
    address: Address | str = "",
) -> SyncSession:
    """A blocking session with the node at `url`, to be used with `with`.

    With a `name`, the sources of this session keep their identity across restarts of the program. Responses to its
    requests go to `address`, or to an address made from the name.
    """
    return SyncSession(
        lambda: connect(url, name=name, config=config, token=token, tls=tls, wait_s=wait_s, address=address)
    )
