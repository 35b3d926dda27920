"""Which batches a node admits: by topic, size, time and permission. A refusal is final: resending does not help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from reknit.batch import TIME_US_MAX, TYPE_PUBLISH, Batch
from reknit.errors import InvalidTopic, MalformedFrame
from reknit.event import FLAG_STREAM
from reknit.outcome import Code, Reason
from reknit.protocol.machine import Peer
from reknit.topic import TOPIC_BYTES_MAX, check_topic, is_reserved, is_scheduled

TOPICS_KNOWN_MAX: Final = 100_000
"""Topics whose spelling was checked are remembered up to this many; then the memory is cleared."""


class Refusal(msgspec.Struct, frozen=True):
    """Why events are never taken. With a reason, each of them becomes a dead letter, unless it is not stored."""

    code: Code
    text: str
    reason: Reason | None = None
    is_stored: bool = True
    """Whether dead letters are made. Who has no right to publish does not fill the journal either."""


Permit = Callable[[Peer, bytes, str], Refusal | None]
"""Whether a peer may publish as a source on a topic. Asked once for each of these on every connection."""
IsOfNode = Callable[[Peer], bool]
"""Whether a peer is a part of a node: only such a one publishes below `reknit/`."""
Inspect = Callable[[Peer, Batch], Refusal | None]
"""Whether the attributes of a batch's events are valid. Asked for every batch that has attributes."""


class Admission:
    """Checks batches of all peers, and remembers what it need not check again."""

    def __init__(
        self,
        events_max: int,
        permit: Permit | None,
        inspect: Inspect | None,
        topic_bytes_max: int = TOPIC_BYTES_MAX,
        is_of_node: IsOfNode = lambda peer: False,
    ) -> None:
        self._is_of_node = is_of_node
        self.events_max = events_max
        self._topic_bytes_max = topic_bytes_max
        self.topics: set[str] = set()
        """Topics that are known to be valid, and that everybody may be allowed to publish on."""
        self._latest_us = TIME_US_MAX
        self._copiers: set[Peer] = set()
        """Peers that bring events which another node has stored."""
        self._permit = permit
        self._inspect = inspect
        self._permitted: dict[Peer, dict[bytes, str]] = {}
        """By connection: the sources that may publish, and on which topic. Empty while every peer may."""
        self._zero_us = self._future_us = 0

    def set_clock(self, zero_us: int, future_s_max: float) -> None:
        """The time of day at `now` 0, and how far in the future an event's time may be; 0: any."""
        self._zero_us, self._future_us = zero_us, int(future_s_max * 1e6)

    def at(self, now: float) -> None:
        """Set the time to `now`."""
        if self._future_us:
            self._latest_us = self._zero_us + int(now * 1e6) + self._future_us

    def latest_us(self, peer: Peer) -> int:
        """No event of a peer may have a time later than this. A copy is taken at any time: it may be this node's
        clock that is wrong, and the event is acknowledged to its publisher.
        """
        return TIME_US_MAX if peer in self._copiers else self._latest_us

    def copies(self, peer: Peer) -> None:
        """A peer brings events that another node has stored."""
        self._copiers.add(peer)

    def permitted(self, peer: Peer) -> dict[bytes, str] | None:
        """The topics on which a peer's sources may publish, as far as was asked; None if every peer may."""
        return None if self._permit is None else self._permitted.setdefault(peer, {})

    def ask_again(self, source: bytes) -> None:
        """Ask again who may publish as a source."""
        for permitted in self._permitted.values():
            permitted.pop(source, None)

    def ask_all_again(self) -> None:
        """The rules have changed: ask about everybody again."""
        self._permitted.clear()

    def denied(self, source: bytes, topic: str, peer: Peer) -> Refusal | None:
        """Why a peer may not publish as a source on a topic; asked once."""
        if is_reserved(topic) and not is_scheduled(topic) and not self._is_of_node(peer):
            text = f"only nodes write below reknit/, not {topic!r}: use another topic"
            return Refusal(Code.PERMISSION_DENIED, text, Reason.DENIED, is_stored=False)
        if self._permit is None:
            return None
        permitted = self._permitted.setdefault(peer, {})
        if permitted.get(source) == topic:
            return None
        refusal = self._permit(peer, source, topic)
        if refusal is None:
            permitted[source] = topic
        return refusal

    def malformed(self, batch: Batch, peer: Peer) -> Refusal | None:
        """Why no node would take this batch."""
        head = batch.head
        if head.topic not in self.topics:
            try:
                check_topic(head.topic)
            except InvalidTopic as error:
                return Refusal(Code.INVALID_ARGUMENT, str(error), Reason.MALFORMED)
            if (size := len(head.topic.encode())) > self._topic_bytes_max:
                text = f"a topic of {size} bytes is over limits.topic_bytes_max ({self._topic_bytes_max})"
                return Refusal(Code.INVALID_ARGUMENT, text, Reason.MALFORMED)
            if len(self.topics) >= TOPICS_KNOWN_MAX:
                self.topics.clear()
            if not is_reserved(head.topic):  # who publishes there is asked for every batch
                self.topics.add(head.topic)
        text = ""
        if head.count > self.events_max:
            text = f"a batch of {head.count} events is over limits.batch_events_max"
        elif head.time_us > self.latest_us(peer):
            ahead_s = (head.time_us - self.latest_us(peer) + self._future_us) / 1e6
            text = (
                f"an event from {ahead_s:,.0f} s in the future (limits.future_s_max): "
                "check the clocks of the publisher and of this node"
            )
        elif head.flags & FLAG_STREAM:
            text = "an event without its payload can't be published: send a stream's chunks after `Begin`"
        if text:
            return Refusal(Code.INVALID_ARGUMENT, text, Reason.MALFORMED)
        if is_scheduled(head.topic) and not _has_valid_times(batch):
            text = "the times of scheduled events can't be read: put them into the column 'time', in microseconds"
            return Refusal(Code.INVALID_ARGUMENT, text, Reason.MALFORMED, is_stored=False)
        return None

    def inspect(self, batch: Batch, peer: Peer) -> Refusal | None:
        """Why the attributes of this batch's events are not valid."""
        if self._inspect is not None and (batch.head.flags or batch.head.type != TYPE_PUBLISH):
            return self._inspect(peer, batch)
        return None

    def forget(self, peer: Peer) -> None:
        """A peer's connection is gone."""
        self._permitted.pop(peer, None)
        self._copiers.discard(peer)


def _has_valid_times(batch: Batch) -> bool:
    """Whether the columns of scheduled events can be read: the node reads them when it publishes the events."""
    try:
        columns = batch.columns()
    except MalformedFrame:
        return False
    times = columns.get("time", ())
    return all(len(values) == batch.count for values in columns.values()) and all(
        type(time_us) is int and 0 <= time_us <= TIME_US_MAX for time_us in times
    )
