"""What one node's anycast is bound to say: outcomes to publishers, confirmations to subscribers and neighbours.

Each is said when the outcomes that it rests on are durable: in this node's journal if the events were published here, or
else on the neighbours that they came from, which confirm that in turn (`Recorded`).
"""

from __future__ import annotations

from reknit.node.anycast.ledger_writer import LedgerWriter
from reknit.node.anycast.outcome_notifier import OutcomeNotifier
from reknit.node.anycast.promises import Confirmations, Promises, SubscriptionKey
from reknit.node.anycast.shared_subscriptions import SharedSubscriptions
from reknit.node.core.parts import Parts
from reknit.protocol.anycast.inputs import NeighbourDown, NeighbourOutcomes, NeighbourRecorded, NeighbourUp
from reknit.protocol.machine import Peer
from reknit.protocol.routing.routes import SendToNeighbour
from reknit.wire.links import Recorded


class Commitments:
    """The commitments of one node."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        notifier: OutcomeNotifier,
        subscriptions: SharedSubscriptions,
        parts: Parts,
    ) -> None:
        self._writer = writer
        self._notifier = notifier
        self._subscriptions = subscriptions
        self._parts = parts
        self._promises = Promises()
        self._confirmations = Confirmations()
        self._settled: dict[SubscriptionKey, int] = {}
        """By neighbour: the number of its last outcomes that nothing was promised for yet."""
        self._returned: dict[str, int] = {}
        """By neighbour that confirms: the number of the last outcome that it was returned since the last promise."""
        self._number = 0

    # -- inputs

    def receive(
        self, message: NeighbourUp | NeighbourDown | NeighbourOutcomes | NeighbourRecorded, name: str
    ) -> None:
        """From a neighbour, or about the link to it."""
        match message:
            case NeighbourUp(confirms=confirms):
                if confirms:
                    self._confirmations.up(name)
            case NeighbourDown():
                self._confirmations.down(name)
                self._confirmations.forget(name)
                self._returned.pop(name, None)
                self._settled.pop((name, 0), None)
            case NeighbourOutcomes(number=number):
                if number:
                    self._settled[name, 0] = number
            case NeighbourRecorded(number=number):
                self._confirmations.recorded(name, number)

    def left(self, peer: Peer) -> None:
        """A connection is gone."""
        self._confirmations.forget(peer)

    def returned(self, name: str) -> int:
        """A neighbour is returned an outcome; returns the number that it is to confirm, or 0 if it does not."""
        if not self._confirmations.confirms(name):
            return 0
        self._number += 1
        self._returned[name] = self._number
        return self._number

    def forget(self, source: bytes) -> None:
        """The publisher of a source comes back, and is told all outcomes from the ledger."""
        self._promises.forget(source)

    # -- what is said

    @property
    def is_due(self) -> bool:
        """Whether `perform` has something to do."""
        if self._has_news:
            return True
        if not self._promises.waiting and not self._confirmations.waiting:
            return False
        durable = self._writer.durable_number
        return self._promises.is_due(durable) or self._confirmations.is_due(durable)

    @property
    def _has_news(self) -> bool:
        """Whether there is something to promise. Outcomes that wait to be written can't be promised yet."""
        has_some = self._notifier.told or self._subscriptions.settled or self._settled
        return bool(has_some) and not self._writer.has_unwritten

    def perform(self, now: float) -> None:
        """Promise what is new, and say what is durable."""
        if self._has_news:
            self._promise()
        durable = self._writer.durable_number
        for told in self._promises.due(durable):
            self._notifier.tell_all(told)
        if self._confirmations.is_due(durable):
            for key, number in self._confirmations.due(durable).items():
                self._confirm(key, number, now)

    def _promise(self) -> None:
        self._promises.add(self._writer.number, self._notifier.take_told())
        settled = {**self._subscriptions.take_settled(), **self._settled}
        for key, number in settled.items():
            self._confirmations.add(key, number, self._writer.number, self._returned)
        self._settled, self._returned = {}, {}

    def _confirm(self, key: SubscriptionKey, number: int, now: float) -> None:
        if isinstance(key[0], str):
            self._parts.give(SendToNeighbour(key[0], Recorded(number)), key[0], now)
        else:
            self._subscriptions.confirm(key, number)
