"""What anycast works with: deliveries, the paths that they are tried along, and outcomes that join.

A delivery is a range of one batch. When a part of it gets another outcome than the rest, it is split: the part goes
its own way, and the batch's bytes are shared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from reknit.batch import Batch
from reknit.ledger import Stream
from reknit.outcome import Outcome
from reknit.protocol.machine import Peer
from reknit.topic import Pattern
from reknit.wire.outcomes import Fate

HERE: Final = "here"
"""Upstream of what was published on this node."""
GONE: Final = "gone"
"""Upstream of what came from a node that is not linked any more: its outcome interests nobody."""

Unit = Literal["bytes", "events", "unsettled"]
STRENGTH: Final = (Outcome.REJECTED, Outcome.ACCEPTED, Outcome.MODIFIED, Outcome.RELEASED)
"""Which outcome of several counts, the strongest first."""


@dataclass(slots=True, eq=False)
class Delivery:
    """Events `[start, stop)` of a batch, on their way."""

    topic: str
    source: bytes
    start: int
    stop: int
    batch: Batch | None
    """None while it waits for another try of a batch that the journal has."""
    size: int
    up: Peer
    origin: str
    mode: str
    resend: bool
    visited: frozenset[str]
    keeps: bool = False
    """Nobody waits for the outcome: this node tries until somebody takes it."""
    deadline: float | None = None
    excluded: frozenset[int] = frozenset()
    """The ids of paths that released it. A path that comes back has a new id."""
    path: Path | None = None
    sent_at: float = 0.0
    is_pinned: bool = False
    is_waiting: bool = False
    is_parked: bool = False
    is_done: bool = False
    tries: int = 0
    """How many subscribers it was handed to."""
    rounds: int = 0
    """How often everybody released it."""
    join: Join | None = None
    before: int = 0
    """How many subscribers it was handed to before it came to this node."""
    is_stream: bool = False
    """Its payload follows in pieces: only some paths take that."""

    @property
    def count(self) -> int:
        return self.stop - self.start

    def split(self, at: int) -> Delivery:
        """Cut off what comes from `at` on; gives that."""
        assert self.start < at < self.stop, "a split leaves something on both sides"
        size = self.size * (self.stop - at) // self.count
        rest = Delivery(
            self.topic, self.source, at, self.stop, self.batch, size, self.up, self.origin, self.mode,
            self.resend, self.visited, self.keeps, self.deadline, self.excluded, self.path, self.sent_at,
            self.is_pinned, False, False, False, self.tries, self.rounds, self.join, self.before,
        )  # fmt: skip
        self.stop, self.size = at, self.size - size
        return rest


@dataclass(slots=True, eq=False)
class Path:
    """A subscriber of this node, or a neighbour; alive. What it has and has not settled is `sent`."""

    id: int
    key: Peer
    name: str
    is_neighbour: bool
    unit: Unit
    pattern: Pattern | None = None
    granted: int = 0
    used: int = 0
    unsettled: int = 0
    unsettled_bytes: int = 0
    bytes_max: int = 1 << 62
    """More is not sent while so much is unsettled."""
    takes_streams: bool = False
    last_used: int = 0
    is_blocked: bool = False
    backlog: deque[Delivery] = field(default_factory=deque)
    """Copies of multicast events that wait for room on just this path."""
    _sent: dict[Stream, list[Delivery]] = field(default_factory=dict)

    def room(self) -> int:
        """How many events it takes now, at most; where bytes count, any number while some are left."""
        if self.is_blocked or self.unsettled_bytes >= self.bytes_max:
            return 0
        if self.unit == "unsettled":
            return max(0, self.granted - self.unsettled)
        left = max(0, self.granted - self.used)
        return left if self.unit == "events" or left == 0 else 1 << 62

    def add(self, delivery: Delivery) -> None:
        """It was sent."""
        self.used += delivery.size if self.unit == "bytes" else delivery.count
        self._have(delivery)

    def _have(self, delivery: Delivery) -> None:
        self.unsettled += delivery.count
        self.unsettled_bytes += delivery.size
        self._insert(delivery)

    def _insert(self, delivery: Delivery) -> None:
        sent = self._sent.setdefault((delivery.topic, delivery.source), [])
        if not sent or sent[-1].start < delivery.start:
            sent.append(delivery)
        else:
            sent.insert(bisect_left(sent, delivery.start, key=_start), delivery)

    def take(self, stream: Stream, start: int, stop: int) -> list[Delivery]:
        """Remove what of `[start, stop)` is unsettled here; deliveries that reach beyond it are split."""
        sent = self._sent.get(stream)
        if not sent:
            return []
        low = bisect_left(sent, start, key=_start)
        if low and sent[low - 1].stop > start:
            sent.insert(low, sent[low - 1].split(start))
        high = low
        while high < len(sent) and sent[high].start < stop:
            if sent[high].stop > stop:
                sent.insert(high + 1, sent[high].split(stop))
            high += 1
        taken = sent[low:high]
        del sent[low:high]
        if not sent:
            del self._sent[stream]
        self.unsettled -= sum(delivery.count for delivery in taken)
        self.unsettled_bytes -= sum(delivery.size for delivery in taken)
        return taken

    def put_back(self, delivery: Delivery) -> None:
        """It was taken, and is not settled after all."""
        self._have(delivery)

    def take_all(self) -> list[Delivery]:
        """Remove everything that is unsettled, in order."""
        taken = [delivery for sent in self._sent.values() for delivery in sent]
        self._sent.clear()
        self.unsettled = self.unsettled_bytes = 0
        return taken

    def __iter__(self) -> Iterator[Delivery]:
        return (delivery for sent in self._sent.values() for delivery in sent)


def _start(delivery: Delivery) -> int:
    return delivery.start


@dataclass(slots=True, eq=False)
class Join:
    """One event to many: the outcomes of all copies become one, a range at a time."""

    parent: Delivery
    left: int
    """Events of copies that have no outcome yet."""
    fates: list[Fate] = field(default_factory=list)

    def add(self, fate: Fate) -> bool:
        """An outcome of one copy; True when that was the last."""
        self.fates.append(fate)
        self.left -= fate.stop - fate.start
        return self.left == 0

    def joined(self) -> list[Fate]:
        """REJECTED > ACCEPTED > MODIFIED > RELEASED, and partial failure said in words."""
        places = sorted({at for fate in self.fates for at in (fate.start, fate.stop)})
        joined: list[Fate] = []
        for start, stop in pairwise(places):
            fates = [fate for fate in self.fates if fate.start <= start < fate.stop]
            one = min(fates, key=lambda fate: STRENGTH.index(Outcome(fate.outcome)))
            same = sum(fate.outcome == one.outcome for fate in fates)
            tries = sum(fate.attempts for fate in fates)
            text = one.text
            if same < len(fates):
                names = ", ".join(f"{Outcome(fate.outcome).name} by {fate.path}" for fate in fates)
                text = f"{text} ({names})" if text else names
            joined.append(Fate(start, stop, one.outcome, one.code, text, one.node, one.path, tries))
        return joined
