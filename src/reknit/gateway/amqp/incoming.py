"""A client's sender: its messages become events, and each is settled with what became of its event."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from reknit.errors import Full, InvalidTopic
from reknit.gateway.amqp import deliveries
from reknit.gateway.amqp.conditions import DECODE_ERROR, SIZE_EXCEEDED, condition_of, modified_of
from reknit.gateway.amqp.deliveries import Arrived, Handle
from reknit.gateway.amqp.encoding import MalformedValue
from reknit.gateway.amqp.incoming_stream import Arriving
from reknit.gateway.amqp.messages import Taken, begin, columns, take
from reknit.node.anycast.gateway_api import Result
from reknit.outcome import Code, Outcome
from reknit.topic import check_topic

if TYPE_CHECKING:
    from reknit.gateway.amqp.connection import AmqpConnection

RESEND_RELEASED = "qd.resend-released"
DONE = -1
_data = itemgetter(1)


class Offered:
    """What one sender of the fabric was given on behalf of a link, by seq, until it ends."""

    def __init__(self, link: Incoming, topic: str) -> None:
        self._link = link
        self._first = 1
        self._deliveries: list[Handle | None] = []
        self._sizes: list[int] = []
        """A message's size, or DONE."""
        self.count = 0
        """How many have no outcome yet."""
        fabric = link.connection.server.fabric
        self.sender = fabric.sender(topic, self._on_results, link.on_path, link.resend_released)

    def offer(
        self, taken: Sequence[Taken], deliveries: Sequence[Handle | None], sizes: Sequence[int]
    ) -> None:
        """Give in events. Raises `Full`, and has given in none of them then."""
        payloads = [one.payload for one in taken]
        first, _ = self.sender.offer(payloads, columns=columns(taken))
        if not self._deliveries:
            self._first = first
        assert first == self._first + len(self._deliveries), "a sender numbers its events without a gap"
        self._deliveries += deliveries
        self._sizes += sizes
        self.count += len(taken)
        self._link.unsettled += len(taken)

    def _on_results(self, results: Sequence[Result]) -> None:
        for result in results:
            low = max(0, result.start - self._first)
            high = min(max(0, result.stop - self._first), len(self._sizes))
            found = [one for one in self._deliveries[low:high] if one is not None]
            if result.outcome != Outcome.RECEIVED and low < high:
                self._finish(low, high)
            self._link.settle(found, result)
        self._link.settled()

    def _finish(self, low: int, high: int) -> None:
        sizes = [size for size in self._sizes[low:high] if size != DONE]
        self.count -= len(sizes)
        self._link.unsettled -= len(sizes)
        self._link.connection.unheld(sum(sizes))
        self._deliveries[low:high] = [None] * (high - low)
        self._sizes[low:high] = [DONE] * (high - low)
        done = 0
        while done < len(self._sizes) and self._sizes[done] == DONE:
            done += 1
        if done:
            del self._deliveries[:done], self._sizes[:done]
            self._first += done

    def close(self) -> None:
        """No outcome is wanted any more."""
        self.sender.close()
        self._link.connection.unheld(sum(size for size in self._sizes if size != DONE))
        self._deliveries, self._sizes, self.count = [], [], 0


class Incoming:
    """One link. Without a topic of its own, each message says in `to` where it goes."""

    def __init__(
        self,
        connection: AmqpConnection,
        handle: Handle,
        topic: str,
        resend_released: bool,
        is_dynamic: bool,
    ) -> None:
        self.connection = connection
        self._is_dynamic = is_dynamic
        self.handle = handle
        self.topic = topic
        self.resend_released = resend_released
        self._reader = deliveries.Reader(handle)
        self._offered: dict[str, Offered] = {}
        self._credit_max = connection.settings.credit_events
        self.unsettled = 0
        """How many of its messages have no outcome yet."""
        self.is_gone = False
        self._stream_min = connection.settings.stream_bytes_min
        self._arriving: list[Arriving] = []
        """Messages that go on in pieces and have no outcome yet; the last of them may still be arriving."""
        if topic:
            self._offered[topic] = Offered(self, topic)

    # -- messages

    def take(self) -> None:
        """Read what has arrived and offer it: what came in one turn goes in as one batch for each topic."""
        if self.is_gone:
            return
        if deliveries.credit(self.handle) < 0:
            self._end("amqp:link:transfer-limit-exceeded", "more messages than there was credit for")
            return
        if self._arriving and not self._read_streams():
            return
        before = self._reader.held_bytes
        arrived = self._reader.read(self._credit_max, self.connection.intake_room)
        self.connection.assembly_bytes += self._reader.held_bytes - before
        longest = max(map(len, map(_data, arrived)), default=0)
        if longest > self.connection.message_bytes_max:
            arrived = []  # the link ends: nothing of this turn has an outcome, and the client knows it
        self.connection.server.deliveries_in += len(arrived)
        taken = self._taken(arrived)
        if self.topic:
            self._offer(self.topic, taken)
        else:
            by_topic: dict[str, list[tuple[Taken, Arrived]]] = {}
            for pair in taken:
                by_topic.setdefault(pair[0].to, []).append(pair)
            for topic, group in by_topic.items():
                self._offer(topic, group)
        if not before:
            self._stream_min = self.connection.settings.stream_bytes_min
        if self._reader.held_bytes > self._stream_min:
            self._begin_stream()
        self._check_size(max(longest, self._reader.held_bytes))
        if len(arrived) == self._credit_max:  # there may be more
            self.settled()
        if not self.is_gone:
            self.give_credit()

    def _read_streams(self) -> bool:
        """Read on what is arriving in pieces; whether the link may go on with the next message."""
        last = self._arriving[-1]
        last.read()
        self._arriving = [one for one in self._arriving if not one.is_over]
        self.unsettled = sum(one.count for one in self._offered.values()) + len(self._arriving)
        return not last.is_arriving

    def _begin_stream(self) -> None:
        """A long message goes on before its end is there, if somebody takes it so."""
        self._stream_min = 2 * self._reader.held_bytes  # to look at it at every frame would take too long
        if not self.topic or not self.connection.server.fabric.takes_streams(self.topic):
            return
        found = self._reader.begun()
        begun = begin(found[1]) if found is not None else None
        if found is not None and begun is not None:
            self.connection.assembly_bytes -= self._reader.held_bytes
            self._reader.leave()
            self._arriving.append(Arriving(self, found[0], begun, found[1]))
            self.unsettled += 1
            self.connection.server.deliveries_in += 1
            self._arriving[-1].begin()
            self._read_streams()

    def _taken(self, arrived: list[Arrived]) -> list[tuple[Taken, Arrived]]:
        """The events of messages; what is no message is rejected."""
        found: list[tuple[Taken, Arrived]] = []
        for one in arrived:
            try:
                found.append((take(one[1]), one))
            except MalformedValue as error:
                deliveries.reject(one[0], DECODE_ERROR, str(error))
        return found

    def _offer(self, topic: str, group: list[tuple[Taken, Arrived]]) -> None:
        offered = self._offered.get(topic) or self._open(topic, group)
        if offered is None or not group:
            return
        handles: list[Handle | None] = []
        for _, (delivery, _, is_settled) in group:
            if is_settled:
                deliveries.settle(delivery)
            handles.append(None if is_settled else delivery)
        sizes = [len(data) for _, (_, data, _) in group]
        self.connection.held(sum(sizes))
        try:
            offered.offer([taken for taken, _ in group], handles, sizes)
        except Full as error:
            self.connection.unheld(sum(sizes))
            self._reject(handles, Code.RESOURCE_EXHAUSTED, str(error))

    def _open(self, topic: str, group: list[tuple[Taken, Arrived]]) -> Offered | None:
        """A topic that a message of a sender without an address names."""
        handles: list[Handle | None] = [delivery for _, (delivery, _, _) in group]
        try:
            check_topic(topic)
        except InvalidTopic as error:
            self._reject(handles, Code.INVALID_ARGUMENT, f"property `to`: {error}")
            return None
        if not self.connection.may_write(topic):
            self._reject(
                handles, Code.PERMISSION_DENIED, f"{self.connection.user} may not publish on {topic}"
            )
            return None
        if len(self._offered) >= self.connection.settings.relay_topics_max:
            self._close_idle()
        if len(self._offered) >= self.connection.settings.relay_topics_max:
            self._reject(handles, Code.RESOURCE_EXHAUSTED, "too many topics at once (amqp.relay_topics_max)")
            return None
        self._offered[topic] = offered = Offered(self, topic)
        return offered

    def _close_idle(self) -> None:
        for topic in [topic for topic, one in self._offered.items() if not one.count]:
            self._offered.pop(topic).close()

    def _reject(self, handles: Sequence[Handle | None], code: Code, text: str) -> None:
        for handle in handles:
            if handle is not None:
                deliveries.reject(handle, condition_of(code), text)

    def _check_size(self, longest: int) -> None:
        """A message that is too long ends its link, as AMQP wants it; nothing else of the connection."""
        size_max = self.connection.message_bytes_max
        if longest > size_max:
            text = f"a message of {longest} bytes or more is over the limit of {size_max} (amqp.message_bytes_max)"
            self._end(SIZE_EXCEEDED, text)
        elif self.connection.assembly_bytes > self.connection.settings.assembly_bytes_max:
            text = "too much is still arriving on this connection (amqp.assembly_bytes_max)"
            self._end(condition_of(Code.RESOURCE_EXHAUSTED), text)

    # -- outcomes

    def settle(self, handles: list[Handle], result: Result) -> None:
        """Tell the client what became of these."""
        match result.outcome:
            case Outcome.ACCEPTED:
                deliveries.accept(handles)
            case Outcome.RELEASED:
                for handle in handles:
                    deliveries.release(handle)
            case Outcome.REJECTED:
                for handle in handles:
                    deliveries.reject(handle, condition_of(result.code), result.text)
            case Outcome.RECEIVED:
                for handle in handles:
                    deliveries.received(handle)
            case _:
                for handle in handles:
                    deliveries.modify(handle, *modified_of(result.text))

    def settled(self) -> None:
        """Some have their outcome: there is room for more."""
        if not self.is_gone:
            self.connection.dirty(self)
            self.connection.wake()

    def flush(self) -> None:
        """Nothing gathers here."""

    # -- credit

    def on_path(self, is_there: bool) -> None:
        """Somebody takes events of the topic now, or nobody any more."""
        self.settled()

    @property
    def credit(self) -> int:
        """How many messages more the client may send."""
        return int(deliveries.credit(self.handle))

    def give_credit(self) -> None:
        """Let the client send as much as can be taken: nothing while nobody is there to take it."""
        is_open = not self.topic or self._offered[self.topic].sender.has_path
        if self.connection.is_stopping or not is_open:
            return
        settings, left = self.connection.settings, deliveries.credit(self.handle)
        wanted = min(self._credit_max, settings.unsettled_events_max - self.unsettled) - left
        if wanted * 4 >= self._credit_max or (wanted > 0 and not left):
            deliveries.grant(self.handle, wanted)

    # -- the end

    def _end(self, condition: str, text: str) -> None:
        deliveries.close_link(self.handle, condition, text)
        self.close()
        self.connection.wake()

    def close(self, is_closed: bool = True) -> None:
        """The link is gone: no handle is used any more. What was offered goes on its way."""
        if not self.is_gone:
            self.is_gone = True
            self.connection.assembly_bytes -= self._reader.held_bytes
            if self._is_dynamic:
                self.connection.server.replies.pop(self.topic, None)
            for one in self._offered.values():
                one.close()
            for stream in self._arriving:
                stream.close()
