"""Messages of a link that were offered to the node through one sender, by seq, until each has its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reknit.gateway.amqp.codec.messages import DecodedMessage, columns
from reknit.gateway.amqp.deliveries import Handle
from reknit.gateway.amqp.links.intake import ClientIntake
from reknit.gateway.amqp.links.settlement import settle
from reknit.gateway.amqp.node_client import NodeClient
from reknit.node.anycast.gateway_api import OnPath, Result
from reknit.outcome import Outcome

ENDED = -1


class MessageOffers:
    """The messages of one link on one topic.

    `on_count` is called with the change of the number of messages without an outcome, `on_settled` when outcomes came,
    and `on_dropped` with the number of messages that were sent settled and not accepted.
    """

    def __init__(
        self,
        node: NodeClient,
        topic: str,
        *,
        resend_released: bool,
        intake: ClientIntake,
        on_dropped: Callable[[int], None],
        on_path: OnPath,
        on_count: Callable[[int], None],
        on_settled: Callable[[], None],
    ) -> None:
        self._intake = intake
        self._on_count, self._on_dropped = on_count, on_dropped
        self._on_settled = on_settled
        self._first = 1
        self._deliveries: list[Handle | None] = []
        self._sizes: list[int] = []
        """The size of each message, or `ENDED`."""
        self.count = 0
        """How many messages have no outcome yet."""
        self._sender = node.sender(topic, resend_released, on_results=self._on_results, on_path=on_path)

    @property
    def has_path(self) -> bool:
        """Whether anyone receives events on the topic."""
        return self._sender.has_path

    def offer(
        self, messages: Sequence[DecodedMessage], deliveries: Sequence[Handle | None], sizes: Sequence[int]
    ) -> None:
        """Offer events to the node. Raises `Full`, and has offered none of them then."""
        payloads = [one.payload for one in messages]
        first, _ = self._sender.offer(payloads, columns=columns(messages))
        if not self._deliveries:
            self._first = first
        assert first == self._first + len(self._deliveries), "a sender numbers its events without a gap"
        self._deliveries += deliveries
        self._sizes += sizes
        self.count += len(messages)
        self._on_count(len(messages))

    def _on_results(self, results: Sequence[Result]) -> None:
        for result in results:
            low = max(0, result.start - self._first)
            high = min(max(0, result.stop - self._first), len(self._sizes))
            found = [one for one in self._deliveries[low:high] if one is not None]
            if result.outcome != Outcome.RECEIVED and low < high:
                if result.outcome != Outcome.ACCEPTED:
                    self._count_dropped(low, high)
                self._finish(low, high)
            settle(found, result)
        self._on_settled()

    def _count_dropped(self, low: int, high: int) -> None:
        pairs = zip(self._deliveries[low:high], self._sizes[low:high], strict=True)
        if dropped := sum(delivery is None and size != ENDED for delivery, size in pairs):
            self._on_dropped(dropped)

    def _finish(self, low: int, high: int) -> None:
        sizes = [size for size in self._sizes[low:high] if size != ENDED]
        self.count -= len(sizes)
        self._on_count(-len(sizes))
        self._intake.release(sum(sizes))
        self._deliveries[low:high] = [None] * (high - low)
        self._sizes[low:high] = [ENDED] * (high - low)
        ended = 0
        while ended < len(self._sizes) and self._sizes[ended] == ENDED:
            ended += 1
        if ended:
            del self._deliveries[:ended], self._sizes[:ended]
            self._first += ended

    def close(self) -> None:
        """The link wants no more outcomes."""
        self._sender.close()
        self._intake.release(sum(size for size in self._sizes if size != ENDED))
        self._deliveries, self._sizes, self.count = [], [], 0
