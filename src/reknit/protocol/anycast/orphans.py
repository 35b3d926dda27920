"""Deliveries that a path has, and whose neighbour is no longer linked: nobody waits for their outcome.

A neighbour that comes back offers the same events again. A path that has them is not sent them a second time: a worker
would process them twice, and might end them in two ways.
"""

from __future__ import annotations

from collections.abc import Iterator

from reknit.ledger import Series
from reknit.protocol.anycast.deliveries import Deliveries
from reknit.protocol.anycast.delivery import AnycastDelivery
from reknit.protocol.anycast.paths import Paths
from reknit.seqset import SeqSet


class Orphans:
    """Finds the deliveries that are offered again."""

    def __init__(self, paths: Paths, deliveries: Deliveries) -> None:
        self._paths = paths
        self._deliveries = deliveries
        self._series: set[Series] = set()
        """The series that may have some."""

    def add(self, delivery: AnycastDelivery) -> None:
        """Nobody waits for it any more."""
        if delivery.is_orphan:
            self._series.add(delivery.series)

    def adopt(self, offered: AnycastDelivery) -> Iterator[AnycastDelivery]:
        """Let whoever offers events wait for those that a path has already. Yields the others, which have to be sent."""
        if offered.series not in self._series or offered.terms.is_stream:
            yield offered
            return
        rest: AnycastDelivery | None = offered
        for start, stop in self._adopted(offered).ranges():
            assert rest is not None, "what is adopted was offered"
            if rest.start < start:
                new, rest = rest, self._deliveries.split(rest, start)
                yield new
            held, rest = rest, self._deliveries.split(rest, stop) if stop < rest.stop else None
            self._deliveries.end(held)
        if rest is not None:
            yield rest

    def _adopted(self, offered: AnycastDelivery) -> SeqSet:
        """The events for which a path with an orphan was found."""
        adopted, has_others = SeqSet(), False
        for path in self._paths.all():
            for delivery in path.take(offered.series, offered.start, offered.stop):
                if delivery.is_orphan and not adopted.overlap(delivery.start, delivery.stop):
                    delivery.adopt(offered)
                    adopted.add(delivery.start, delivery.stop)
                path.put_back(delivery)
            has_others = has_others or any(one.is_orphan for one in path if one.series == offered.series)
        if not has_others:
            self._series.discard(offered.series)
        return adopted
