"""The fixed window of one sender, as the sender itself and each member keep it.

Both sides use the same class, and all of it is ranges. On the sender, `acked` is the lowest ack of all members, and
`high` the last seq sent. On a receiver, `acked` is what its application has, and `high` the highest seq received.

    forgotten <= acked <= delivered <= high,   high - acked <= capacity,   each only grows

A seq S is taken if `1 <= S - acked <= capacity`: exactly `capacity` events fit. Events that are acked here are
retained for other members, until they are forgotten: the sender said that everyone has them, or it could not have
sent `high` otherwise.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, NamedTuple, TypeVar

from reknit.seqset import Range, SeqSet

T = TypeVar("T")


class Slot(NamedTuple, Generic[T]):
    """Events `[start, stop)` in a window: a batch or part of one. The value of lost events is None."""

    start: int
    stop: int
    value: T | None
    size: int


class Window(Generic[T]):
    """A window of `capacity` events and `bytes_max` bytes whose first seq is `offset + 1`.

    >>> window = Window[str](capacity=5, offset=20)
    >>> window.add(25, 26, "e", 1), window.add(26, 27, "f", 1), window.add(20, 21, "old", 1)
    (True, False, False)
    >>> window.state, window.missing()
    ((20, 20, 25, 1), [(21, 25)])
    """

    def __init__(self, capacity: int, offset: int = 0, bytes_max: int = 1 << 62) -> None:
        assert capacity > 0 <= offset
        self.capacity = capacity
        self.bytes_max = bytes_max
        self.is_final = False
        """The sender is gone. Nothing is forgotten any more: another survivor may lack some events."""
        self.forgotten = self.acked = self.delivered = self.high = offset
        self.bytes = 0
        """The size of all events that are not acked."""
        self.bytes_kept = 0
        """The size of all events, acked or not."""
        self.bytes_acked = 0
        """The size of all events that were ever acked."""
        self._offset = offset
        self._received = SeqSet.from_ranges([(0, offset + 1)])
        self._starts: list[int] = []
        self._slots: list[Slot[T]] = []
        self._acked_slots = 0

    @property
    def state(self) -> tuple[int, int, int, int]:
        """(acked, delivered, high, how many events are held and not acked)."""
        return self.acked, self.delivered, self.high, self._count(self.acked + 1, self.high + 1)

    @property
    def stable(self) -> int:
        """Everyone has all events up to and including this, as far as is known. The offset itself proves nothing."""
        return self.forgotten if self.forgotten > self._offset else 0

    @property
    def room(self) -> int:
        """How many more events fit after `high`."""
        return self.capacity - (self.high - self.acked)

    def resize(self, capacity: int, bytes_max: int) -> None:
        """Hold this much from now on."""
        self.capacity, self.bytes_max = capacity, bytes_max

    def set_final(self, is_final: bool) -> None:
        """The sender is gone, or is back."""
        self.is_final = is_final

    def _count(self, start: int, stop: int) -> int:
        return sum(b - a for a, b in self._received.overlap(start, stop))

    def covers(self, start: int, stop: int) -> bool:
        """True if all of `[start, stop)` was received at some time."""
        return self._received.covers(start, stop)

    # -- filling

    def add(self, start: int, stop: int, value: T, size: int) -> bool:
        """Take events `[start, stop)`. False if none is new, or they do not fit. An event keeps its first value."""
        if stop - 1 - self.acked > self.capacity or start < 1:
            return False
        new = [(start, stop)] if start == self.high + 1 else self._received.missing(start, stop)
        for part in new:
            self._insert(Slot(*part, value, size))
        if not self.is_final:
            self.trim()
        return bool(new)

    def _insert(self, slot: Slot[T]) -> None:
        self._received.add(slot.start, slot.stop)
        at = len(self._starts) if slot.start > self.high else bisect_left(self._starts, slot.start)
        self._starts.insert(at, slot.start)
        self._slots.insert(at, slot)
        self.bytes += slot.size
        self.bytes_kept += slot.size
        self.high = max(self.high, slot.stop - 1)

    def skip(self, seq: int) -> list[Range]:
        """Give up the missing events up to and including seq: `take` returns slots without a value for them."""
        lost = self._received.missing(self.delivered + 1, seq + 1)
        for start, stop in lost:
            self._insert(Slot(start, stop, None, 0))
        return lost

    def lose(self, start: int, stop: int) -> None:
        """Give up the events of `[start, stop)` that are not delivered, held or not: `take` returns an empty slot."""
        start = max(start, self.delivered + 1)
        if start >= stop:
            return
        self._slots = [part for slot in self._slots for part in _around(slot, start, stop)]
        self._starts = [slot.start for slot in self._slots]
        self.bytes = sum(slot.size for slot in self._slots[self._acked_slots :])
        self.bytes_kept = sum(slot.size for slot in self._slots)
        self._received.discard(start, stop)
        self._insert(Slot(start, stop, None, 0))

    # -- emptying

    def take(self) -> list[Slot[T]]:
        """Return everything that comes next without a gap. `delivered` moves behind it."""
        stop = self._received.first_missing(self.delivered + 1)
        if stop == self.delivered + 1:
            return []
        low = bisect_left(self._starts, self.delivered + 1)
        self.delivered = stop - 1
        return self._slots[low : bisect_left(self._starts, stop)]

    def ack(self, seq: int) -> bool:
        """Everything up to and including seq is processed here, which makes room. False if that is not new."""
        seq = min(seq, self.delivered)
        if seq <= self.acked:
            return False
        self.acked = seq
        slots, at = self._slots, self._acked_slots
        while at < len(slots) and slots[at].stop - 1 <= seq:
            self.bytes -= slots[at].size
            self.bytes_acked += slots[at].size
            at += 1
        self._acked_slots = at
        return True

    def forget(self, seq: int) -> None:
        """Everyone has everything up to and including seq: nobody will request it."""
        seq = min(seq, self.acked)
        if seq > self.forgotten:
            count = min(bisect_right(self._starts, seq), self._acked_slots)
            # Everyone got the whole batch, so the whole batch goes.
            self.forgotten = max(seq, self._slots[count - 1].stop - 1) if count else seq
            self._drop(count)

    def trim(self) -> None:
        """Forget events that everyone must have: the sender's own window would have been full otherwise."""
        self.forget(self.high - self.capacity)
        count, over = 0, self.bytes_kept - self.bytes_max
        while over > 0 and count < self._acked_slots:
            over -= self._slots[count].size
            count += 1
        if count:
            self.forget(self._slots[count - 1].stop - 1)

    def _drop(self, count: int) -> None:
        self.bytes_kept -= sum(slot.size for slot in self._slots[:count])
        del self._slots[:count], self._starts[:count]
        self._acked_slots -= count

    # -- gaps and retransmission

    def missing(self, stop: int = 0) -> list[Range]:
        """The gaps after `delivered`, up to `high` or before `stop`, whichever is further."""
        return self._received.missing(self.delivered + 1, max(self.high + 1, stop))

    def find(self, start: int, stop: int) -> list[Slot[T]]:
        """The slots held of `[start, stop)`, acked ones too."""
        low = max(0, bisect_right(self._starts, start) - 1)
        high = bisect_left(self._starts, stop)
        return [slot for slot in self._slots[low:high] if slot.stop > start and slot.value is not None]

    def held(self) -> list[Range]:
        """Everything that could be sent to other members, as ranges."""
        return SeqSet.from_ranges((s.start, s.stop) for s in self._slots if s.value is not None).ranges()


def _around(slot: Slot[T], start: int, stop: int) -> list[Slot[T]]:
    """The parts of a slot outside `[start, stop)`."""
    parts = [(slot.start, min(slot.stop, start)), (max(slot.start, stop), slot.stop)]
    return [Slot(*part, slot.value, slot.size) for part in parts if part[0] < part[1]]
