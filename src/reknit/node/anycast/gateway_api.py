"""What a gateway uses to give events to one of many subscribers and hear what became of them, and to be one of those.

`node.anycast` has these methods. Everything is called on the node's loop and returns at once; what comes back later
comes by a callback, on the loop too, never from within the call that led to it.

    sender = node.anycast.sender("orders/new", on_results=..., on_path=..., resend_released=True)
    first, stop = sender.offer([b"..."])          # RELEASED, ACCEPTED … arrive at on_results as ranges of these seqs

    receiver = node.anycast.receiver("orders/**", on_handed=..., on_idle=...)
    receiver.credit(10)                           # ten more events
    receiver.settle(batch.topic, batch.source, 3, 4, Outcome.RELEASED)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.outcome import Outcome
from reknit.wire.outcomes import Fate

Result = Fate
"""What became of events `[start, stop)` of one source: ACCEPTED, RELEASED, REJECTED or MODIFIED, which end them, or
RECEIVED, which does not: somebody is at it, and it is not resent any more. `node` and `path` say where that was."""
OnResults = Callable[[Sequence[Result]], None]
OnPath = Callable[[bool], None]
OnHanded = Callable[[Batch, int], None]


class Sender(Protocol):
    """One source on one topic. Its events are kept in the journal, then delivered as the topic's distribution says."""

    source: bytes
    topic: str
    has_path: bool
    """Whether anyone is there to take the next event: grant credit only while it is true. `on_path` tells changes.
    On a topic with the distribution `journal` it is always true."""
    unsettled: int
    """How many events have no final outcome yet."""

    def offer(self, payloads: Sequence[Buffer], **fields: Any) -> tuple[int, int]:
        """Give in events; the range of seqs that they got. `fields` go to `Batch.build`: ttl_ms, priority, columns.

        Every one of them gets exactly one final outcome. On a topic with the distribution `journal` that is ACCEPTED
        when it is durable. Raises `Full` past `anycast.sender_unsettled_max`.
        """

    def close(self) -> None:
        """No outcome is wanted any more; what was offered goes on its way."""


class Receiver(Protocol):
    """A path: gets events while it has credit, and says what became of each."""

    @property
    def waiting(self) -> int:
        """How many events wait for credit here or elsewhere on the node."""

    def credit(self, events: int) -> None:
        """Take so many more events. `on_handed(batch, attempt)` is called with batches of at most the credit."""

    def drain(self) -> int:
        """Give back what is left of the credit: how much that was. What there is was handed out before."""

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
        """The word on events `[start, stop)` that were handed out, whole batches or parts of them.

        ACCEPTED: done. RELEASED: not processed, the next path is tried if the sender wants that. REJECTED: never
        again. MODIFIED: tried in vain. RECEIVED: at it; after this a release is not resent.
        """

    def give_room(self, source: bytes, total: int) -> None:
        """Take so many bytes in all of a stream that was handed out."""

    def close(self, is_clean: bool = True) -> None:
        """No longer a path. What was handed out and not settled is released if that is clean: the receiver says that
        it processed none of it; otherwise it is in doubt, which is MODIFIED."""


class StreamSender(Protocol):
    """Who sends a stream from within the node: a gateway."""

    def room(self, total: int) -> None:
        """So many bytes may be sent in all."""

    def tell(self, fate: Fate) -> None:
        """What became of it."""


class StreamTaker(Protocol):
    """Who takes streams within the node: a gateway."""

    def piece(self, source: bytes, offset: int, data: bytes, is_last: bool) -> None:
        """Bytes of a stream that was handed over."""

    def cut(self, source: bytes, text: str) -> None:
        """No more of it comes."""


class Anycast(Protocol):
    """A node's deliveries."""

    def distribution(self, pattern: str) -> str:
        """How the topics that match are distributed: `journal`, `multicast`, `closest` or `balanced`.

        `journal` (the default): every subscriber gets every event from the journal, retried on its node; use a
        session for that. A pattern that reaches beyond the topics of one rule is `journal`, too: it watches.
        """

    def sender(
        self,
        topic: str,
        on_results: OnResults,
        on_path: OnPath | None = None,
        resend_released: bool = False,
        source: bytes | None = None,
    ) -> Sender:
        """Somebody who offers events on a topic, and hears the outcome of each."""

    def receiver(
        self, pattern: str, on_handed: OnHanded, name: str = "", streams: StreamTaker | None = None
    ) -> Receiver:
        """Somebody who takes events, for patterns whose distribution is not `journal`. `name` is for the trail.

        With `streams`, some of them may have FLAG_STREAM: the payload comes there in pieces, after `give_room`.
        """
