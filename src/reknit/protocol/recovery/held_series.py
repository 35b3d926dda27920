"""One series as a subscriber receives it: what was released, what is held behind a gap, what is lost."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import msgspec

from reknit.batch import Batch
from reknit.seqset import Range, SeqSet


class HoldLimits(msgspec.Struct, frozen=True):
    """How much is held behind gaps."""

    events_max: int = 1_000_000
    """Of one series."""
    bytes_max: int = 64 << 20
    """Of all series."""


@dataclass(slots=True)
class HeldSeries:
    """Released before `next`, held from there on, known to exist before `known`."""

    next: int
    known: int
    held: SeqSet = field(default_factory=SeqSet)
    is_open: bool = True
    """Whether the start is decided. That waits for the caches' answers about history."""
    tentative: int = 0
    """Where to start unless older events arrive: answers of caches may overtake the events themselves."""
    _batches: list[tuple[int, Batch]] = field(default_factory=list)
    """A heap by seq."""
    _lost: SeqSet = field(default_factory=SeqSet)
    _closed_from: int = 0
    """From this seq on nothing is held until the gap closes: there was no room. 0: there is room."""

    # -- where it starts and ends

    def start_at(self, first: int) -> None:
        """Start at `first`, or at the first held event if that is earlier. It is not known yet which events exist."""
        self.next = self.known = min(first, self.held.first or self.known)
        self.is_open = True

    def start_at_held(self) -> None:
        """No cache knows older events: start with the first that is held."""
        self.next = self.held.first or self.known
        self.is_open = True

    def start_earlier(self, batch: Batch) -> None:
        """An event from before the tentative start arrived: start there."""
        if self.tentative == self.next and batch.first < self.next:
            self.next = self.known = batch.first

    def pass_on(self, batch: Batch) -> bool:
        """True if a batch follows directly and nothing is held: it counts as released."""
        if batch.first == self.next == self.known and self.is_open:
            self.next = self.known = batch.stop
            return True
        return False

    def extend(self, known: int) -> None:
        """Events before `known` exist."""
        self.known = max(self.known, known)

    # -- holding

    def missing(self, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that are neither held nor lost, as far as there is room for them."""
        stop = min(stop, self._closed_from) if self._closed_from else stop
        missing = self.held.missing(start, stop) if start < stop else []
        return [part for bounds in missing for part in self._lost.missing(*bounds)]

    def hold(self, batch: Batch) -> tuple[int, list[Range]]:
        """Hold the new events of a batch. Returns their size and which these are."""
        size = 0
        first = max(batch.first, self.next) if self.is_open else batch.first
        new = self.missing(first, batch.stop)
        for low, high in new:
            part = batch.cut(low, high)
            self.held.add(low, high)
            heapq.heappush(self._batches, (low, part))
            size += part.head.length
        return size, new

    def lose(self, start: int, stop: int) -> None:
        """Nobody has `[start, stop)`."""
        self._lost.add(start, stop)

    # -- releasing

    def take_next(self) -> Batch | None:
        """Release the next batch, if it is held."""
        if not self.is_open or not self._batches or self._batches[0][0] != self.next:
            return None
        batch = heapq.heappop(self._batches)[1]
        self.held.discard(batch.first, batch.stop)
        self.next = batch.stop
        return batch

    def take_lost(self) -> Range | None:
        """Skip the next events, if they are lost."""
        if not self.is_open or self.next not in self._lost:
            return None
        start, stop = self.next, self._lost.first_missing(self.next)
        self._lost.discard(start, stop)
        self.next = stop
        return start, stop

    def reopen(self) -> bool:
        """True if there is room again for dropped events: they have to be searched for."""
        if self._closed_from and (self.next >= self._closed_from or not self._batches):
            self._closed_from = 0
            return True
        return False

    def drop_newest(self, limits: HoldLimits, held_bytes: int) -> list[Batch]:
        """Over a limit, drop the newest batches: they can be recovered like the gap before them.

        `held_bytes` is what all series hold. Returns the batches that were dropped.
        """
        if self.held.count <= limits.events_max and held_bytes <= limits.bytes_max:
            return []
        self._batches.sort(key=_seq)
        dropped: list[Batch] = []
        while len(self._batches) > 1 and (
            self.held.count > limits.events_max * 3 // 4 or held_bytes > limits.bytes_max * 3 // 4
        ):
            first, batch = self._batches.pop()
            self.held.discard(first, batch.stop)
            self._closed_from = first
            held_bytes -= batch.head.length
            dropped.append(batch)
        return dropped

    @property
    def has_batches(self) -> bool:
        return bool(self._batches)

    def live_ranges(self) -> list[Range]:
        """The held events that the node delivered; others came from caches."""
        return sorted((batch.first, batch.stop) for _, batch in self._batches if batch.counted)


def _seq(entry: tuple[int, Batch]) -> int:
    return entry[0]
