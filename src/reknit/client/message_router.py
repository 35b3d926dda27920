"""The message router of a session: each message of the node goes to the part of the session that it concerns.

Parts register here and send over `connection`. The router knows them only by the small protocols below, so that
parts may import the router.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from reknit.config import Config
from reknit.connection.admin_requests import AdminRequests
from reknit.connection.cache_replies import reply_from_caches
from reknit.connection.node_connection import NodeConnection
from reknit.errors import LocalError, Refused
from reknit.protocol.publish import publisher as publishing
from reknit.protocol.recovery.cache import EventHolder
from reknit.protocol.recovery.cache_requests import CacheRequests
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.wire.announced import Announced
from reknit.wire.codec import Frames, Item, Raw
from reknit.wire.messages import (
    Ack,
    Answer,
    Deliver,
    Expect,
    Go,
    Hold,
    Lost,
    Refuse,
    Revoked,
    Settled,
    Subscribed,
    Unsubscribed,
    Welcome,
)
from reknit.wire.outcomes import PathThere, Told
from reknit.wire.recovery import Heartbeat, Offer, Recover, Recovered, Stored, Survey, Surveyed
from reknit.wire.streams import Abort, Piece, Room

log = logging.getLogger("reknit.client")

OnOutcomes = Callable[[Told | PathThere], None]


class RoutedPublisher(Protocol):
    """Publishes as one source: the node acknowledges its events, asks for some again, or refuses them."""

    @property
    def source(self) -> bytes: ...
    def receive(self, message: publishing.Input) -> None: ...
    async def flush(self) -> None: ...
    def fail(self, error: LocalError | Refused) -> None: ...
    def is_heard(self) -> bool: ...


class RoutedSubscription(Protocol):
    """Subscribes under one number: the node sends it events, and pieces of streams."""

    @property
    def sub(self) -> int: ...
    def receive(self, message: subscribing.Input) -> None: ...
    def receive_piece(self, message: Piece | Abort) -> None: ...


class RoutedStream(Protocol):
    """Writes one event in pieces: the node grants room for more, and reports the event's outcome."""

    def receive(self, message: Room | Told) -> None: ...
    def lost(self) -> None: ...
    async def abort(self) -> None: ...


class MessageRouter:
    """Every part of a session that the node sends messages to, and the connection that they come over."""

    def __init__(
        self, url: str, name: str, config: Config, token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.connection = NodeConnection(url, name, self, config, token, tls)
        self.admin_requests = AdminRequests(self.connection)
        self.cache_requests = CacheRequests()
        self.publishers: dict[bytes, RoutedPublisher] = {}
        self.subscriptions: dict[int, RoutedSubscription] = {}
        self.streams: dict[bytes, RoutedStream] = {}
        self.caches: dict[Offer, EventHolder] = {}
        """The caches that this session offered to the node."""
        self._on_outcomes: dict[bytes, OnOutcomes] = {}
        self._held: set[bytes] = set()
        """The sources that the node asked to wait."""
        self._announced: Announced[Deliver] = Announced()
        self._routes: dict[type[Any], Callable[[Any], None]] = {
            Frames: self._deliver,
            Deliver: self._announced.announce,
            **dict.fromkeys((Ack, Expect, Refuse, Stored), self._to_publisher),
            **dict.fromkeys(
                (Settled, Subscribed, Unsubscribed, Lost, Heartbeat, Revoked), self._to_subscription
            ),
            **dict.fromkeys((Piece, Abort), self._to_reader),
            **dict.fromkeys((Room, Told, PathThere), self._to_stream_or_outcomes),
            **dict.fromkeys((Recovered, Surveyed), self.cache_requests.take),
            **dict.fromkeys((Recover, Survey), self._answer_from_caches),
            **dict.fromkeys((Answer, Raw), self.admin_requests.take),
            Hold: self._hold,
            Go: self._go,
        }

    # -- parts come and go

    def add_publisher(self, publisher: RoutedPublisher, on_outcomes: OnOutcomes | None = None) -> None:
        """Route messages about its source to this publisher, and reports of outcomes to `on_outcomes`."""
        self.publishers[publisher.source] = publisher
        if on_outcomes is not None:
            self._on_outcomes[publisher.source] = on_outcomes
        if (welcome := self.connection.welcome) is not None:
            self._connect(publisher, welcome.epoch)

    def _connect(self, publisher: RoutedPublisher, epoch: str) -> None:
        """The connection is up. A publisher with a name may find that its source is another one in this journal."""
        before = publisher.source
        publisher.receive(publishing.Connected(epoch))
        if publisher.source != before:
            self.publishers[publisher.source] = self.publishers.pop(before)
            if (on_outcomes := self._on_outcomes.pop(before, None)) is not None:
                self._on_outcomes[publisher.source] = on_outcomes

    def remove_publisher(self, publisher: RoutedPublisher) -> None:
        """Stop routing messages to this publisher."""
        if self.publishers.get(publisher.source) is publisher:
            del self.publishers[publisher.source]
            self._on_outcomes.pop(publisher.source, None)

    def add_subscription(self, subscription: RoutedSubscription) -> None:
        """Route messages for its number to this subscription."""
        self.subscriptions[subscription.sub] = subscription

    def remove_subscription(self, subscription: RoutedSubscription) -> None:
        """Stop routing messages to this subscription."""
        self.subscriptions.pop(subscription.sub, None)

    def add_stream(self, source: bytes, stream: RoutedStream) -> None:
        """Route messages about a stream to its writer."""
        self.streams[source] = stream

    def remove_stream(self, source: bytes) -> None:
        """Stop routing messages about a stream."""
        self.streams.pop(source, None)

    def offer_cache(self, cache: EventHolder, offer: Offer) -> None:
        """Let the node recover events from this cache."""
        self.caches[offer] = cache
        self.connection.send(offer)

    def withdraw_cache(self, offer: Offer) -> None:
        """Tell the node that the cache is gone."""
        if self.caches.pop(offer, None) is not None:
            self.connection.send(Offer(offer.pattern, offer.source, is_on=False))

    def connection_state(self) -> subscribing.Connected | subscribing.Disconnected:
        """The state of the connection, as an input for a subscription's machine."""
        welcome = self.connection.welcome
        return subscribing.Disconnected() if welcome is None else subscribing.Connected(welcome.epoch)

    # -- called by the connection

    def connected(self, welcome: Welcome) -> None:
        self.connection.send(*self.caches)
        for publisher in list(self.publishers.values()):
            self._connect(publisher, welcome.epoch)
        for subscription in list(self.subscriptions.values()):
            subscription.receive(subscribing.Connected(welcome.epoch))

    def disconnected(self) -> None:
        self._announced.clear()
        self._held.clear()
        self.cache_requests.lost()
        for stream in list(self.streams.values()):
            stream.lost()
        for publisher in list(self.publishers.values()):
            publisher.receive(publishing.Disconnected())
        for subscription in list(self.subscriptions.values()):
            subscription.receive(subscribing.Disconnected())
        self.admin_requests.lost()

    def received(self, items: list[Item]) -> None:
        for item in items:
            route = self._routes.get(type(item))
            if route is None:
                log.debug("ignored %r", item)
            else:
                route(item)

    # -- routes

    def _to_publisher(self, message: Ack | Expect | Refuse | Stored) -> None:
        publisher = self.publishers.get(message.source)
        if publisher is not None:
            publisher.receive(message)

    def _to_subscription(
        self, message: Settled | Subscribed | Unsubscribed | Lost | Heartbeat | Revoked
    ) -> None:
        subscription = self.subscriptions.get(message.sub)
        if subscription is not None:
            subscription.receive(message)

    def _to_reader(self, message: Piece | Abort) -> None:
        subscription = self.subscriptions.get(message.sub)
        if subscription is not None:
            subscription.receive_piece(message)

    def _to_stream_or_outcomes(self, message: Room | Told | PathThere) -> None:
        stream = self.streams.get(message.source)
        on_outcomes = self._on_outcomes.get(message.source)
        if stream is not None and not isinstance(message, PathThere):
            stream.receive(message)
        elif on_outcomes is not None and not isinstance(message, Room):
            on_outcomes(message)

    def _answer_from_caches(self, request: Recover | Survey) -> None:
        self.connection.send_buffers(reply_from_caches(list(self.caches.values()), request))

    def _hold(self, message: Hold) -> None:
        log.warning("the node asks publishers to wait: %s", message.text)
        self._held |= set(message.sources or self.publishers)
        self._to_held(message)

    def _go(self, message: Go) -> None:
        self._to_held(message)
        self._held.clear()

    def _to_held(self, message: Hold | Go) -> None:
        for source in [source for source in self.publishers if source in self._held]:
            self.publishers[source].receive(message)

    # -- deliveries: announced, then the batches

    def _deliver(self, frames: Frames) -> None:
        """Pass on batches of the delivery that was announced, without waiting for all of it."""
        announced = self._announced.take(len(frames.data))
        if announced is None:
            if self.cache_requests.take_frames(frames) is not None:
                log.error("dropped batches that were not announced; the node still owes them")
            return
        delivery, is_last = announced
        subscription = self.subscriptions.get(delivery.sub)
        if subscription is None:
            return
        subscription.receive(
            subscribing.Delivered(
                frames.batches(),
                delivery.position if is_last else -1,
                delivery.attempt,
                delivery.counted,
                delivery.ordered_to,
            )
        )
