"""A session: one program's connection to the fabric, for any number of publishers and subscriptions."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from reknit import environment
from reknit.address import Address
from reknit.batch import PRIORITY_DEFAULT, SOURCE_BYTES
from reknit.checkpoint import Checkpoint
from reknit.client.codecs import CodecOf, codec_of
from reknit.client.message_router import MessageRouter, RoutedPublisher
from reknit.client.options import (
    GroupOptions,
    OnLost,
    PublisherKeywords,
    PublisherOptions,
    SubscribeKeywords,
    SubscribeOptions,
    check_publisher,
    check_subscription,
)
from reknit.client.publish.event_fields import Headers, check_priority, variant_of
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.publish.publisher import Publisher
from reknit.client.publish.scheduling import ScheduledEvent, SchedulePublisher, scheduled_event
from reknit.client.publish.typed_publisher import TypedPublisher, encode_all_typed, encode_typed
from reknit.client.recovery.subscription_recovery import RecoveryAccess
from reknit.client.rpc.attribute_publisher import AttributePublishers
from reknit.client.rpc.requests import Caller, Reply, address_of, default_address
from reknit.client.rpc.service import Handler, Service
from reknit.client.subscribe.subscription import Subscription
from reknit.client.subscribe.typed_subscription import TypedSubscription
from reknit.config import Config, MulticastSettings
from reknit.connection.ledger_pages import read_ledger
from reknit.connection.publish_driver import StoredFuture
from reknit.envelope.attributes import Attributes
from reknit.errors import Closed, NotOpen, ReknitError
from reknit.frame import Buffer
from reknit.lineage import lasting_source
from reknit.queue_order import QueueOrder
from reknit.topic import Pattern, check_topic, is_scheduled, schedule_topic
from reknit.transport.heap import keep_heap

if TYPE_CHECKING:  # most sessions join no group: their programs start without loading one
    from reknit.client.group.group import Group
    from reknit.client.group.journal import GroupJournal

T = TypeVar("T")

log = logging.getLogger("reknit.client")


class _State(Enum):
    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


class Session:
    """Made by `reknit.connect`; open while in its `async with`."""

    def __init__(
        self,
        url: str,
        name: str = "",
        config: Config | None = None,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        wait_s: float = 5.0,
        address: Address | str = "",
    ) -> None:
        self.url = url
        self.name = name
        self.config = config or Config()
        self._wait_s = wait_s
        self._state = _State.NEW
        self._id = environment.token_bytes(SOURCE_BYTES // 2)
        self._count = 0
        self.address = address_of(address) if address else default_address(name, self._id)
        """The address for responses to this session's requests."""
        self.router = MessageRouter(url, name or self._id.hex(), self.config, token, tls)
        self.connection = self.router.connection
        self.attribute_publishers = AttributePublishers(
            self.router, self.config.limits, name=name, publishers_max=self.config.rpc.publishers_max
        )
        self._access = RecoveryAccess(name=name, config=self.config, token=token, tls=tls)
        self._caller: Caller | None = None
        self._by_topic: dict[str | tuple[str, int], Publisher] = {}

    # -- life

    async def open(self) -> Session:
        """Connect. Raises `NotConnected` when no node answers in time."""
        self._check_not_closed()
        keep_heap()
        await self.connection.open(self._wait_s)
        self._state = _State.OPEN
        return self

    async def close(self) -> None:
        """Return when everything published is stored, then disconnect.

        Raises the error of events that are not stored, if no call has raised it before.
        """
        self._state = _State.CLOSED
        if self._caller is not None:
            await self._caller.close()
        publishers = list(self.router.publishers.values())
        unheard: list[BaseException] = []
        try:
            if self.connection.is_up:
                unheard = await _flush_all(publishers)
        finally:
            for stream in list(self.router.streams.values()):
                await stream.abort()
            for publisher in publishers:
                publisher.fail(Closed("the session", "connect again"))
            await self.connection.close()
        if unheard:
            raise unheard[0]

    async def __aenter__(self) -> Session:
        return await self.open()

    async def __aexit__(self, *args: object) -> None:
        try:
            await self.close()
        except ReknitError as error:
            if args[0] is None:
                raise
            log.warning("not all events of the session with %s were stored: %s", self.url, error)

    def _check_open(self) -> None:
        """Refuse at once what would wait for a connection for ever."""
        self._check_not_closed()
        if self._state is _State.NEW:
            raise NotOpen("the session")

    def _check_not_closed(self) -> None:
        if self._state is _State.CLOSED:
            raise Closed("the session", "connect again")

    @property
    def is_connected(self) -> bool:
        return self.connection.is_up

    # -- publishing

    @overload
    def publisher(
        self,
        topic: str,
        *,
        outcome: Literal[True],
        codec: None = None,
        resend_released: bool = False,
        **options: Unpack[PublisherKeywords],
    ) -> OutcomePublisher: ...

    @overload
    def publisher(
        self,
        topic: str,
        *,
        resend_released: Literal[True],
        codec: None = None,
        outcome: bool = False,
        **options: Unpack[PublisherKeywords],
    ) -> OutcomePublisher: ...

    @overload
    def publisher(
        self,
        topic: str,
        *,
        codec: None = None,
        outcome: bool = False,
        resend_released: bool = False,
        **options: Unpack[PublisherKeywords],
    ) -> Publisher: ...

    @overload
    def publisher(
        self,
        topic: str,
        *,
        codec: CodecOf[T],
        outcome: bool = False,
        resend_released: bool = False,
        **options: Unpack[PublisherKeywords],
    ) -> TypedPublisher[T]: ...

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
    ) -> Publisher | TypedPublisher[Any]:
        """A publisher on one topic, with a source of its own.

        With a `codec` it takes values in place of payloads: `reknit.JSON`, `reknit.MsgPack`, or a type, such as a
        msgspec Struct, a dataclass or a pydantic model, whose values are sent as JSON.

        In a session with a name the source is lasting: a later session of that name continues its seqs. `wait=False`
        raises `Full` at the window's limit instead of waiting. The publisher holds its newest events (`history` of
        them) for subscribers that miss some, unless `cache=False`. It announces its last seq `heartbeat_s` after
        a change, then less and less often; or every `heartbeat_s` if `is_heartbeat_periodic`. With `stored_by=2`, an
        event counts as stored when the node and one more cache have stored it.

        With `outcome`, publishing waits for the event's outcome: it gives `Outcome.ACCEPTED`, or raises `Released`,
        `Rejected` or `Modified`. With `resend_released`, an event that a subscriber releases goes to the next one
        first, wherever in the fabric that is. Both are for topics with a distribution; on other topics, an event that
        is stored is accepted.
        """
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
        made = self.make_publisher(topic, options)
        return made if codec is None else TypedPublisher(made, codec_of(codec))

    def make_publisher(self, topic: str, options: PublisherOptions, variant: str = "") -> Publisher:
        """As `publisher`, with its keywords as one value. A `variant` of a topic has a lasting source of its own."""
        self._check_open()
        check_topic(topic)
        check_publisher(options)
        self._count += 1
        lineage = f"{self.name}\0{topic}{variant}" if self.name and options.source is None else ""
        source = self._source(lineage) if options.source is None else options.source
        is_lasting = options.source is not None or bool(self.name)
        if source in self.router.publishers:
            raise Closed(f"source {source.hex()} is in use by a publisher of this session", "use that one")
        made: type[Publisher] = OutcomePublisher if options.outcome or options.resend_released else Publisher
        if is_scheduled(topic):
            made = SchedulePublisher
        publisher = made(
            self.router,
            self.config,
            source=source,
            topic=topic,
            is_lasting=is_lasting,
            lineage=lineage,
            options=options,
        )
        on_outcomes = publisher.receive_outcomes if isinstance(publisher, OutcomePublisher) else None
        self.router.add_publisher(publisher, on_outcomes)
        return publisher

    def _source(self, lineage: str) -> bytes:
        if lineage:
            return lasting_source(lineage, self.router.connection.epoch)
        return self._id + self._count.to_bytes(SOURCE_BYTES // 2, "big")

    def _publisher_of(self, topic: str, priority: int | None = None) -> Publisher:
        """The publisher of calls without one. Events of another priority overtake, so they have their own source."""
        key = topic if priority is None else (topic, check_priority(priority))
        publisher = self._by_topic.get(key)
        if publisher is None:
            publisher = self._make_publisher_of(topic, priority)
            self._by_topic[key] = publisher
        return publisher

    def _make_publisher_of(self, topic: str, priority: int | None) -> Publisher:
        if priority is None:
            return self.publisher(topic)
        if priority == PRIORITY_DEFAULT:
            return self._publisher_of(topic)
        return self.make_publisher(topic, PublisherOptions(priority=priority), variant_of(priority))

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
    ) -> StoredFuture: ...

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
    ) -> StoredFuture: ...

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
    ) -> asyncio.Future[ScheduledEvent]: ...

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
    ) -> asyncio.Future[ScheduledEvent]: ...

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
    ) -> StoredFuture | asyncio.Future[ScheduledEvent]:
        """Publish one event. Awaiting the result returns when the event is stored: durable on the node.

        `key`: on a topic with `order = "key"`, an event waits only for events of the same key. `headers` are texts for
        subscribers. After `ttl_ms` milliseconds the event is not worth delivering any more. `priority` is a number
        from 0 to 6 (1): events of a higher one overtake. With a `codec` the payload is a value: see `publisher`.

        With `at` (a datetime with a time zone, or seconds since 1970) or `delay_s` (seconds from now), the event is
        stored now and published later; the result is a `ScheduledEvent`, which `cancel` takes.
        """
        if codec is not None:
            payload, headers = encode_typed(codec_of(codec), payload, headers)
        if at is not None or delay_s is not None:
            later = self._publisher_of(schedule_topic(check_topic(topic)), priority)
            assert isinstance(later, SchedulePublisher), "it publishes on such a topic"
            return later.schedule(payload, at, delay_s, key=key, headers=headers, ttl_ms=ttl_ms)
        publisher = self._by_topic.get(topic) if priority is None else None
        if publisher is None:
            publisher = self._publisher_of(topic, priority)
        if key is None and headers is None and ttl_ms is None:
            return publisher.publish(payload)
        return publisher.publish(payload, key=key, headers=headers, ttl_ms=ttl_ms)

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
    ) -> StoredFuture: ...

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
    ) -> StoredFuture: ...

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
    ) -> StoredFuture:
        """Publish many events in one call and as few batches as possible; the awaitable is done when all are stored.

        The rest is as in `publish`, with a key for each event, and headers for all of them or a list for each.
        """
        if codec is not None:
            payloads, headers = encode_all_typed(codec_of(codec), payloads, headers)
        return self._publisher_of(topic, priority).publish_many(
            payloads, keys, headers=headers, ttl_ms=ttl_ms
        )

    async def scheduled(self, pattern: str = "**") -> list[ScheduledEvent]:
        """The events for topics that match which are to be published later, in the order of their times."""
        found: list[ScheduledEvent] = []
        after: Any = (0, 0)
        while after is not None:
            page = await self.ask("scheduled", pattern=pattern, after=after)
            found += [scheduled_event(row["id"], row["topic"], row["at_us"]) for row in page["events"]]
            after = page["after"]
        return found

    async def cancel(self, event: ScheduledEvent) -> bool:
        """Cancel an event that was to be published later. False if it was published or cancelled before."""
        return bool(await self.cancel_scheduled(event.topic, [event.id]))

    async def cancel_scheduled(self, pattern: str, ids: Sequence[str] | None = None) -> list[str]:
        """Cancel the scheduled events for topics that match: all, or those with these ids. Gives the ids of those that
        will not be published."""
        body = await self.ask("cancel", pattern=pattern, **({} if ids is None else {"ids": list(ids)}))
        return list(body["ids"])

    def publish_event(self, attributes: Attributes, payload: bytes) -> StoredFuture:
        """Publish one event to the address in its uProtocol attributes. Raises `InvalidAttributes`."""
        self._check_open()
        return self.attribute_publishers.send(attributes, payload)

    # -- requests

    async def request(
        self,
        address: Address | str,
        payload: bytes | str = b"",
        *,
        ttl_ms: int | None = None,
        priority: int | None = None,
        **attributes: Any,
    ) -> Reply:
        """Send a request to the service at an address, and wait for the reply: for `ttl_ms`, or `rpc.ttl_ms`.

        Raises `RequestFailed` with a google.rpc code if no reply comes, or the service refuses. UNAVAILABLE means that
        no service got the request; after DEADLINE_EXCEEDED it is not known whether it was carried out. Further
        `attributes` may be `permission_level`, `token`, `traceparent` and `payload_format`.
        """
        self._check_open()
        if self._caller is None:
            self._caller = Caller(
                self.address, self.config.rpc, publish=self.publish_event, subscribe=self.subscribe
            )
        made = self._caller.make(address_of(address), ttl_ms, priority, attributes)
        return await self._caller.request(made, payload.encode() if isinstance(payload, str) else payload)

    def serve(
        self, address: Address | str, handler: Handler, *, name: str = "", handlers_max: int | None = None
    ) -> Service:
        """Answer requests to the address with the handler's results, while in its `async with`.

        Requests wait until their ttl ends while no service is there. One session at a time serves an address: the
        latest, unless each has a `name` of its own.
        """
        self._check_open()
        limit = self.config.rpc.handlers_max if handlers_max is None else handlers_max
        return Service(
            address_of(address),
            handler,
            name=name,
            handlers_max=limit,
            publish=self.publish_event,
            subscribe=self.subscribe,
        )

    # -- subscribing

    @overload
    def subscribe(
        self, pattern: str, *, codec: None = None, **options: Unpack[SubscribeKeywords]
    ) -> Subscription: ...

    @overload
    def subscribe(
        self, pattern: str, *, codec: CodecOf[T], **options: Unpack[SubscribeKeywords]
    ) -> TypedSubscription[T]: ...

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
        confirm_losses: bool = True,
        caches: Sequence[str] | None = None,
        recover: bool = True,
        query_s: float | None = None,
        is_cache: bool = False,
        streams: bool = False,
    ) -> Subscription | TypedSubscription[Any]:
        """Events that match the pattern, in order per source.

        With a `codec`, `event.payload` is a value: `reknit.JSON`, `reknit.MsgPack`, or a type, such as a msgspec
        Struct, a dataclass or a pydantic model, that is read from JSON. An event that can't be decoded is rejected with
        the reason, so a durable subscription makes it a dead letter.

        With a `name` the subscription is durable: the node retains the events that it has not settled, and it resumes
        where it left off. It starts with events that are published from now on, or with history, or after a
        checkpoint. History is everything held (`True`), the last N events of each source (an integer), or events
        no older than N seconds (a float, or a timedelta).

        With a `queue`, programs share the events: each event goes to one of those that subscribe with this queue and
        have room, and to another one if that one leaves, hangs past its lease, releases or fails it. A queue is durable
        as a named subscription is: where it starts is said by its first member. It lives on the node that its members
        connect to. With `order="key"`, the events of a key are with one member at a time, in order, and with
        `order="source"` those of a source; without, the rules of the topics hold. All members say the same.

        Without a name, missing events are recovered from the node and the caches that it knows, then from `caches`,
        which are further nodes, nearest first. Events that no cache has are lost, and `on_lost` is called. With
        `query_s`, the subscription looks for a lost tail every `query_s` seconds.

        A durable subscription is told of losses, too, by `on_lost`. Without `confirm_losses` it is told again, after it
        connects anew, until it has called `confirm_lost` with the report.

        With `streams`, there may be events whose payload is read in pieces: `async for piece in event.pieces()`. They
        come only on topics that are balanced or closest.
        """
        options = SubscribeOptions(
            name=name,
            queue=queue,
            order=order,
            history=history,
            start=start,
            auto_accept=auto_accept,
            on_lost=on_lost,
            confirm_losses=confirm_losses,
            caches=caches,
            recover=recover,
            query_s=query_s,
            is_cache=is_cache,
            streams=streams,
        )
        made = self.make_subscription(pattern, options)
        return made if codec is None else TypedSubscription(made, codec_of(codec), pattern)

    def make_subscription(self, pattern: str, options: SubscribeOptions) -> Subscription:
        """As `subscribe`, with its keywords as one value."""
        self._check_open()
        Pattern(pattern)
        check_subscription(options)
        self._count += 1
        return Subscription(self.router, self._access, sub=self._count, pattern=pattern, options=options)

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
    ) -> Group:
        """A member of a group, to be used with `async with`: all members get the events of each member, in order.

        `settings` say how the members reach each other; the default is the `group` section of the configuration. The
        events also go to the node, on the topic `group/NAME`, unless `is_journaled` is False.
        """
        options = GroupOptions(
            member=member,
            seeds=seeds,
            settings=settings,
            discard_own=discard_own,
            is_given=is_given,
            is_journaled=is_journaled,
        )
        return self.make_group(name, options)

    def make_group(self, name: str, options: GroupOptions) -> Group:
        """As `group`, with its keywords as one value."""
        from reknit.client.group.group import Group, transport_of
        from reknit.client.group.keys import GroupKeys
        from reknit.protocol.multicast.settings import GroupSettings

        self._check_open()
        config = options.settings if options.settings is not None else self.config.group
        return Group(
            name,
            transport_of(config),
            member=options.member or self.name,
            seeds=config.seeds if options.seeds is None else options.seeds,
            settings=GroupSettings.of(config),
            discard_own=options.discard_own,
            is_given=options.is_given,
            journal=self.group_journal(name) if options.is_journaled else None,
            keys=GroupKeys(options.keys) if options.keys else GroupKeys.configured(config.key_file),
        )

    def group_journal(self, name: str) -> GroupJournal:
        """Brings a group's events to this session's node."""
        from reknit.client.group.group import topic_of
        from reknit.client.group.journal import GroupJournal

        return GroupJournal(
            self.router,
            topic_of(name),
            ask=self.ask,
            skip_s=self.config.group.skip_s,
            window_bytes=self.config.limits.publish_window_bytes,
        )

    # -- admin requests

    async def ask(self, what: str, **args: Any) -> Any:
        """Make an admin request to the node (`status`, `ledger`, …); returns the answer's body."""
        return (await self.ask_raw(what, **args))[0]

    async def ask_raw(self, what: str, **args: Any) -> tuple[Any, bytes]:
        """As `ask`, with the bytes of batches that came with the answer."""
        self._check_open()
        return await self.router.admin_requests.ask(what, args)

    async def status(self) -> dict[str, Any]:
        """The node's state: journal, topics, rates, subscribers."""
        body: dict[str, Any] = await self.ask("status")
        return body

    async def ledger(self, topic: str = "", unbalanced: bool = False) -> list[dict[str, Any]]:
        """published = accepted + dead-lettered + lost + in flight, per durable subscriber and matching topic."""
        return await read_ledger(self.ask, topic, unbalanced)

    async def pause(self, pattern: str) -> list[str]:
        """Deliver nothing on topics that match, until `resume` with the same pattern, also after a restart.

        Returns all paused patterns, when that is durable.
        """
        body = await self.ask("pause", pattern=pattern)
        return list(body["paused"])

    async def resume(self, pattern: str) -> list[str]:
        """Resume the delivery that `pause` stopped; returns the patterns that are still paused."""
        body = await self.ask("resume", pattern=pattern)
        return list(body["paused"])

    async def add_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Let the node forward events from one authority (`here`, or a node's address) to another."""
        await self.ask("route_add", **{"in": source, "out": target, "pattern": pattern})

    async def delete_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Stop forwarding along a route that was added."""
        await self.ask("route_delete", **{"in": source, "out": target, "pattern": pattern})

    async def routes(self) -> list[dict[str, Any]]:
        """The routes that were added to the node."""
        rows: list[dict[str, Any]] = await self.ask("routes")
        return rows


async def _finish(publisher: RoutedPublisher) -> None:
    await (publisher.finish() if isinstance(publisher, Publisher) else publisher.flush())


async def _flush_all(publishers: Sequence[RoutedPublisher]) -> list[BaseException]:
    """Store everything that was published; returns the errors that no caller has got before."""
    failed = [publisher for publisher in publishers if publisher.is_heard()]
    rest = [publisher for publisher in publishers if publisher not in failed]
    results = await asyncio.gather(*(_finish(publisher) for publisher in rest), return_exceptions=True)
    return [result for result in results if isinstance(result, BaseException)]


def connect(
    url: str = "tcp://127.0.0.1:7440",
    *,
    name: str = "",
    config: Config | None = None,
    token: str = "",
    tls: ssl.SSLContext | None = None,
    wait_s: float = 5.0,
    address: Address | str = "",
) -> Session:
    """A session with the node at `url`, to be used with `async with`.

    With a `name`, the sources of this session keep their identity across restarts of the program. Responses to its
    requests go to `address`, or to an address made from the name.
    """
    return Session(url, name, config, token, tls, wait_s, address)
