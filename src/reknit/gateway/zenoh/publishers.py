"""Our publishers in the Zenoh network: one for each series."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import zenoh

from reknit.batch import Batch
from reknit.gateway.zenoh.samples import WRAP, sn_of
from reknit.gateway.zenoh.session import ZenohSession
from reknit.ledger import Series

PUBLISHERS_MAX = 4096


class ZenohPublishers:
    """Puts events into Zenoh with their source information. Several threads may put at once."""

    def __init__(self, session: ZenohSession) -> None:
        self._session = session
        self._publishers: dict[Series, zenoh.Publisher] = {}
        self._by_eid: dict[str, Series] = {}
        self._declaring = threading.Lock()
        self.count = 0
        """How many events were put."""

    def all(self) -> list[zenoh.Publisher]:
        return list(self._publishers.values())

    def series(self, eid: str) -> Series | None:
        """The series of the publisher with this entity id."""
        return self._by_eid.get(eid)

    def put(self, batches: Iterable[Batch]) -> None:
        """Blocking: put every event with its source information. Stops when the session leaves the network."""
        for batch in batches:
            publisher = self._publisher((batch.topic, batch.source))
            put, id_, number = publisher.put, publisher.id, sn_of(batch.first)
            for payload in batch.payloads():
                if self._session.is_leaving:
                    return
                put(payload, source_info=zenoh.SourceInfo(id_, number))
                number = (number + 1) % WRAP
            self.count += batch.count

    def _publisher(self, series: Series) -> zenoh.Publisher:
        publisher = self._publishers.get(series)
        if publisher is not None:
            return publisher
        with self._declaring:
            publisher = self._publishers.get(series)
            if publisher is None:
                publisher = self._session.publisher(series[0])
                self._publishers[series] = publisher
                self._by_eid[str(publisher.id.eid)] = series
                if len(self._publishers) > PUBLISHERS_MAX:
                    self._evict()
        return publisher

    def _evict(self) -> None:
        oldest = self._publishers.pop(next(iter(self._publishers)))
        self._by_eid.pop(str(oldest.id.eid), None)
        oldest.undeclare()  # type: ignore[no-untyped-call]
