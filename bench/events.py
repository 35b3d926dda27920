"""The applications: they build numbered events, and check that each arrives once and in order.

An event starts with one u64 word: its number within its lane (a publisher), the lane in bits 48-55, and two
flags. This code feeds and checks all subjects, so that its cost is the same for each of them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import NoReturn

import numpy as np

LANE_SHIFT = 48
LANE_MASK = 0xFF
NUMBER_MASK = (1 << LANE_SHIFT) - 1
PROBE = 1 << 62  # sent before the start, until every subscriber has joined
LAST = 1 << 63  # the last event of its lane
PACED_SIZE_MIN = 16  # the word, and the time it was sent
EVENTS_PER_CLOCK_CHECK = 256


class WrongEvent(Exception):
    """An event is missing, doubled, out of order, or not what was sent."""


class Watch:
    """Is told the progress of a check. Raises on a wrong event, unless a subclass overrides that."""

    def joined(self) -> None:
        """A probe of every lane has arrived."""

    def ended(self) -> None:
        """The last event of every lane has arrived."""

    def wrong(self, why: str) -> NoReturn:
        raise WrongEvent(why)


def first_word(lane: int) -> int:
    return (lane << LANE_SHIFT) + 1


class Maker:
    """Builds hundreds of events at a time, so that building them does not dominate a measurement.

    >>> [int.from_bytes(event[:8], "little") for event in Maker(size=100, count=4)(7, 3)]
    [7, 8, 9]
    """

    def __init__(self, size: int, count: int) -> None:
        rows = np.zeros(count, _layout(size))
        self._words, self._bytes = rows["word"], rows.view(np.uint8).data
        self._ramp = np.arange(count, dtype="<u8")
        self._split = struct.Struct(f"{size}s" * count).unpack

    def __call__(self, first: int, count: int) -> list[bytes]:
        """`count` events that start at a word; `count` is at most that of the constructor."""
        np.add(self._ramp, np.uint64(first), out=self._words)
        return list(self._split(self._bytes)[:count])


def _layout(size: int) -> np.dtype[np.void]:
    return np.dtype([("word", "<u8"), ("pad", f"V{size - 8}")])


class Feed:
    """The events of one publisher: for `seconds`, or `count` of them if that is not 0.

    >>> [len(event) for event in Feed(lane=0, size=100, seconds=9.0, count=3).events()]
    [100, 100, 100]
    """

    def __init__(self, lane: int, size: int, seconds: float, count: int = 0) -> None:
        self._pack = struct.Struct(f"<Q{size - 8}s").pack
        self._pack_timed = struct.Struct(f"<QQ{max(0, size - PACED_SIZE_MIN)}s").pack
        self._pad = bytes(size - 8)
        self._size = size
        self._first = first_word(lane)
        self._final = self._first + (count or (1 << LANE_SHIFT) - 2) - 1
        self._seconds = seconds
        self._counted = count > 0
        self.sent = 0

    def _deadline(self) -> float:
        return float("inf") if self._counted else time.monotonic() + self._seconds

    def probe(self) -> bytes:
        return self._pack(self._first | PROBE, self._pad)

    def _last(self, word: int) -> bytes:
        self.sent = word - self._first + 1
        return self._pack(word | LAST, self._pad)

    def events(self) -> Iterator[bytes]:
        """Single events, as fast as the publisher sends them."""
        for events in self.batches(EVENTS_PER_CLOCK_CHECK):
            yield from events

    def batches(self, per_batch: int) -> Iterator[list[bytes]]:
        """Lists of `per_batch` events; the last list is one event."""
        make, word = Maker(self._size, per_batch), self._first
        deadline = self._deadline()
        while word < self._final and time.monotonic() < deadline:
            stop = min(word + per_batch, self._final)
            yield make(word, stop - word)
            word = stop
        yield [self._last(word)]

    def timed(self, word: int) -> bytes:
        """An event that carries the time at which it was built."""
        self.sent = (word & ~LAST) - self._first + 1
        return self._pack_timed(word, time.monotonic_ns(), self._pad[8:])

    def due(self, rate: int) -> Iterator[list[int]]:
        """The words that are due now, at `rate` per second. The caller sleeps in between."""
        start, word = time.monotonic(), self._first
        stop = word + int(self._seconds * rate)
        while word < stop:
            until = min(stop, self._first + int((time.monotonic() - start) * rate))
            yield list(range(word, until))
            word = until
        yield [word | LAST]


class Check:
    """Checks the events of one subscriber: every number of every lane, once and in order.

    `one` and `many` return whether all lanes have ended.

    >>> check = Check(lanes=1, size=100)
    >>> [check.one(event) for event in Feed(lane=0, size=100, seconds=9.0, count=3).events()]
    [False, False, True]
    """

    def __init__(self, lanes: int, size: int, watch: Watch | None = None) -> None:
        self._unpack = struct.Struct(f"<Q{size - 8}x").unpack
        self._unpack_timed = struct.Struct(f"<QQ{size - PACED_SIZE_MIN}x").unpack
        self._layout = _layout(size)
        self._ramp = np.arange(1 << 16, dtype="<u8")
        self._next = [first_word(lane) for lane in range(lanes)]
        self._lane = 0
        self._expected = self._next[0]
        self._probed: set[int] = set()
        self._ended: set[int] = set()
        self._watch = watch or Watch()
        self.latencies_ns: list[int] = []

    @property
    def received(self) -> int:
        self._switch(self._lane)
        return sum(word - first_word(lane) for lane, word in enumerate(self._next))

    def one(self, payload: bytes) -> bool:
        try:
            (word,) = self._unpack(payload)
        except struct.error:
            self._watch.wrong(f"an event of {len(payload)} bytes arrived, not {self._layout.itemsize}")
        if word == self._expected:
            self._expected = word + 1
            return False
        return self._unexpected(word)

    def many(self, payloads: list[bytes]) -> bool:
        data, count = b"".join(payloads), len(payloads)
        if len(data) != count * self._layout.itemsize:
            self._watch.wrong(
                f"{count} events of {len(data)} bytes arrived, not {self._layout.itemsize} each"
            )
        words = np.frombuffer(data, self._layout)["word"]
        self._switch_to_lane_of(int(words[0]))
        if count <= len(self._ramp) and np.array_equal(words, self._ramp[:count] + np.uint64(self._expected)):
            self._expected += count
            return False
        return [self._step(int(word)) for word in words][-1]

    def one_timed(self, payload: bytes) -> bool:
        now = time.monotonic_ns()
        word, sent = self._unpack_timed(payload)
        if not word & PROBE:
            self.latencies_ns.append(now - sent)
        return self._step(word)

    def _step(self, word: int) -> bool:
        if word == self._expected:
            self._expected = word + 1
            return False
        return self._unexpected(word)

    def _unexpected(self, word: int) -> bool:
        """Handle a probe, an event of another lane, or the end of a lane. Anything else is wrong."""
        if word & PROBE:
            return self._probe(word)
        self._switch_to_lane_of(word)
        if word & ~LAST != self._expected:
            self._watch.wrong(
                f"lane {self._lane}: number {self._expected & NUMBER_MASK} was expected, {word & NUMBER_MASK} arrived"
            )
        self._expected += 1
        return bool(word & LAST) and self._end_of_lane()

    def _end_of_lane(self) -> bool:
        self._ended.add(self._lane)
        is_all = len(self._ended) == len(self._next)
        if is_all:
            self._watch.ended()
        return is_all

    def _probe(self, word: int) -> bool:
        known = len(self._probed)
        self._probed.add((word >> LANE_SHIFT) & LANE_MASK)
        if known < len(self._probed) == len(self._next):
            self._watch.joined()
        return False

    def _switch_to_lane_of(self, word: int) -> None:
        lane = (word >> LANE_SHIFT) & LANE_MASK
        if not word & PROBE and lane < len(self._next):
            self._switch(lane)

    def _switch(self, lane: int) -> None:
        self._next[self._lane] = self._expected
        self._lane, self._expected = lane, self._next[lane]
