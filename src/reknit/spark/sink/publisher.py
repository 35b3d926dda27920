"""Publishes the rows of one partition of one micro-batch, each event once, no matter how often the task runs.

Each partition of a sink has one source per topic, as long as the node has its journal: a node that lost it gets new
sources. Its seqs continue from micro-batch to micro-batch. Every event carries two columns: the micro-batch that it
belongs to, and the seq of that micro-batch's first event. So the node itself remembers how far a micro-batch got: a task
that runs again asks the node for the last event that it stored, and continues after it. A batch that is sent twice has
the same seqs, and the node drops it.

Publishing until acknowledged:

put         cut the rows into batches, send each, keep it until the node acknowledges it; wait while the window is full
Ack         forget the batches up to this seq
Expect      the node misses events of a source: resend its unacknowledged batches
Hold, Go    stop sending; resume by resending everything that is unacknowledged
Refuse      raise `Refused`: the task fails
connection lost    reconnect within the timeout, then resend everything that is unacknowledged
close       return when nothing is unacknowledged
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from reknit.batch import Batch
from reknit.batch_layout import PRIORITY_DEFAULT, TYPE_PUBLISH
from reknit.errors import NotConnected, Refused
from reknit.lineage import FORGOTTEN, lasting_source
from reknit.spark.blocking_connection import BlockingConnection
from reknit.spark.options import InvalidOption
from reknit.spark.sink.options import SinkOptions
from reknit.topic import check_topic
from reknit.wire.codec import AnyMessage
from reknit.wire.links import Skip
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse

__all__ = ["BATCH_COLUMN", "START_COLUMN", "BatchFields", "SinkPublisher", "source_of"]

log = logging.getLogger("reknit.spark")

BATCH_COLUMN: Final = "spark_batch"
START_COLUMN: Final = "spark_start"
QUERY_COLUMN: Final = "spark_query"
"""With a sinkId of the user's: which streaming query numbered the micro-batch, since each counts from 0."""
WINDOW_BYTES: Final = 16 << 20
EVENTS_MAX: Final = 65_536
PAUSE_S: Final = 0.5
_ALL_STORED: Final = 1 << 62
"""A last stored seq that is beyond every row of a micro-batch."""


def source_of(sink: str, topic: str, partition: int, epoch: str) -> bytes:
    """The source of one partition of a sink on a topic, in the journal with this epoch: always the same.

    >>> source_of("alerts", "plant/temp", 0, "e1") == source_of("alerts", "plant/temp", 0, "e1")
    True
    """
    return lasting_source(f"{len(sink)}:{sink}:{len(topic)}:{topic}:{partition}", epoch)


def query_number(query: str) -> int:
    """A short name of a streaming query, for its events.

    >>> query_number("a") == query_number("a") != query_number("b")
    True
    """
    return xxh3_64_intdigest(query.encode()) >> 1


class BatchFields(NamedTuple):
    """The fields that the events of a batch share."""

    ttl_ms: int = 0
    priority: int = PRIORITY_DEFAULT
    type: int = TYPE_PUBLISH
    flags: int = 0


class _Series(msgspec.Struct):
    """One source on one topic, while a micro-batch is written."""

    topic: str
    source: bytes
    start: int
    """The seq of the micro-batch's first event."""
    next: int
    """The seq of the next row."""
    stored: int
    """The last seq that the node had stored when the task started."""
    unacked: deque[Batch]

    def skip_stored(self, count: int) -> int:
        """Skip those of the next `count` rows that the node has; returns how many."""
        skipped = min(count, max(0, self.stored + 1 - self.next))
        self.next += skipped
        return skipped

    def add(self, batch: Batch) -> None:
        """A batch of the next rows is sent."""
        self.unacked.append(batch)
        self.next = batch.stop

    def acknowledge(self, seq: int) -> int:
        """Forget the batches up to this seq; returns their bytes."""
        size = 0
        while self.unacked and self.unacked[0].stop <= seq + 1:
            size += self.unacked.popleft().head.length
        return size


class SinkPublisher:
    """Publishes payloads by topic. `close` returns when the node has stored them all. For one task."""

    def __init__(
        self, options: SinkOptions, sink: str, batch_id: int, partition: int, query: str = ""
    ) -> None:
        self._options = options
        self._query = query_number(query) if query else None
        self._sink, self._batch_id, self._partition = sink, batch_id, partition
        self._series: dict[bytes, _Series] = {}
        self._topics: dict[str, _Series] = {}
        """The same series, by topic: a source that has seqs stays, even if the node forgets it meanwhile."""
        self._unacked_bytes = 0
        self._is_held = False
        self.count = 0
        """Rows so far."""
        self.dropped = 0
        """Rows of them that the node had stored before."""
        self._connection = self._connect()

    def _connect(self) -> BlockingConnection:
        """Connect to the node, and retry until the timeout."""
        options = self._options
        deadline = time.monotonic() + options.timeout_s
        while True:
            try:
                return BlockingConnection(options.nodes[0], options.token, options.timeout_s, options.tls)
            except NotConnected:
                if time.monotonic() + PAUSE_S > deadline:
                    raise
                time.sleep(PAUSE_S)

    # -- rows

    def put(
        self,
        topic: str,
        payloads: Sequence[bytes],
        columns: Mapping[str, Sequence[Any]],
        shared: BatchFields | None = None,
    ) -> None:
        """Publish events on a topic, in this order. Returns when the window has room for more.

        Without `shared` the events have the time to live and the priority of the sink's options.
        """
        fields = shared or BatchFields(self._options.ttl_ms, self._options.priority)
        series = self._open_series(topic)
        self.count += len(payloads)
        low = series.skip_stored(len(payloads))
        self.dropped += low
        while low < len(payloads):
            high = self._batch_end(payloads, low)
            cut = {name: list(values[low:high]) for name, values in columns.items()}
            self._send(series, self._build(series, payloads[low:high], cut, fields))
            low = high

    def _build(
        self, series: _Series, payloads: Sequence[bytes], columns: dict[str, list[Any]], fields: BatchFields
    ) -> Batch:
        size = len(payloads)
        marks = {BATCH_COLUMN: [self._batch_id] * size, START_COLUMN: [series.start] * size}
        if self._query is not None:
            marks[QUERY_COLUMN] = [self._query] * size
        return Batch.build(
            series.source,
            series.topic,
            series.next,
            payloads,
            time.time_ns() // 1000,
            **fields._asdict(),
            columns={**columns, **marks},
        )

    def _batch_end(self, payloads: Sequence[bytes], low: int) -> int:
        """The end of the batch that starts with payload `low`."""
        size, high = 0, low
        limit = min(self._options.batch_bytes, self._connection.welcome.frame_bytes_max // 2)
        while high < len(payloads) and high - low < EVENTS_MAX:
            size += len(payloads[high]) + 4
            if size > limit and high > low:
                break
            high += 1
        return high

    # -- resuming

    def _open_series(self, topic: str) -> _Series:
        while topic not in self._topics:
            check_topic(topic)
            source = source_of(self._sink, topic, self._partition, self._connection.welcome.epoch)
            try:
                self._series[source] = self._topics[topic] = self._resume(topic, source)
            except NotConnected:
                self._reconnect()
        return self._topics[topic]

    def _resume(self, topic: str, source: bytes) -> _Series:
        """Ask the node how far this source got, and in which micro-batch."""
        stored = self._declare(topic, source)
        last, start = self._last_batch(topic, source, stored) if stored else (-1, 1)
        if last < self._batch_id:
            return _Series(topic, source, stored + 1, stored + 1, stored, deque())
        if last > self._batch_id:
            # The query was set back to an older checkpoint: the node has the events that it writes again.
            log.warning(
                "micro-batch %d was written before %d, which %s has: skipped", self._batch_id, last, topic
            )
            return _Series(topic, source, 1, 1, _ALL_STORED, deque())
        return _Series(topic, source, start, start, stored, deque())

    def _declare(self, topic: str, source: bytes) -> int:
        """Announce a source; returns the last seq that the node has stored of it."""
        self._connection.send(Declare(source, topic))
        while True:
            message = self._connection.receive()
            if isinstance(message, Ack) and message.source == source:
                return message.seq
            self._receive(message)

    def _last_batch(self, topic: str, source: bytes, seq: int) -> tuple[int, int]:
        """The micro-batch of an event, and the seq of its first event; (-1, 1) if the event was removed."""
        while self._unacked_bytes:
            self._receive(self._connection.receive())
        _, data = self._connection.ask_raw("find", topic=topic, source=source, start=seq, stop=seq + 1)
        if not data:
            log.warning(
                "the last event of source %s on %s was removed: assuming an older micro-batch",
                source.hex(),
                topic,
            )
            return -1, 1
        columns = Batch.parse(data).columns()
        self._check_query(columns.get(QUERY_COLUMN, [None])[0])
        return int(columns[BATCH_COLUMN][0]), int(columns[START_COLUMN][0])

    def _check_query(self, query: int | None) -> None:
        """Raise `InvalidOption` if the last events are of another query: the ids of its micro-batches mean others."""
        if None not in (query, self._query) and query != self._query:
            raise InvalidOption(
                "sinkId",
                repr(self._options.sink_id),
                "was used by a query with another checkpoint, whose micro-batches have the same numbers: use another "
                "sinkId, or that query's checkpoint",
            )

    # -- sending until acknowledged

    def _send(self, series: _Series, batch: Batch) -> None:
        series.add(batch)
        self._unacked_bytes += batch.head.length
        try:
            if not self._is_held:
                self._connection.send_bytes(batch.data)
            while self._unacked_bytes > WINDOW_BYTES:
                self._receive(self._connection.receive())
        except NotConnected:
            self._reconnect()

    def close(self) -> None:
        """Return when the node has stored everything. Raises `NotConnected`, `Refused`."""
        while self._unacked_bytes:
            try:
                self._receive(self._connection.receive())
            except NotConnected:
                self._reconnect()
        self._connection.close()

    def abort(self) -> None:
        """Close the connection. The node may store events that were sent: the next attempt asks it."""
        self._connection.close()

    def _receive(self, message: AnyMessage) -> None:
        match message:
            case Ack(source=source, seq=seq) if source in self._series:
                self._unacked_bytes -= self._series[source].acknowledge(seq)
            case Expect(source=source, seq=seq) if source in self._series:
                self._resend(self._series[source], seq)
            case Refuse(code=code, text=text):
                raise Refused(code, text)
            case Hold(text=text):
                log.warning("the node asks the sink to wait: %s", text)
                self._is_held = True
            case Go():
                self._is_held = False
                self._resend_all()
            case _:
                pass

    def _resend(self, series: _Series, seq: int = 0) -> None:
        """Resend what is not acknowledged. Events from `seq` on that the node acknowledged and forgot are lost there."""
        if series.unacked and 0 < seq < series.unacked[0].first:
            lost = (series.topic, series.source, seq, series.unacked[0].first)
            self._connection.send(Skip(*lost, FORGOTTEN))
        for batch in series.unacked:
            self._connection.send_bytes(batch.data)

    def _resend_all(self) -> None:
        for series in self._series.values():
            self._resend(series)

    def _reconnect(self) -> None:
        """Wait for the node, and resend unacknowledged batches. The node drops those it already has."""
        while True:
            self._connection.close()
            self._connection = self._connect()
            self._is_held = False
            try:
                self._resend_all()
                return
            except NotConnected:
                continue
