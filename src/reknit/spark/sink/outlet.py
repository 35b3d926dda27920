"""Publishing from a Spark task: the rows of one partition of one micro-batch, each event once however often it runs.

A partition has one source per topic, for good. Its seqs go on from micro-batch to micro-batch, and every event says
in two columns to which micro-batch it belongs and with which seq that began. So the node itself remembers how far
a micro-batch got: one that runs again asks for the last event that was kept, and goes on behind it. What is sent
twice all the same has the same seqs, and the node drops it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import xxhash

from reknit.batch import SOURCE_BYTES, Batch
from reknit.errors import NotConnected, Refused
from reknit.spark.source.nodes import NodeLink
from reknit.spark.source.options import SinkOptions
from reknit.topic import check_topic
from reknit.wire.codec import AnyMessage
from reknit.wire.messages import Ack, Declare, Expect, Go, Hold, Refuse

__all__ = ["BATCH_COLUMN", "START_COLUMN", "Outlet", "source_of"]

log = logging.getLogger("reknit.spark")

BATCH_COLUMN: Final = "spark_batch"
START_COLUMN: Final = "spark_start"
WINDOW_BYTES: Final = 16 << 20
EVENTS_MAX: Final = 65_536
PAUSE_S: Final = 0.5


def source_of(sink: str, topic: str, partition: int) -> bytes:
    """The source of one partition of a sink on a topic: always the same.

    >>> source_of("alerts", "plant/temp", 0) == source_of("alerts", "plant/temp", 0)
    True
    """
    text = f"{len(sink)}:{sink}:{len(topic)}:{topic}:{partition}"
    return xxhash.xxh3_128_digest(text.encode())[:SOURCE_BYTES]


class _Stream(msgspec.Struct):
    """One source on one topic, while a micro-batch is written."""

    topic: str
    source: bytes
    start: int
    """The seq of the micro-batch's first event."""
    next: int
    """The seq of the next row."""
    kept: int
    """The last seq that the node has."""
    unacked: deque[Batch]


class Outlet:
    """Takes payloads by topic and returns from `close` when the node has them all. Used by one task."""

    def __init__(self, options: SinkOptions, sink: str, batch_id: int, partition: int) -> None:
        self._options = options
        self._sink, self._batch_id, self._partition = sink, batch_id, partition
        self._streams: dict[bytes, _Stream] = {}
        self._unacked_bytes = 0
        self._is_held = False
        self.count = 0
        """Rows that were taken."""
        self.dropped = 0
        """Rows of them that the node had already."""
        self._link = self._connect()

    def _connect(self) -> NodeLink:
        """A connection to the node, which is waited for."""
        options = self._options
        deadline = time.monotonic() + options.timeout_s
        while True:
            try:
                return NodeLink(options.nodes[0], options.token, options.timeout_s, options.tls_ca_file)
            except NotConnected:
                if time.monotonic() + PAUSE_S > deadline:
                    raise
                time.sleep(PAUSE_S)

    # -- rows

    def put(self, topic: str, payloads: Sequence[bytes], columns: Mapping[str, Sequence[Any]]) -> None:
        """Publish events on a topic, in this order. Returns when there is room for more."""
        stream = self._stream(topic)
        self.count += len(payloads)
        skip = min(len(payloads), max(0, stream.kept + 1 - stream.next))
        self.dropped += skip
        stream.next += skip
        low = skip
        while low < len(payloads):
            high = self._fitting(payloads, low)
            size = high - low
            extra = {BATCH_COLUMN: [self._batch_id] * size, START_COLUMN: [stream.start] * size}
            extra.update((name, list(values[low:high])) for name, values in columns.items())
            now_us, options = time.time_ns() // 1000, self._options
            made = Batch.build(
                stream.source,
                topic,
                stream.next,
                payloads[low:high],
                now_us,
                options.ttl_ms,
                options.priority,
                columns=extra,
            )
            self._send(stream, made)
            stream.next += size
            low = high

    def _fitting(self, payloads: Sequence[bytes], low: int) -> int:
        size, high = 0, low
        limit = min(self._options.batch_bytes, self._link.welcome.frame_bytes_max // 2)
        while high < len(payloads) and high - low < EVENTS_MAX:
            size += len(payloads[high]) + 4
            if size > limit and high > low:
                break
            high += 1
        return high

    def _stream(self, topic: str) -> _Stream:
        source = source_of(self._sink, topic, self._partition)
        while source not in self._streams:
            check_topic(topic)
            try:
                self._streams[source] = self._opened(topic, source)
            except NotConnected:
                self._reconnect()
        return self._streams[source]

    def _opened(self, topic: str, source: bytes) -> _Stream:
        """Ask the node how far this source got, and with which micro-batch."""
        self._link.send(Declare(source, topic))
        kept = -1
        while kept < 0:
            message = self._link.receive()
            if isinstance(message, Ack) and message.source == source:
                kept = message.seq
            else:
                self._take(message)
        last, start = self._last(topic, source, kept) if kept else (-1, 1)
        if last < self._batch_id:
            return _Stream(topic, source, kept + 1, kept + 1, kept, deque())
        if last > self._batch_id:
            # The query was set back to an older checkpoint: what it writes again is there.
            log.warning(
                "micro-batch %d was written before %d, which %s has: passed over", self._batch_id, last, topic
            )
            return _Stream(topic, source, 1, 1, 1 << 62, deque())
        return _Stream(topic, source, start, start, kept, deque())

    def _last(self, topic: str, source: bytes, seq: int) -> tuple[int, int]:
        """The micro-batch of an event, and the seq with which that began; (-1, 1) if it is not held any more."""
        while self._unacked_bytes:
            self._take(self._link.receive())
        _, data = self._link.ask_raw("find", topic=topic, source=source, start=seq, stop=seq + 1)
        if not data:
            log.warning("the last event of source %s on %s was removed: taken for older", source.hex(), topic)
            return -1, 1
        columns = Batch.parse(data).columns()
        return int(columns[BATCH_COLUMN][0]), int(columns[START_COLUMN][0])

    # -- the node

    def _send(self, stream: _Stream, batch: Batch) -> None:
        stream.unacked.append(batch)
        self._unacked_bytes += batch.head.length
        try:
            if not self._is_held:
                self._link.send_bytes(batch.data)
            while self._unacked_bytes > WINDOW_BYTES:
                self._take(self._link.receive())
        except NotConnected:
            self._reconnect()

    def close(self) -> None:
        """Return when everything is kept. Raises `NotConnected`, `Refused`."""
        while self._unacked_bytes:
            try:
                self._take(self._link.receive())
            except NotConnected:
                self._reconnect()
        self._link.close()

    def abort(self) -> None:
        """Let go of the connection. What was sent may be kept: the next attempt finds out."""
        self._link.close()

    def _take(self, message: AnyMessage) -> None:
        match message:
            case Ack(source=source, seq=seq) if source in self._streams:
                self._acked(self._streams[source], seq)
            case Expect(source=source) if source in self._streams:
                self._resend(self._streams[source])
            case Refuse(code=code, text=text):
                raise Refused(code, text)
            case Hold(text=text):
                log.warning("the node asks the sink to wait: %s", text)
                self._is_held = True
            case Go():
                self._is_held = False
                for stream in self._streams.values():
                    self._resend(stream)
            case _:
                pass

    def _acked(self, stream: _Stream, seq: int) -> None:
        while stream.unacked and stream.unacked[0].stop <= seq + 1:
            self._unacked_bytes -= stream.unacked.popleft().head.length

    def _resend(self, stream: _Stream) -> None:
        for batch in stream.unacked:
            self._link.send_bytes(batch.data)

    def _reconnect(self) -> None:
        """The node went: wait for it, and send again what it has not acknowledged. It drops what it has."""
        while True:
            self._link.close()
            self._link = self._connect()
            self._is_held = False
            try:
                for stream in self._streams.values():
                    self._resend(stream)
                return
            except NotConnected:
                continue
