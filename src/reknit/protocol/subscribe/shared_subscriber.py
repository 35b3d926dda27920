"""The subscribing side of a subscription that shares events with others: each event goes to one of them.

Nothing is in order here, nothing is missed and nothing comes again by itself: what is handed over is handed on, and
what is said of it goes back. What was in hand when the connection broke is in doubt, and not this one's any more.
"""

from __future__ import annotations

from reknit.delivery import Delivery
from reknit.ledger import Stream
from reknit.outcome import Outcome
from reknit.protocol.machine import Peer
from reknit.protocol.subscribe.subscriber import Delivered, Disconnected, Hand, Input, Subscriber
from reknit.wire.messages import Row, Start


class SharedSubscriber(Subscriber):
    """Takes the place of a plain one when the node says that its topics are shared."""

    @classmethod
    def taking_over(cls, plain: Subscriber) -> SharedSubscriber:
        """Go on for a subscription that has just asked the node."""
        shared = cls(plain.sub, plain.pattern, "", Start(), plain._window, takes_streams=plain._takes_streams)
        shared.state, shared._epoch = plain.state, plain._epoch
        shared._granted, shared._owed = plain._granted, plain._owed
        return shared

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the node, or about the connection to it."""
        if isinstance(message, Disconnected):
            self._in_hand.clear()
            self._said.clear()
            self._buffered = self._owed = 0
        if isinstance(message, Delivered):
            self._hand_over(message)
        else:
            super().receive(message, peer, now)
            self._position = -1  # it never goes on anywhere, it takes part again

    def _hand_over(self, message: Delivered) -> None:
        delivery = Delivery(message.attempt)
        batches = [batch.delivered(delivery) for batch in message.batches]
        for batch in batches:
            self._buffered += batch.head.length
            self._in_hand.add((batch.topic, batch.source), batch.first, batch.stop)
        self._effects.append(Hand(batches))

    def in_hand(self) -> list[tuple[Stream, int, int]]:
        """What came and is not settled."""
        return self._in_hand.ranges()

    def settle(
        self,
        stream: Stream,
        start: int,
        stop: int,
        outcome: Outcome,
        code: int = 0,
        text: str = "",
        delay_s: float = 0.0,
        attempt: int = 0,
    ) -> None:
        """The application's word on `[start, stop)`; only what it has in hand counts, and only once."""
        in_hand = self._in_hand.within if outcome is Outcome.RECEIVED else self._in_hand.take
        for low, high in in_hand(stream, start, stop):
            rows = self._said.rows
            last = rows[-1] if rows else None
            if last is not None and not text and _follows(last, stream, low, outcome):
                rows[-1] = Row(*stream, last.start, high, int(outcome), code)
            else:
                rows.append(Row(*stream, low, high, int(outcome), code, text, delay_s))

    def extend(self, stream: Stream, start: int, stop: int) -> None:
        """The application is at these: a release is not resent from now on."""
        self.settle(stream, start, stop, Outcome.RECEIVED)


def _follows(row: Row, stream: Stream, start: int, outcome: Outcome) -> bool:
    same = row.stop == start and row.outcome == outcome and not row.text
    return same and (row.topic, row.source) == stream
