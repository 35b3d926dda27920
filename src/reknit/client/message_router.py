"""A session's switchboard: what the node says goes to the publisher, subscription, stream or cache that it is for."""

from __future__ import annotations

import logging
import ssl

from reknit.client.group.journal import Relay
from reknit.client.publish.outcomes import OutcomePublisher
from reknit.client.publish.publisher import Publisher
from reknit.client.recovery.caches import reply
from reknit.client.rpc.attribute_publisher import Outlet
from reknit.client.streams import OutgoingStream
from reknit.client.subscribe.subscription import Subscription
from reknit.config import Config
from reknit.connection.admin_requests import Questions
from reknit.connection.cache_requests import Inquiries
from reknit.connection.node_connection import Link
from reknit.protocol.publish import publisher as publishing
from reknit.protocol.recovery.cache import EventHolder
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

Sender = Publisher | Outlet | Relay


class Switchboard:
    """Everyone in a session whom the node may speak to, and the link that it speaks over."""

    def __init__(
        self, url: str, name: str, config: Config, token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.link = Link(url, name, self, config, token, tls)
        self.questions = Questions(self.link)
        self.inquiries = Inquiries()
        self.senders: dict[bytes, Sender] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.streams: dict[bytes, OutgoingStream] = {}
        self.keepers: dict[Offer, EventHolder] = {}
        self._held: set[bytes] = set()
        """The sources that the node asked to wait."""
        self._announced: Announced[Deliver] = Announced()

    # -- who is there

    def add_sender(self, sender: Sender) -> None:
        """What the node says about its source is for it from now on."""
        self.senders[sender.source] = sender
        if self.link.is_up:
            sender.receive(publishing.Connected())

    def remove_sender(self, sender: Sender) -> None:
        """… and no more."""
        if self.senders.get(sender.source) is sender:
            del self.senders[sender.source]

    def keep(self, keeper: EventHolder, offer: Offer) -> None:
        """Answer the node's questions about events from here too."""
        self.keepers[offer] = keeper
        self.link.send(offer)

    def keep_no_more(self, offer: Offer) -> None:
        if self.keepers.pop(offer, None) is not None:
            self.link.send(Offer(offer.pattern, offer.source, is_on=False))

    # -- the link's side

    def linked(self, welcome: Welcome) -> None:
        self.link.send(*self.keepers)
        for sender in list(self.senders.values()):
            sender.receive(publishing.Connected())
        for subscription in list(self.subscriptions.values()):
            subscription.receive(subscribing.Connected(welcome.epoch))

    def unlinked(self) -> None:
        self._announced.clear()
        self._held.clear()
        self.inquiries.lost()
        for stream in list(self.streams.values()):
            stream.lost()
        for sender in list(self.senders.values()):
            sender.receive(publishing.Disconnected())
        for subscription in list(self.subscriptions.values()):
            subscription.receive(subscribing.Disconnected())
        self.questions.lost()

    def items(self, items: list[Item]) -> None:
        for item in items:
            self._take(item)

    def _take(self, item: Item) -> None:
        match item:
            case Frames():
                self._delivered(item)
            case Deliver():
                self._announced.announce(item)
            case Ack() | Expect() | Refuse() | Stored():
                sender = self.senders.get(item.source)
                if sender is not None:
                    sender.receive(item)
            case Settled() | Subscribed() | Unsubscribed() | Lost() | Heartbeat() | Revoked():
                subscription = self.subscriptions.get(item.sub)
                if subscription is not None:
                    subscription.receive(item)
            case Piece() | Abort():
                if (reading := self.subscriptions.get(item.sub)) is not None:
                    reading.piece(item)
            case Room() | Told() if item.source in self.streams:
                self.streams[item.source].receive(item)
            case Told() | PathThere():
                outcomes = self.senders.get(item.source)
                if isinstance(outcomes, OutcomePublisher):
                    outcomes.hear(item)
            case Hold(text=text, sources=sources):
                log.warning("the node asks publishers to wait: %s", text)
                self._held |= set(sources or self.senders)
                self._tell_held(item)
            case Go():
                self._tell_held(item)
                self._held.clear()
            case Recovered() | Surveyed():
                self.inquiries.take(item)
            case Recover() | Survey():
                self.link.send_buffers(reply(list(self.keepers.values()), item))
            case Answer() | Raw():
                self.questions.take(item)
            case _:
                log.debug("ignored %r", item)

    def _tell_held(self, message: Hold | Go) -> None:
        for source in [source for source in self.senders if source in self._held]:
            self.senders[source].receive(message)

    def _delivered(self, frames: Frames) -> None:
        """Batches belong to the delivery that was announced; what arrived of it so far is handed on at once."""
        announced = self._announced.take(len(frames.data))
        if announced is None:
            if self.inquiries.take_frames(frames) is not None:
                log.error("batches came that were not announced: dropped, they are still owed")
            return
        deliver, is_last = announced
        subscription = self.subscriptions.get(deliver.sub)
        if subscription is None:
            return
        position = deliver.position if is_last else -1
        how = (deliver.attempt, deliver.counted, deliver.ordered_to)
        subscription.receive(subscribing.Delivered(frames.batches(), position, *how))
