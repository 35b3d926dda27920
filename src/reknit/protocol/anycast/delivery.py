"""One delivery: a range of a batch, its states, and the attempts made at it.

When part of a delivery gets another outcome than the rest, the delivery is split. The parts share the batch's bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, auto
from typing import Final

import msgspec

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.anycast.joined_outcomes import JoinedOutcomes
from reknit.protocol.machine import Peer

HERE: Final = "\0here"
"""Upstream of events that were published on this node. No node can have this name: names are printable."""
GONE: Final = "\0gone"
"""Upstream of events whose neighbour is no longer linked: nobody waits for their outcome."""


class DeliveryState(IntEnum):
    """The state of a delivery on this node. An IntEnum because its hash is fast: transitions are looked up per batch."""

    SELECTING = auto()
    """A path is being chosen."""
    WAITING = auto()
    """Every path that may take it is full."""
    SENT = auto()
    """A path has it and has not settled it."""
    PINNED = auto()
    """The path said RECEIVED: no other path is tried."""
    SPREAD = auto()
    """Copies of it went along all paths; their outcomes are joined."""
    PARKED = auto()
    """Everybody released it, and this node tries again later. The journal has the batch."""
    ENDED = auto()


TRANSITIONS: Final[dict[DeliveryState, frozenset[DeliveryState]]] = {
    DeliveryState.SELECTING: frozenset(
        (
            DeliveryState.WAITING,
            DeliveryState.SENT,
            DeliveryState.SPREAD,
            DeliveryState.PARKED,
            DeliveryState.ENDED,
        )
    ),
    DeliveryState.WAITING: frozenset((DeliveryState.SELECTING, DeliveryState.ENDED)),
    DeliveryState.SENT: frozenset(
        (DeliveryState.SELECTING, DeliveryState.PINNED, DeliveryState.PARKED, DeliveryState.ENDED)
    ),
    DeliveryState.PINNED: frozenset(
        (DeliveryState.SELECTING, DeliveryState.PINNED, DeliveryState.PARKED, DeliveryState.ENDED)
    ),
    DeliveryState.SPREAD: frozenset((DeliveryState.PARKED, DeliveryState.ENDED)),
    DeliveryState.PARKED: frozenset((DeliveryState.SELECTING, DeliveryState.ENDED)),
    DeliveryState.ENDED: frozenset(),
}
_WITHOUT_PATH: Final = (DeliveryState.SELECTING, DeliveryState.WAITING, DeliveryState.PARKED)


class DeliveryTerms(msgspec.Struct, frozen=True):
    """The terms on which the events were offered. All parts of a split delivery share them."""

    topic: str
    source: bytes
    origin: str
    """The node that the events were published on."""
    mode: str
    keeps: bool = False
    """Nobody waits for the outcome: this node tries until somebody takes the events."""
    deadline: float | None = None
    attempts_before: int = 0
    """How many subscribers got the events before they came to this node."""
    is_stream: bool = False
    """The payload follows in chunks: only some paths take that."""
    attempts_max: int = 0
    """With `keeps`: after how many failed attempts the events end; 0: never."""


class AnycastDelivery(msgspec.Struct, eq=False):
    """Events `[start, stop)` of a batch. Only its own methods change its state."""

    terms: DeliveryTerms
    start: int
    stop: int
    batch: Batch | None
    """None while it is parked, and after that: the journal has it."""
    size: int
    upstream: Peer
    resend: bool
    """Whether another path is tried after a release."""
    visited: frozenset[str]
    """The nodes that have it or have had it."""
    excluded: frozenset[int] = frozenset()
    """The ids of paths that released it. A path that comes back has a new id."""
    state: DeliveryState = DeliveryState.SELECTING
    sent_at: float = 0.0
    attempts: int = 0
    """How many subscribers got it, through this node."""
    failed: int = 0
    """How many attempts failed or are in doubt. A restart of the node begins anew."""
    rounds: int = 0
    """How often everybody released it."""
    parent: AnycastDelivery | None = None
    """Of a copy: the delivery that it is a copy of…"""
    join: JoinedOutcomes | None = None
    """…and where its outcome is joined with those of the other copies."""

    @property
    def topic(self) -> str:
        return self.terms.topic

    @property
    def source(self) -> bytes:
        return self.terms.source

    @property
    def series(self) -> Series:
        return self.terms.topic, self.terms.source

    @property
    def count(self) -> int:
        return self.stop - self.start

    @property
    def is_balanced(self) -> bool:
        """Whether it goes where the load is lowest; else to the nearest, or to all."""
        return self.terms.mode == "balanced"

    @property
    def is_waiting(self) -> bool:
        return self.state is DeliveryState.WAITING

    @property
    def is_parked(self) -> bool:
        return self.state is DeliveryState.PARKED

    @property
    def is_pinned(self) -> bool:
        return self.state is DeliveryState.PINNED

    @property
    def is_ended(self) -> bool:
        return self.state is DeliveryState.ENDED

    @property
    def is_released(self) -> bool:
        """Whether a subscriber of this node, or everybody behind a neighbour, has released it in this round."""
        return bool(self.excluded) or len(self.visited) > 1

    @property
    def may_expire(self) -> bool:
        """Whether no path has it, so that nobody can still process it."""
        return self.state in _WITHOUT_PATH

    def _become(self, state: DeliveryState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state!r} can't become {state!r}"
        self.state = state

    # -- transitions

    def wait(self) -> None:
        """No path has room."""
        self._become(DeliveryState.WAITING)

    def select_again(self) -> None:
        """A path may have room by now."""
        self._become(DeliveryState.SELECTING)

    def send(self, now: float, is_attempt: bool) -> None:
        """It goes along a path: to a subscriber, which is an attempt, or to a neighbour, which makes them."""
        self._become(DeliveryState.SENT)
        self.sent_at = now
        self.attempts += is_attempt

    def pin(self) -> None:
        """The path's subscriber works on it."""
        self._become(DeliveryState.PINNED)
        self.resend = False

    def count_attempts(self, attempts: int) -> None:
        """A neighbour reports how many subscribers got it there."""
        self.attempts += attempts

    def fail(self) -> bool:
        """An attempt failed, or is in doubt. False if there may be no further attempt."""
        self.failed += 1
        return not 0 < self.terms.attempts_max <= self.failed

    def join_attempts(self, attempts: int) -> None:
        """All its copies have ended, after this many attempts."""
        self.attempts = attempts

    def release(self, path_id: int) -> None:
        """The subscriber of this path does not take it, and is not tried again."""
        self._become(DeliveryState.SELECTING)
        self.excluded |= {path_id}

    def release_behind(self, visited: Iterable[str]) -> None:
        """No subscriber behind a neighbour takes it: the nodes that were visited there are not tried again."""
        self._become(DeliveryState.SELECTING)
        self.visited = self.visited.union(visited)

    def spread(self) -> None:
        """Copies of it go along all paths."""
        self._become(DeliveryState.SPREAD)

    def park(self) -> None:
        """Everybody released it: it leaves memory until the next attempt."""
        self._become(DeliveryState.PARKED)
        self.rounds += 1
        self.batch = None

    def unpark(self, node: str) -> None:
        """Every path may be tried again."""
        self._become(DeliveryState.SELECTING)
        self.resend = True
        self.excluded, self.visited = frozenset(), frozenset((node,))

    def disown(self) -> None:
        """The neighbour that sent it is no longer linked: nobody waits for its outcome, and it is not resent."""
        (self.parent or self).upstream = GONE
        self.resend = False

    @property
    def is_orphan(self) -> bool:
        """Whether it may be adopted: the neighbour that sent it is no longer linked, and may send it again."""
        return self.upstream == GONE and self.join is None and not self.terms.is_stream

    def adopt(self, offered: AnycastDelivery) -> None:
        """The same events are offered again, while a path has them: their outcome goes to whoever offers them."""
        assert self.is_orphan, "nobody else waits for it"
        self.upstream, self.visited = offered.upstream, offered.visited
        self.resend = offered.resend and not self.is_pinned

    def comes_from(self, upstream: Peer) -> bool:
        """Whether it, or the delivery that it is a copy of, came from there."""
        return (self.parent or self).upstream == upstream

    def end(self) -> None:
        """It has its outcome, or nobody wants it any more."""
        self._become(DeliveryState.ENDED)

    # -- parts

    def split(self, at: int) -> AnycastDelivery:
        """Cut off the events from `at` on, and return them as a delivery in the same state."""
        assert self.start < at < self.stop, "a split leaves something on both sides"
        size = self.size * (self.stop - at) // self.count
        rest = AnycastDelivery(
            terms=self.terms,
            start=at,
            stop=self.stop,
            batch=self.batch,
            size=size,
            upstream=self.upstream,
            resend=self.resend,
            visited=self.visited,
            excluded=self.excluded,
            state=self.state,
            sent_at=self.sent_at,
            attempts=self.attempts,
            failed=self.failed,
            rounds=self.rounds,
            parent=self.parent,
            join=self.join,
        )
        self.stop, self.size = at, self.size - size
        return rest

    def copies(self, count: int, join: JoinedOutcomes) -> list[AnycastDelivery]:
        """Copies of it for several paths. A copy is not resent, does not expire and is not parked: its parent is."""
        terms = DeliveryTerms(self.terms.topic, self.terms.source, self.terms.origin, self.terms.mode)
        return [
            AnycastDelivery(
                terms=terms,
                start=self.start,
                stop=self.stop,
                batch=self.batch,
                size=self.size,
                upstream=self.upstream,
                resend=False,
                visited=self.visited,
                parent=self,
                join=join,
            )
            for _ in range(count)
        ]
