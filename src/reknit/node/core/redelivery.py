"""Sends events to a subscriber again: they are read from the journal, as far as it still holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.protocol.dispatch.dispatcher import Dispatch
from reknit.protocol.dispatch.expiry import overdue_of
from reknit.protocol.dispatch.inputs import Outlived, Sent, Vanished
from reknit.protocol.dispatch.state import Effect as DispatchEffect
from reknit.protocol.effects import Redeliver
from reknit.protocol.machine import JOURNAL, Peer
from reknit.seqset import Range, SeqSet
from reknit.wire.codec import encode
from reknit.wire.messages import Deliver as DeliverMessage


class Redelivery:
    """Performs `Redeliver`. `perform` performs any other effect that this leads to, in its place."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        find: Callable[[str, bytes, int, int], list[Batch]],
        send: Callable[[Peer, Sequence[Buffer]], None],
        perform: Callable[[DispatchEffect, float], None],
    ) -> None:
        self._dispatch = dispatch
        self._find = find
        self._send = send
        self._perform = perform

    def redeliver(self, effect: Redeliver, now: float) -> None:
        """Send the events, or report those that are not held any more, or are past their ttl."""
        batches = self._find(effect.topic, effect.source, effect.start, effect.stop)
        found = SeqSet.from_ranges((batch.first, batch.stop) for batch in batches)
        missing = found.missing(effect.start, effect.stop)
        overdue = self._overdue(effect, batches) if effect.attempt > 1 else []
        if missing or overdue:
            self._redeliver_rest(effect, missing, overdue, found, now)
            return
        counted, size = effect.attempt == 1, 0
        ordered_to = effect.stop if effect.is_ordered else 0
        for batch in batches:
            size += batch.head.length
            header = DeliverMessage(effect.sub, batch.head.length, -1, effect.attempt, counted, ordered_to)
            self._send(effect.peer, [encode(header), batch.data])
        if counted and size != effect.size:
            self._dispatch.receive(Sent((effect.peer, effect.sub), size - effect.size), JOURNAL, now)

    def _redeliver_rest(
        self, effect: Redeliver, missing: list[Range], overdue: list[Range], found: SeqSet, now: float
    ) -> None:
        """Some events are not held any more, or not to be tried again: reported in their place, before later effects."""
        key, series = (effect.peer, effect.sub), (effect.topic, effect.source)
        later = self._dispatch.take_effects()
        for bounds in overdue:
            found.discard(*bounds)
        ends: list[Vanished | Outlived] = [Vanished(key, *series, *bounds) for bounds in missing]
        ends += [Outlived(key, *series, *bounds) for bounds in overdue]
        parts = [replace(effect, start=start, stop=stop, size=0) for start, stop in found.ranges()]
        for part in sorted([*ends, *parts], key=lambda part: part.start):
            if isinstance(part, Redeliver):
                self.redeliver(part, now)
            else:
                self._dispatch.receive(part, JOURNAL, now)
            for made in self._dispatch.take_effects():
                self._perform(made, now)
        self._dispatch.desk.effects += later
        self._dispatch.receive(Sent(key, -effect.size), JOURNAL, now)

    def _overdue(self, effect: Redeliver, batches: list[Batch]) -> list[Range]:
        """The events past their ttl. For a durable subscriber these are known before, for others they are found here."""
        desk, queue = self._dispatch.desk, self._dispatch.queues.get((effect.peer, effect.sub))
        if queue is None or queue.is_durable:
            return []
        usual_ms = desk.rules.of(effect.topic).ttl_ms
        return [part for batch in batches for part in overdue_of(batch, usual_ms, desk.time_us)]
