"""Batches and events.

A batch is a run of consecutive events of one source on one topic, `[first, first + count)`. An event is one payload of a
batch, identified by (source, seq). Both are frozen. `reknit.batch_layout` describes the bytes of a batch.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from io import BytesIO
from itertools import islice, repeat
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from reknit.batch_layout import (
    COLUMNS_LEN,
    FLAG_ATTRIBUTES,
    FLAG_STREAM,
    HEADER,
    HEADER_BYTES,
    PRIORITY_DEFAULT,
    SEQ_MAX,
    SOURCE_BYTES,
    TIME_US_MAX,
    TOPIC_LEN,
    TYPE_PUBLISH,
    TYPE_REQUEST,
    TYPE_RESPONSE,
    Head,
    decode_columns,
    pack,
    parse_head,
    payload_splitter,
    same_length,
    sections,
    total,
)
from reknit.delivery import FIRST, Delivery, Settleable
from reknit.envelope.attributes import Attributes
from reknit.envelope.columns import has_attributes, read_attributes
from reknit.errors import LocalError
from reknit.frame import Buffer
from reknit.outcome import Outcome
from reknit.private_topics import public_topic

__all__ = [
    "FLAG_ATTRIBUTES",
    "HEADER_BYTES",
    "PRIORITY_DEFAULT",
    "SEQ_MAX",
    "SOURCE_BYTES",
    "TIME_US_MAX",
    "TYPE_PUBLISH",
    "TYPE_REQUEST",
    "TYPE_RESPONSE",
    "Batch",
    "Event",
    "Head",
    "TypedEvent",
    "parse_head",
    "total",
]

T = TypeVar("T")

SAME_MIN: Final = 16
SAME_MAX: Final = 4096
"""From `SAME_MIN` to `SAME_MAX` payloads of one length are split in one call."""


class Batch(msgspec.Struct, Settleable, frozen=True, eq=False, dict=True):
    """Events `[first, stop)` of one source on one topic, over the bytes that carry them.

    >>> batch = Batch.build(bytes(16), "plant/line1/temp", 7, [b"21.5", b"21.6"], time_us=1)
    >>> (batch.first, batch.stop, batch.topic, batch.payloads())
    (7, 9, 'plant/line1/temp', [b'21.5', b'21.6'])
    >>> Batch.parse(batch.data).cut(8, 9).payloads()
    [b'21.6']
    """

    head: Head
    data: Buffer
    position: int = -1
    """Its place in the journal; -1 where that is not known."""
    whole: tuple[Buffer, int] | None = None
    """The buffer that `data` is a part of, and where in it. Payloads are read from `bytes` without copying the block."""
    delivery: Delivery = FIRST
    """How it was delivered to a subscriber."""

    @classmethod
    def build(
        cls,
        source: bytes,
        topic: str,
        first: int,
        payloads: Sequence[Buffer],
        time_us: int,
        ttl_ms: int = 0,
        priority: int = PRIORITY_DEFAULT,
        type: int = TYPE_PUBLISH,
        columns: dict[str, list[Any]] | None = None,
        flags: int = 0,
        lengths: list[int] | None = None,
    ) -> Batch:
        """Encode events into a batch. The caller has checked topic, sizes and limits.

        A caller that passes the events' lengths may pass payloads that are joined already, to any number of buffers.
        """
        lengths = list(map(len, payloads)) if lengths is None else lengths
        shared = (time_us, ttl_ms, priority, type, columns, flags)
        return cls(*pack(source, topic, first, payloads, *shared, lengths))

    @classmethod
    def parse(cls, data: Buffer, offset: int = 0, position: int = -1) -> Batch:
        """The validated batch at `offset`. Raises `MalformedFrame`."""
        head = parse_head(data, offset)
        is_whole = offset == 0 and len(data) == head.length
        return cls(head, data if is_whole else memoryview(data)[offset : offset + head.length], position)

    def delivered(self, delivery: Delivery) -> Batch:
        """The same events and bytes in another delivery."""
        return Batch(self.head, self.data, self.position, self.whole, delivery)

    @property
    def source(self) -> bytes:
        return self.head.source

    @property
    def topic(self) -> str:
        return self.head.topic

    @property
    def first(self) -> int:
        return self.head.first

    @property
    def count(self) -> int:
        return self.head.count

    @property
    def stop(self) -> int:
        """The seq after the last."""
        return self.head.first + self.head.count

    @property
    def time_us(self) -> int:
        return self.head.time_us

    @property
    def attempt(self) -> int:
        """1 on the first delivery, more on a repeated one."""
        return self.delivery.attempt

    @property
    def counted(self) -> bool:
        """Whether it used up the subscriber's credit."""
        return self.delivery.counted

    @property
    def ordered_to(self) -> int:
        """Where a subscriber that gives back one event must give back the rest too: up to this seq. 0: nowhere."""
        return self.delivery.ordered_to

    @property
    def stream(self) -> AsyncIterable[bytes] | None:
        """The payload in chunks, if it arrives in chunks."""
        return self.delivery.stream

    @property
    def settle(self) -> Callable[..., Any] | None:
        """Reports the outcome of a range of these events; None for a batch that no subscription delivered."""
        settle = self.delivery.settle
        return None if settle is None else partial(settle, self)

    def __len__(self) -> int:
        return self.head.count

    def __repr__(self) -> str:
        return f"Batch({self.topic!r}, {self.source.hex()}, [{self.first}, {self.stop}), {self.head.length} bytes)"

    def _sections(self) -> tuple[int, int, int]:
        """Where columns, lengths and payloads begin."""
        fields = HEADER.unpack_from(self.data)
        return sections(fields[TOPIC_LEN], fields[COLUMNS_LEN], self.head.count)

    def lengths(self) -> memoryview:
        """The payloads' lengths as unsigned 32-bit numbers, without a copy."""
        _, at, _ = self._sections()
        return memoryview(self.data)[at : at + 4 * self.head.count].cast("I")

    def block(self) -> memoryview:
        """All payloads back to back, without a copy (up to seven bytes of padding follow the last)."""
        return memoryview(self.data)[self._sections()[2] :]

    def payloads(self) -> list[bytes]:
        """Every event's payload."""
        _, lengths_at, block_at = self._sections()
        count = self.head.count
        packed = bytes(memoryview(self.data)[lengths_at : lengths_at + 4 * count])
        if SAME_MIN <= count <= SAME_MAX and (same := same_length(packed)) is not None:
            return list(payload_splitter(same, count).unpack_from(self.data, block_at))
        buffer, at = (self.data, 0) if self.whole is None else self.whole
        if type(buffer) is bytes:  # BytesIO reads from bytes without copying them
            block = BytesIO(buffer)
            block.seek(at + block_at)
        else:
            block = BytesIO(memoryview(self.data)[block_at:])
        return list(map(block.read, memoryview(packed).cast("I").tolist()))

    @cached_property
    def event_columns(self) -> Mapping[str, list[Any]]:
        """As `columns`, decoded once: for readers that ask for each event."""
        return self.columns()

    def columns(self) -> dict[str, list[Any]]:
        """The fields beside the payload that differ from event to event: {name: [a value per event]}."""
        size = HEADER.unpack_from(self.data)[COLUMNS_LEN]
        if not size:
            return {}
        at = self._sections()[0]
        return decode_columns(memoryview(self.data)[at : at + size])

    def events(self, start: int = 0) -> list[Event]:
        """The events with seq ≥ `start`, as light values."""
        first = self.head.first
        skip = max(0, start - first)
        payloads = self.payloads()
        if skip:
            payloads = payloads[skip:]
        return list(map(cast(Any, Event), repeat(self), range(first + skip, self.stop), payloads))

    def cut(self, start: int, stop: int) -> Batch:
        """The events `[start, stop)` of this batch as a batch of their own, which can't be settled."""
        start, stop = max(start, self.first), min(stop, self.stop)
        if (start, stop) == (self.first, self.stop):
            return self
        assert start < stop, "an empty cut"
        low, high = start - self.first, stop - self.first
        columns = {name: values[low:high] for name, values in self.columns().items()}
        payloads = list(islice(self.payloads(), low, high))
        head, old = self.head, self.delivery
        shared = (head.time_us, head.ttl_ms, head.priority, head.type, columns, head.flags)
        part = pack(head.source, head.topic, start, payloads, *shared, list(map(len, payloads)))
        delivery = FIRST if old is FIRST else Delivery(old.attempt, old.counted, old.ordered_to)
        return Batch(*part, self.position, delivery=delivery)

    def _settle(self, outcome: Outcome, **details: Any) -> Awaitable[None]:
        settle = self.delivery.settle
        if settle is None:
            raise _not_delivered(repr(self))
        result: Awaitable[None] = settle(self, self.first, self.stop, outcome, **details)
        return result


class _BatchEvent(msgspec.Struct, Settleable, frozen=True, gc=False):
    """One event of a batch. It reads everything but the payload from there, so that it stays light."""

    batch: Batch
    seq: int

    @property
    def topic(self) -> str:
        return public_topic(self.batch.head.topic)

    @property
    def source(self) -> bytes:
        return self.batch.head.source

    @property
    def id(self) -> str:
        """The event id as text: source and seq.

        >>> Batch.build(bytes(16), "a", 7, [b""], time_us=0).events()[0].id
        '00000000000000000000000000000000:7'
        """
        return f"{self.batch.head.source.hex()}:{self.seq}"

    @property
    def time_us(self) -> int:
        """When it was published, in microseconds since 1970."""
        times = self._column("time")
        return self.batch.head.time_us if times is None else int(times)

    @property
    def time(self) -> datetime:
        """When it was published, by the publisher's clock."""
        return datetime.fromtimestamp(self.time_us / 1e6, UTC)

    @property
    def ttl_ms(self) -> int:
        """How long it is worth delivering; 0 is for ever."""
        ttl = self._column("ttl")
        return self.batch.head.ttl_ms if ttl is None else int(ttl)

    @property
    def headers(self) -> dict[str, str]:
        """Headers that the publisher attached to this event."""
        return dict(self._column("headers") or {})

    @property
    def key(self) -> str:
        """The key that the publisher gave this event, or nothing."""
        return str(self._column("key") or "")

    @property
    def attributes(self) -> Attributes | None:
        """Its uProtocol attributes; None for an event without attributes."""
        if not has_attributes(self.batch):
            return None
        index = self.seq - self.batch.head.first
        return read_attributes(self.batch, index, index + 1, self.batch.event_columns)[0]

    @property
    def is_stream(self) -> bool:
        """Whether the payload comes in chunks: `payload` is empty then, and `pieces` has it."""
        return bool(self.batch.head.flags & FLAG_STREAM)

    @property
    def attempt(self) -> int:
        """1 on the first delivery, more on a repeated one."""
        return self.batch.delivery.attempt

    def _column(self, name: str) -> Any:
        values = self.batch.event_columns.get(name)
        return None if values is None else values[self.seq - self.batch.head.first]

    def _settle(self, outcome: Outcome, **details: Any) -> Awaitable[None]:
        batch = self.batch
        settle = batch.delivery.settle
        if settle is None:
            raise _not_delivered(f"event {self.id}")
        result: Awaitable[None] = settle(batch, self.seq, self.seq + 1, outcome, **details)
        return result


class Event(_BatchEvent, frozen=True, gc=False):
    """One event, with its payload as bytes."""

    payload: bytes

    async def pieces(self) -> AsyncIterator[bytes]:
        """The payload in chunks, as they arrive; the whole payload at once for an event that is not a stream.

        Raises `Aborted` if the stream breaks off: discard the chunks then. A stream can be accepted only after it was
        read to its end. With `auto_accept`, reading the first chunk claims the event: no other subscriber gets it.
        """
        if self.batch.stream is None:
            yield self.payload
            return
        async for piece in self.batch.stream:
            yield piece


class TypedEvent(_BatchEvent, Generic[T], frozen=True, gc=True):
    """One event, with its payload as the value that a codec read from it."""

    payload: T
    raw: bytes
    """The payload as it came."""


def _not_delivered(what: str) -> LocalError:
    return LocalError(f"{what} was not delivered by a subscription; only delivered events can be settled")
