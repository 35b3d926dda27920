"""A client's sender: its messages become events, and each is settled with the outcome of its event."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from reknit.errors import Full, InvalidTopic
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.codec.addresses import topic_of
from reknit.gateway.amqp.codec.conditions import DECODE_ERROR, SIZE_EXCEEDED, condition_of
from reknit.gateway.amqp.codec.encoding import MalformedValue
from reknit.gateway.amqp.codec.messages import DecodedMessage, decode_message, decode_start
from reknit.gateway.amqp.deliveries import DeliveryReader, Handle, WholeMessage
from reknit.gateway.amqp.links.incoming_stream import IncomingMessageStream
from reknit.gateway.amqp.links.offers import MessageOffers
from reknit.gateway.amqp.links.rights import ClientRights
from reknit.gateway.amqp.links.services import LinkServices
from reknit.outcome import Code
from reknit.topic import check_topic

RESEND_RELEASED = "qd.resend-released"
_data = itemgetter(1)


class AmqpIncomingLink:
    """One link. If it has no topic, the property `to` of each message names one."""

    def __init__(
        self, services: LinkServices, handle: Handle, *, topic: str, resend_released: bool, is_dynamic: bool
    ) -> None:
        self._services = services
        self.handle = handle
        self._topic = topic
        self._resend_released = resend_released
        self._is_dynamic = is_dynamic
        self._reader = DeliveryReader(handle)
        self._offers: dict[str, MessageOffers] = {}
        self._credit_max = services.settings.credit_events
        self.unsettled = 0
        """How many of its messages have no outcome yet."""
        self.is_gone = False
        self._stream_min = services.settings.stream_bytes_min
        self._streams: list[IncomingMessageStream] = []
        """Streamed messages without an outcome. The last of them may still be arriving."""
        if topic:
            self._open(topic)

    def _open(self, topic: str) -> MessageOffers:
        offers = self._offers[topic] = MessageOffers(
            self._services.node,
            topic,
            resend_released=self._resend_released,
            intake=self._services.intake,
            on_dropped=self._services.counts.dropped_settled,
            on_path=self._on_path,
            on_count=self._count,
            on_settled=self._resume,
        )
        return offers

    def _count(self, change: int) -> None:
        self.unsettled += change

    # -- messages

    def work(self) -> None:
        """Read and offer the messages that have arrived. Those of one turn form one batch for each topic."""
        if self.is_gone:
            return
        if deliveries.credit(self.handle) < 0:
            self._end("amqp:link:transfer-limit-exceeded", "more messages than the link had credit for")
            return
        if self._streams and not self._read_streams():
            return
        services, reader = self._services, self._reader
        before = reader.held_bytes
        arrived = reader.read(self._credit_max, services.intake.room)
        services.intake.assemble(reader.held_bytes - before)
        longest = max(map(len, map(_data, arrived)), default=0)
        if longest > services.message_bytes_max:
            arrived = []  # the link ends: no message of this turn has an outcome, and the client knows that
        services.counts.took(len(arrived))
        self._offer_all(arrived)
        if not before:
            self._stream_min = services.settings.stream_bytes_min
        if reader.held_bytes > self._stream_min:
            self._begin_stream()
        self._check_size(max(longest, reader.held_bytes))
        if len(arrived) == self._credit_max:  # there may be more
            self._resume()
        if not self.is_gone:
            self.give_credit()

    def _offer_all(self, arrived: list[WholeMessage]) -> None:
        decoded = self._decode(arrived)
        if self._topic:
            self._offer(self._topic, decoded)
            return
        by_topic: dict[str, list[tuple[DecodedMessage, WholeMessage]]] = {}
        for pair in decoded:
            by_topic.setdefault(topic_of(pair[0].to), []).append(pair)
        for topic, group in by_topic.items():
            self._offer(topic, group)

    def _decode(self, arrived: list[WholeMessage]) -> list[tuple[DecodedMessage, WholeMessage]]:
        """The events of messages. Bytes that are not a message are rejected."""
        found: list[tuple[DecodedMessage, WholeMessage]] = []
        for one in arrived:
            try:
                found.append((decode_message(one[1]), one))
            except MalformedValue as error:
                self._reject([_handle(*one)], DECODE_ERROR, str(error))
        return found

    def _offer(self, topic: str, group: list[tuple[DecodedMessage, WholeMessage]]) -> None:
        if not group:
            return
        handles = [_handle(*one) for _, one in group]
        offers = self._topic_offers(topic, handles)
        if offers is None:
            return
        sizes = [len(data) for _, (_, data, _) in group]
        self._services.intake.hold(sum(sizes), len(sizes))
        try:
            offers.offer([message for message, _ in group], handles, sizes)
        except Full as error:
            self._services.intake.release(sum(sizes))
            self._reject(handles, condition_of(Code.RESOURCE_EXHAUSTED), str(error))

    def _topic_offers(self, topic: str, handles: list[Handle | None]) -> MessageOffers | None:
        """Where messages go. A topic that messages name is asked for each time: the rules may have changed."""
        is_permitted = bool(self._topic) or self._services.rights.may_publish(topic)
        return (self._offers.get(topic) if is_permitted else None) or self._open_named(topic, handles)

    def _open_named(self, topic: str, handles: list[Handle | None]) -> MessageOffers | None:
        """Begin with a topic that messages name. Otherwise reject them."""
        objection = self._objection(topic)
        if objection is None:
            return self._open(topic)
        code, text = objection
        self._reject(handles, condition_of(code), text)
        return None

    def _objection(self, topic: str) -> tuple[Code, str] | None:
        """Why messages may not go to a topic that they name."""
        rights, topics_max = self._services.rights, self._services.settings.relay_topics_max
        try:
            check_topic(topic)
        except InvalidTopic as error:
            return Code.INVALID_ARGUMENT, f"property `to`: {error}"
        if not rights.may_publish(topic):
            return Code.PERMISSION_DENIED, f"{rights.user} may not publish on {topic}"
        if why := self._services.quotas.publish(rights.user, topic):
            return Code.RESOURCE_EXHAUSTED, why
        if len(self._offers) >= topics_max:
            self._close_idle()
        if len(self._offers) >= topics_max:
            return Code.RESOURCE_EXHAUSTED, "too many topics at once (amqp.relay_topics_max)"
        return None

    def _reject(self, handles: Sequence[Handle | None], condition: str, text: str) -> None:
        """No message of these is published."""
        self._services.counts.dropped_settled(sum(handle is None for handle in handles))
        for handle in handles:
            if handle is not None:
                deliveries.reject(handle, condition, text)

    def _close_idle(self) -> None:
        for topic in [topic for topic, one in self._offers.items() if not one.count]:
            self._offers.pop(topic).close()

    def _check_size(self, longest: int) -> None:
        """A message that is too long ends its link, as AMQP requires. The connection's other links stay."""
        size_max = self._services.message_bytes_max
        if longest > size_max:
            text = f"a message of {longest} bytes or more is over the limit of {size_max} (amqp.message_bytes_max)"
            self._end(SIZE_EXCEEDED, text)
        elif self._services.intake.is_assembly_full:
            text = "too many bytes are still arriving on this connection (amqp.assembly_bytes_max)"
            self._end(condition_of(Code.RESOURCE_EXHAUSTED), text)

    # -- streams

    def _read_streams(self) -> bool:
        """Read more of the message that is being streamed. Whether the link may continue with the next message."""
        last = self._streams[-1]
        last.read()
        count = len(self._streams)
        self._streams = [one for one in self._streams if not one.is_over]
        self.unsettled -= count - len(self._streams)
        return not last.is_arriving

    def _begin_stream(self) -> None:
        """Forward a long message before its end has arrived, if a receiver takes streams."""
        reader, services = self._reader, self._services
        self._stream_min = 2 * reader.held_bytes  # decoding its beginning at every frame would take too long
        if not self._topic or not services.node.takes_streams(self._topic):
            return
        partial = reader.partial()
        start = decode_start(partial[1]) if partial is not None else None
        if partial is None or start is None:
            return
        services.intake.assemble(-reader.held_bytes)
        reader.leave()
        stream = IncomingMessageStream(
            services.node,
            self.handle,
            partial[0],
            start,
            partial[1][start.payload_at :],
            topic=self._topic,
            resend_released=self._resend_released,
            intake=services.intake,
            on_change=self._resume,
        )
        self._streams.append(stream)
        self.unsettled += 1
        services.counts.took(1)
        stream.begin()
        self._read_streams()

    # -- turns

    def _resume(self) -> None:
        """Something changed: the link may have room, credit or bytes to read."""
        if not self.is_gone:
            self._services.turns.add(self)
            self._services.turns.wake()

    def flush(self) -> None:
        """An incoming link gathers no outcomes."""

    # -- credit

    def _on_path(self, is_there: bool) -> None:
        """A first receiver of the topic came, or the last one is gone."""
        self._resume()

    @property
    def credit(self) -> int:
        """How many more messages the client may send."""
        return int(deliveries.credit(self.handle))

    def give_credit(self) -> None:
        """Grant the client as much credit as there is room for; none while nobody receives the topic."""
        has_path = not self._topic or self._offers[self._topic].has_path
        if self._services.intake.is_stopping or not has_path:
            return
        left = max(
            0, deliveries.credit(self.handle)
        )  # proton counts wrongly from an initial count of 2^31 on
        room = self._services.settings.unsettled_events_max - self.unsettled
        wanted = min(self._credit_max, room) - left
        if wanted * 4 >= self._credit_max or (wanted > 0 and not left):
            deliveries.grant(self.handle, wanted)

    # -- the end

    @property
    def address(self) -> str:
        """The topic; empty if each message names one."""
        return self._topic

    def is_permitted(self, rights: ClientRights) -> bool:
        """Whether the client may still have this link. Where messages name their topics, each is asked for."""
        return not self._topic or rights.may_publish(self._topic)

    def end(self, code: Code, text: str) -> None:
        """The node ends the link, and says why. Offered events are still delivered."""
        self._end(condition_of(code), text)

    def _end(self, condition: str, text: str) -> None:
        deliveries.close_link(self.handle, condition, text)
        self.close()
        self._services.turns.wake()

    def close(self, is_closed: bool = True) -> None:
        """The link is gone, and its handles are invalid. Offered events are still delivered."""
        if self.is_gone:
            return
        self.is_gone = True
        self._services.intake.assemble(-self._reader.held_bytes)
        if self._is_dynamic:
            self._services.replies.remove(self._topic)
        for one in self._offers.values():
            one.close()
        for stream in self._streams:
            stream.close()


def _handle(delivery: Handle, data: bytes, is_settled: bool) -> Handle | None:
    """The handle of a message that needs an outcome. One that was sent settled is done for its sender."""
    if is_settled:
        deliveries.settle(delivery)
    return None if is_settled else delivery
