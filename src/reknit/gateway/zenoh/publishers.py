"""Our publishers in the Zenoh network: each source is an advanced publisher with a token and heartbeats."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Final

import zenoh

from reknit.batch import Batch
from reknit.gateway.zenoh.attributes import DATA, PRIORITIES, puts_of
from reknit.gateway.zenoh.entities import EID, EntityIds, zid_of
from reknit.gateway.zenoh.keys import publisher_key
from reknit.gateway.zenoh.samples import WRAP, sn_of
from reknit.gateway.zenoh.session import ZenohSession
from reknit.ledger import Series

PUBLISHERS_MAX: Final = 4_096

Way = tuple[str, int, bool]
"""A topic, a priority, and whether Zenoh may drop samples when it is congested."""


class ZenohPublishers:
    """Puts events into Zenoh with their source and seq. Several threads may put at once."""

    def __init__(self, session: ZenohSession, node_name: str) -> None:
        self._session = session
        self._node_name = node_name
        self._ids = EntityIds()
        self._publishers: dict[Way, zenoh.Publisher] = {}
        self._tokens: dict[Series, zenoh.LivelinessToken] = {}
        self._last: dict[Series, int] = {}
        """The last seq that was put of each series."""
        self._declaring = threading.Lock()
        self.count = 0
        """How many events were put."""

    def all(self) -> list[Any]:
        """Everything that is declared."""
        return [*self._publishers.values(), *self._tokens.values()]

    def last(self, series: Series) -> int | None:
        """The last seq of a series that was put, as far as is known."""
        return self._last.get(series)

    def announce(self, lasts: dict[Series, int]) -> None:
        """Blocking: say that these series are here, and what their last seqs are."""
        for series, last in lasts.items():
            if self._session.is_leaving:
                return
            self._appear(series)
            self._last.setdefault(series, last)

    def put(self, batches: Iterable[Batch]) -> None:
        """Blocking: put new events. Stops when the session leaves the network."""
        for batch in batches:
            series = (batch.topic, batch.source)
            self._appear(series)
            self._put(batch, batch.head.priority)
            self._last[series] = max(self._last.get(series, 0), batch.stop - 1)
            self.count += batch.count

    def put_again(self, batches: Iterable[Batch]) -> None:
        """Blocking: put events that a query asked for, with its priority, so that they come before it ends."""
        for batch in batches:
            self._put(batch, DATA)

    def _put(self, batch: Batch, level: int) -> None:
        id_, number = self._ids.of(batch.source), sn_of(batch.first)
        for payload, is_delete, may_drop, options in puts_of(batch):
            if self._session.is_leaving:
                return
            publisher = self._publisher((batch.topic, level, may_drop))
            info = zenoh.SourceInfo(id_, number)
            if is_delete:
                publisher.delete(source_info=info, **options)
            else:
                publisher.put(payload, source_info=info, **options)
            number = (number + 1) % WRAP

    def beat(self) -> None:
        """Blocking: tell the last number of every series. It is behind all samples, as it has the lowest priority."""
        for (topic, source), last in list(self._last.items()):
            if self._session.is_leaving:
                return
            key = publisher_key(topic, zid_of(source), EID, self._node_name)
            self._session.put_heartbeat(key, zenoh.ext.z_serialize(zenoh.ext.UInt32(sn_of(last))))

    def _appear(self, series: Series) -> None:
        """Declare a token before the first sample."""
        if series in self._tokens:
            return
        with self._declaring:
            if series not in self._tokens:
                topic, source = series
                key = publisher_key(topic, zid_of(source), EID, self._node_name)
                self._tokens[series] = self._session.token(key)
                if len(self._tokens) > PUBLISHERS_MAX:
                    oldest = next(iter(self._tokens))
                    self._last.pop(oldest, None)
                    self._tokens.pop(oldest).undeclare()  # type: ignore[no-untyped-call]

    def _publisher(self, way: Way) -> zenoh.Publisher:
        publisher = self._publishers.get(way)
        if publisher is not None:
            return publisher
        with self._declaring:
            publisher = self._publishers.get(way)
            if publisher is None:
                topic, level, may_drop = way
                publisher = self._session.publisher(topic, PRIORITIES[level], may_drop=may_drop)
                self._publishers[way] = publisher
                if len(self._publishers) > PUBLISHERS_MAX:
                    oldest = self._publishers.pop(next(iter(self._publishers)))
                    oldest.undeclare()  # type: ignore[no-untyped-call]
        return publisher
