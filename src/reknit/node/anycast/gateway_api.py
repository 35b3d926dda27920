"""A node's anycast as gateways use it: to send events to one of many subscribers, and to be one of those.

`node.anycast` has these methods. Everything is called on the node's event loop and returns at once; results
come by a callback, on the event loop too, never from within the call that led to it.

    sender = node.anycast.sender("orders/new", on_results=..., on_path=..., resend_released=True)
    first, stop = sender.offer([b"..."])          # RELEASED, ACCEPTED … arrive at on_results as ranges of these seqs

    receiver = node.anycast.receiver("orders/**", on_delivered=...)
    receiver.credit(10)                           # ten more events
    receiver.settle(batch.topic, batch.source, 3, 4, Outcome.RELEASED)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.outcome import Outcome
from reknit.protocol.machine import Peer
from reknit.protocol.streams.inputs import Input as StreamInput
from reknit.wire.outcomes import RangeOutcome

Result = RangeOutcome
"""The outcome of events `[start, stop)` of one source: ACCEPTED, RELEASED, REJECTED or MODIFIED, which are final, or
RECEIVED, which is not: a subscriber works on it, and it is not resent any more. `node` and `path` say where that was."""
OnResults = Callable[[Sequence[Result]], None]
OnPath = Callable[[bool], None]
OnDelivered = Callable[[Batch, int], None]


class AnycastSender(Protocol):
    """One source on one topic. Its events are stored in the journal, then delivered as the topic's distribution says."""

    source: bytes
    topic: str
    has_path: bool
    """Whether a subscriber can take the next event: grant credit only while it is true. `on_path` tells changes.
    On a topic with the distribution `journal` it is always true."""
    unsettled: int
    """How many events have no final outcome yet."""

    def offer(self, payloads: Sequence[Buffer], **fields: Any) -> tuple[int, int]:
        """Publish events; returns the range of their seqs. `fields` go to `Batch.build`: ttl_ms, priority, columns.

        Every one of them gets exactly one final outcome. On a topic with the distribution `journal` that is ACCEPTED
        when it is durable. Raises `Full` past `anycast.sender_unsettled_max`.
        """

    def close(self) -> None:
        """No outcome is wanted any more; events that were offered are delivered nevertheless."""


class AnycastReceiver(Protocol):
    """A path: gets events while it has credit, and settles each."""

    @property
    def waiting(self) -> int:
        """How many events wait for credit here or elsewhere on the node."""

    def credit(self, events: int) -> None:
        """Take this many more events. `on_delivered(batch, attempt)` is called with batches of at most the credit."""

    def drain(self) -> int:
        """Give back the credit that is left; returns how much that was. Waiting events were delivered before."""

    def settle(
        self,
        topic: str,
        source: bytes,
        start: int,
        stop: int,
        outcome: Outcome,
        code: int = 0,
        text: str = "",
    ) -> None:
        """The disposition of events `[start, stop)` that were delivered, whole batches or parts of them.

        ACCEPTED: done. RELEASED: not processed, the next path is tried if the sender wants that. REJECTED: never
        retried. MODIFIED: failed. RECEIVED: being processed; after this a release is not resent.
        """

    def give_room(self, source: bytes, total: int) -> None:
        """Take this many bytes in total of a stream that was delivered."""

    def close(self, is_clean: bool = True) -> None:
        """No longer a path. Events that were delivered and not settled are released if that is clean: the receiver says
        that it processed none of them; otherwise they are in doubt, which is MODIFIED."""


class StreamSender(Protocol):
    """Sends a stream from within the node: a gateway."""

    def room(self, total: int) -> None:
        """This many bytes may be sent in total."""

    def tell(self, fate: RangeOutcome) -> None:
        """The outcome of the stream."""


class StreamTaker(Protocol):
    """Takes streams within the node: a gateway."""

    def piece(self, source: bytes, offset: int, data: bytes, is_last: bool) -> None:
        """Bytes of a stream that was delivered."""

    def cut(self, source: bytes, text: str) -> None:
        """No more of it comes."""


class StreamsApi(Protocol):
    """A node's streams, as a gateway feeds them."""

    def begin(self, batch: Batch, resend: bool, up: Peer) -> None:
        """A `StreamSender` begins a stream; its outcome is told there."""

    def give(self, message: StreamInput, peer: Peer) -> None:
        """Chunks came from a sender, or it gave up."""


class AnycastApi(Protocol):
    """A node's anycast."""

    @property
    def streams(self) -> StreamsApi:
        """Payloads that are sent in chunks."""

    def mode(self, topic: str) -> str:
        """How a topic is distributed."""

    def takes_streams(self, topic: str) -> bool:
        """Whether an event of the topic may be sent in chunks, and there is a subscriber that takes chunks."""

    def soon(self) -> None:
        """Perform the effects of calls to `streams` in the next turn of the event loop."""

    def distribution(self, pattern: str) -> str:
        """How the topics that match are distributed: `journal`, `multicast`, `closest` or `balanced`.

        `journal` (the default): every subscriber gets every event from the journal, retried on its node; use a
        session for that. A pattern that reaches beyond the topics of one rule is `journal`, too: it observes.
        """

    def sender(
        self,
        topic: str,
        on_results: OnResults,
        on_path: OnPath | None = None,
        resend_released: bool = False,
        source: bytes | None = None,
    ) -> AnycastSender:
        """Offers events on a topic, and is told the outcome of each."""

    def receiver(
        self, pattern: str, on_delivered: OnDelivered, name: str = "", streams: StreamTaker | None = None
    ) -> AnycastReceiver:
        """Takes events, for patterns whose distribution is not `journal`. `name` is for the trail.

        With `streams`, some of them may have FLAG_STREAM: the payload comes there in chunks, after `give_room`.
        """
