"""Sends events to a subscriber again: they are read from the journal, as far as it still holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.outcome import Reason
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.dispatch.inputs import CreditCorrection, EventsExpired, EventsGone
from reknit.protocol.dispatch.state import Effect as DispatchEffect
from reknit.protocol.effects import Redeliver
from reknit.protocol.machine import JOURNAL, Peer
from reknit.seqset import Range, SeqSet
from reknit.wire.codec import encode
from reknit.wire.messages import Deliver as DeliverMessage


class RedeliverySender:
    """Performs `Redeliver`. `perform` performs any other effect that this leads to, in its place."""

    def __init__(
        self,
        *,
        dispatch: Dispatcher,
        find: Callable[[str, bytes, int, int], list[Batch]],
        lost: Callable[[str, bytes], SeqSet],
        send: Callable[[Peer, Sequence[Buffer]], None],
        perform: Callable[[DispatchEffect, float], None],
    ) -> None:
        self._dispatch = dispatch
        self._find = find
        self._lost = lost
        """The events of a series that are damaged in the journal."""
        self._send = send
        self._perform = perform

    def redeliver(self, effect: Redeliver, now: float) -> None:
        """Send the events, or report those that are not held any more, or are past their ttl."""
        batches = self._find(effect.topic, effect.source, effect.start, effect.stop)
        found = SeqSet.from_ranges((batch.first, batch.stop) for batch in batches)
        missing = found.missing(effect.start, effect.stop)
        overdue = self._dispatch.overdue(effect, batches) if effect.attempt > 1 else []
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
            self._dispatch.receive(
                CreditCorrection((effect.peer, effect.sub), size - effect.size), JOURNAL, now
            )

    def _redeliver_rest(
        self, effect: Redeliver, missing: list[Range], overdue: list[Range], found: SeqSet, now: float
    ) -> None:
        """Some events are not held any more, or not to be tried again: reported in their place, before later effects."""
        key, series = (effect.peer, effect.sub), (effect.topic, effect.source)
        later = self._dispatch.take_effects()
        for bounds in overdue:
            found.discard(*bounds)
        damaged = self._lost(*series)
        ends: list[EventsGone | EventsExpired] = [
            EventsGone(
                key, *series, *bounds, Reason.DAMAGED if damaged.overlap(*bounds) else Reason.RETENTION
            )
            for bounds in missing
        ]
        ends += [EventsExpired(key, *series, *bounds) for bounds in overdue]
        parts = [replace(effect, start=start, stop=stop, size=0) for start, stop in found.ranges()]
        for part in sorted([*ends, *parts], key=lambda part: part.start):
            if isinstance(part, Redeliver):
                self.redeliver(part, now)
            else:
                self._dispatch.receive(part, JOURNAL, now)
            for made in self._dispatch.take_effects():
                self._perform(made, now)
        self._dispatch.put_back_effects(later)
        self._dispatch.receive(CreditCorrection(key, -effect.size), JOURNAL, now)
