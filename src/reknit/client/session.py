"""A session: one program's connection to the fabric, for any number of publishers and subscriptions."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import xxhash

from reknit.address import Address
from reknit.batch import PRIORITY_DEFAULT, SOURCE_BYTES
from reknit.checkpoint import Checkpoint
from reknit.client.group.group import Group, topic_of, transport_of
from reknit.client.group.journal import GroupJournal
from reknit.client.message_router import Sender, Switchboard
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.publish.publisher import Kept, Publisher
from reknit.client.recovery.caches import Recoverable
from reknit.client.recovery.subscription_recovery import Recovering, past_of
from reknit.client.rpc.attribute_publisher import Outlets
from reknit.client.rpc.requests import Caller, Reply, address_of, default_address
from reknit.client.rpc.service import Handler, Service
from reknit.client.subscribe.subscription import OnLost, Subscription
from reknit.config import Config, MulticastSettings
from reknit.envelope.attributes import Attributes
from reknit.errors import Closed
from reknit.frame import Buffer
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.topic import Pattern, check_topic
from reknit.transport.heap import keep_heap
from reknit.wire.messages import Start


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
        self.token, self.tls = token, tls
        self._wait_s = wait_s
        self._id = secrets.token_bytes(SOURCE_BYTES // 2)
        self._count = 0
        self.address = address_of(address) if address else default_address(name, self._id)
        """Where responses to this session's requests go."""
        self.outlets = Outlets(self)
        self._caller: Caller | None = None
        self._by_topic: dict[str, Publisher] = {}
        self.switchboard = Switchboard(url, name or self._id.hex(), self.config, token, tls)
        self.link, self.inquiries = self.switchboard.link, self.switchboard.inquiries

    # -- life

    async def open(self) -> Session:
        """Connect. Raises `NotConnected` when no node answers in time."""
        keep_heap()
        await self.link.open(self._wait_s)
        return self

    async def close(self) -> None:
        """Return when everything published is kept, then part."""
        if self._caller is not None:
            await self._caller.close()
        senders = self.switchboard.senders
        try:
            if self.link.is_up:
                await asyncio.gather(*(sender.flush() for sender in list(senders.values())))
        finally:
            for stream in list(self.switchboard.streams.values()):
                await stream.abort()
            for sender in list(senders.values()):
                sender.fail(Closed("the session", "connect again"))
            await self.link.close()

    async def __aenter__(self) -> Session:
        return await self.open()

    async def __aexit__(self, *args: object) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        return self.link.is_up

    # -- publishing

    def publisher(
        self,
        topic: str,
        *,
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
    ) -> Publisher:
        """A publisher on one topic, with a source of its own.

        In a session with a name the source lasts: a later session of that name goes on in its seqs. `wait=False`
        raises `Full` at the window's limit instead of waiting. Its newest events (`history` of them) stay at hand for
        who misses some, unless `cache=False`. `heartbeat_s` tells its last seq so often, when that has changed and then
        ever more rarely, or always. With `stored_by=2` an event is kept when the node and one more cache
        have stored it.

        With `outcome`, publishing waits for what became of the event: it gives `Outcome.ACCEPTED`, or raises
        `Released`, `Rejected` or `Modified`. With `resend_released`, what a subscriber releases goes to the next one
        first, wherever in the fabric that is. This is for topics with a distribution; on others, kept is accepted.
        """
        check_topic(topic)
        self._count += 1
        lasting = source is not None or bool(self.name)
        if source is None:
            source = self._source(topic)
        if source in self.switchboard.senders:
            raise Closed(f"source {source.hex()} is in use by a publisher of this session", "use that one")
        recovery = Recoverable.of(self.config, cache, history, heartbeat_s, is_heartbeat_periodic, stored_by)
        how = (self, source, topic, lasting, wait, ttl_ms, priority, recovery)
        if outcome or resend_released:
            publisher: Publisher = OutcomePublisher(*how, is_resent=resend_released)
        else:
            publisher = Publisher(*how)
        self.add_publisher(publisher)
        return publisher

    def _source(self, topic: str) -> bytes:
        if self.name:
            return xxhash.xxh3_128_digest(f"{self.name}\0{topic}".encode())
        return self._id + self._count.to_bytes(SOURCE_BYTES // 2, "big")

    def _publisher_of(self, topic: str) -> Publisher:
        publisher = self._by_topic.get(topic)
        if publisher is None:
            publisher = self._by_topic[topic] = self.publisher(topic)
        return publisher

    def publish(self, topic: str, payload: Buffer | str) -> Kept:
        """Publish one event. Awaiting the result returns when the event is kept: durable on the node."""
        return self._publisher_of(topic).publish(payload)

    def publish_many(self, topic: str, payloads: Iterable[Buffer | str]) -> Kept:
        """Publish many events in one call and as few batches as possible; returns when all are kept."""
        return self._publisher_of(topic).publish_many(payloads)

    def publish_event(self, attributes: Attributes, payload: bytes) -> Kept:
        """Publish one event with attributes of uProtocol; they say where to. Raises `InvalidAttributes`."""
        return self.outlets.send(attributes, payload)

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
        """Ask whoever serves the address, and wait for the reply: for `ttl_ms`, or as `rpc.ttl_ms` says.

        Raises `RequestFailed` with a google.rpc code if there is none, or the service says no. UNAVAILABLE means that
        nobody was asked; after DEADLINE_EXCEEDED it is not known whether the request was carried out. Further
        `attributes` may be `permission_level`, `token`, `traceparent` and `payload_format`.
        """
        if self._caller is None:
            self._caller = Caller(self)
        made = self._caller.make(address_of(address), ttl_ms, priority, attributes)
        return await self._caller.request(made, payload.encode() if isinstance(payload, str) else payload)

    def serve(
        self, address: Address | str, handler: Handler, *, name: str = "", handlers_max: int | None = None
    ) -> Service:
        """Answer requests to the address with what the handler returns, while in its `async with`.

        Requests that come while nobody serves wait until their ttl is over. One session at a time serves an address:
        the latest, unless each has a `name` of its own.
        """
        limit = self.config.rpc.handlers_max if handlers_max is None else handlers_max
        return Service(self, address_of(address), handler, name, limit)

    # -- subscribing

    def subscribe(
        self,
        pattern: str,
        *,
        name: str = "",
        history: bool | int | float | timedelta = False,
        start: Checkpoint | None = None,
        auto_accept: bool = True,
        on_lost: OnLost | None = None,
        caches: Sequence[str] | None = None,
        recover: bool = True,
        query_s: float | None = None,
        is_cache: bool = False,
        streams: bool = False,
    ) -> Subscription:
        """Events that match the pattern, in order per source.

        With a `name` the subscription is durable: the node keeps what it is owed, and it goes on where it was. It
        starts with what is published from now on, or with history, or after a checkpoint. History is everything held
        (`True`), the last so many of each source (an integer), or what is no older (seconds, or a timedelta).

        Without a name, what is missing is recovered from the node and what it knows, then from `caches`, which are
        further nodes, nearest first; what nobody has is lost, and `on_lost` is told. `query_s` looks for a lost tail
        every so often.

        With `streams`, events may come whose payload is read in pieces: `async for piece in event.pieces()`. They are
        only there on topics that are balanced or closest.
        """
        Pattern(pattern)
        self._count += 1
        checkpoint = None if start is None else {source.hex(): seq for source, seq in start.items()}
        past = past_of(history)
        begin = Start(
            history=past is not None,
            checkpoint=checkpoint,
            count=past.count if past else 0,
            age_s=past.age_s if past else 0.0,
        )
        settings = self.config.recovery
        recovery = Recovering(
            caches=tuple(settings.caches if caches is None else caches),
            history=past,
            query_s=settings.query_s if query_s is None else query_s,
            is_on=recover,
            after=dict(start.items()) if start is not None else {},
        )
        how = (auto_accept, on_lost, recovery, is_cache, streams)
        return Subscription(self, self._count, pattern, name, begin, *how)

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
        """A member of a group, to be used with `async with`: what each member sends, all get, in order.

        The group meets as `settings` say, or the configuration's `group` section. Its events are also brought to the
        node, on the topic `group/NAME`, unless `is_journaled` is False.
        """
        config = settings if settings is not None else self.config.group
        return Group(
            name,
            transport_of(config),
            member=member or self.name,
            seeds=config.seeds if seeds is None else seeds,
            settings=GroupSettings.of(config),
            discard_own=discard_own,
            is_given=is_given,
            journal=GroupJournal(self, topic_of(name)) if is_journaled else None,
        )

    # -- asking

    async def ask(self, what: str, **args: Any) -> Any:
        """A question to the node (`status`, `ledger`, …); gives the answer's body."""
        return (await self.ask_raw(what, **args))[0]

    async def ask_raw(self, what: str, **args: Any) -> tuple[Any, bytes]:
        """As `ask`, with the bytes of batches that came along."""
        return await self.switchboard.questions.ask(what, args)

    async def status(self) -> dict[str, Any]:
        """How the node is: journal, topics, rates, subscribers."""
        body: dict[str, Any] = await self.ask("status")
        return body

    async def ledger(self) -> list[dict[str, Any]]:
        """published = accepted + dead-lettered + lost + in flight, per durable subscriber and topic."""
        rows: list[dict[str, Any]] = await self.ask("ledger")
        return rows

    async def pause(self, pattern: str) -> list[str]:
        """Hand out nothing on topics that match, until `resume` with the same pattern, also after a restart.

        Returns when that is durable; gives all patterns that are paused.
        """
        body = await self.ask("pause", pattern=pattern)
        return list(body["paused"])

    async def resume(self, pattern: str) -> list[str]:
        """Go on with what `pause` stopped; gives the patterns that are still paused."""
        body = await self.ask("resume", pattern=pattern)
        return list(body["paused"])

    async def add_route(self, source: str, target: str, pattern: str = "**") -> None:
        """Let the node pass on what is published at one authority (`here`, or a node's address) to another."""
        await self.ask("route_add", **{"in": source, "out": target, "pattern": pattern})

    async def delete_route(self, source: str, target: str, pattern: str = "**") -> None:
        """… and no more."""
        await self.ask("route_delete", **{"in": source, "out": target, "pattern": pattern})

    async def routes(self) -> list[dict[str, Any]]:
        """The routes that were added to the node."""
        rows: list[dict[str, Any]] = await self.ask("routes")
        return rows

    # -- whom the node speaks to

    def add(self, subscription: Subscription) -> None:
        """What the node says to it gets there from now on."""
        self.switchboard.subscriptions[subscription.sub] = subscription

    def add_publisher(self, publisher: Sender) -> None:
        """What the node says about its source is for this publisher from now on."""
        self.switchboard.add_sender(publisher)

    def forget(self, member: Sender | Subscription) -> None:
        """… and no more."""
        if isinstance(member, Subscription):
            self.switchboard.subscriptions.pop(member.sub, None)
            return
        self.switchboard.remove_sender(member)
        if self._by_topic.get(member.topic) is member:
            del self._by_topic[member.topic]

    def connected(self) -> subscribing.Connected | subscribing.Disconnected:
        """What a subscription needs to know of the connection."""
        welcome = self.link.welcome
        return subscribing.Disconnected() if welcome is None else subscribing.Connected(welcome.epoch)


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

    With a `name`, what this session publishes keeps its identity across restarts of the program. Responses to its
    requests go to `address`, or to one that is made up from the name.
    """
    return Session(url, name, config, token, tls, wait_s, address)
