"""A subscription that is being opened: what a subscriber was owed and what it still has may be of very many series.

Its queue is not open meanwhile: it gets no events, and reads from its position on when it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from reknit.ledger import Account, Series
from reknit.protocol.dispatch.inputs import OpenSubscription
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.queues.cursor import EndedBefore
from reknit.protocol.queues.queue import Queue
from reknit.seqset import SeqSet
from reknit.wire.messages import Held

STEP: Final = 2_000
"""How many series or ranges are looked at before others have their turn."""
RANGES_MAX: Final = 1 << 19
"""How many ranges in flight from earlier connections are known for one peer."""


class HeldRanges:
    """What the subscribers of one peer have in flight, until they subscribe: of series that exist.

    What is too much is ignored: it is delivered again, and a subscriber
    drops what it has.

    >>> held, published = HeldRanges(), {("a", b"s"): SeqSet.from_ranges([(1, 4)])}
    >>> held.add(7, published, [Held("a", b"s", 2, 9), Held("a", b"x", 1, 2)])
    >>> [(one.start, one.stop) for one in held.take(7)], held.take(7)
    ([(2, 9)], [])
    """

    def __init__(self) -> None:
        self._by_sub: dict[int, list[Held]] = {}
        self._count = 0

    def add(self, sub: int, published: Mapping[Series, SeqSet], ranges: list[Held]) -> None:
        """A subscriber has these in flight."""
        known = [held for held in ranges if (held.topic, held.source) in published]
        known = known[: RANGES_MAX - self._count]
        if known:
            self._by_sub.setdefault(sub, []).extend(known)
            self._count += len(known)

    def take(self, sub: int) -> list[Held]:
        """Everything that a subscriber has in flight, once."""
        found = self._by_sub.pop(sub, [])
        self._count -= len(found)
        return found


def ended_of(account: Account) -> EndedBefore:
    """By series: the events that had ended for a durable subscriber, or were not owed to it."""

    def ended(series: Series) -> SeqSet:
        seqs = account.ended(series)
        seqs.add(0, account.since.get(series, 0))
        return seqs

    return ended


class Resumption:
    """Prepares a queue in steps: it leaves out what is not owed, and knows what the subscriber has."""

    def __init__(
        self,
        state: DispatchState,
        queue: Queue,
        message: OpenSubscription,
        account: Account | None,
        held: list[Held],
        resumed: bool,
    ) -> None:
        self.queue = queue
        self.message = message
        self.account = account
        self.resumed = resumed
        """Whether a durable subscriber was here before."""
        self._state = state
        self._held = held
        self._rest = self._steps()

    def step(self) -> bool:
        """Go on for a while; returns whether everything is done."""
        return sum(1 for _ in islice(self._rest, STEP)) < STEP

    def renew(self) -> bool:
        """Time has passed: look at the account again. False if it is gone."""
        if self.queue.is_durable:
            self.account = self._state.account(self.queue.name)
            if self.account is None:
                return False
            self.queue.resume(self._state.end, ended_of(self.account))
        return True

    def _steps(self) -> Iterator[None]:
        queue, state, account = self.queue, self._state, self.account
        if account is not None:
            queue.resume(state.end, ended_of(account), account.tallies)
            for series, seq in list(account.since.items()):
                if not state.ledger.published.get(series, SeqSet()).covers(1, seq):
                    queue.cursor.leave_out_before(series, seq)
                yield
        published = state.ledger.published
        for held in self._held:
            series = (held.topic, held.source)
            if queue.pattern.matches(held.topic):
                for low, high in published[series].overlap(held.start, held.stop):
                    self._hold(series, low, high)
            yield
        if self._held:
            queue.resume(state.end)

    def _hold(self, series: Series, low: int, high: int) -> None:
        """Events that the subscriber has from an earlier connection stay with it, and are not sent again.

        Only events that it can have count: nobody can settle what was never published.
        """
        queue = self.queue
        queue.hold(series, low, high)
        if queue.leases is not None:
            for start, stop, count in queue.attempts.pieces(series, low, high):
                attempt = 1 if count is None else count.acquired + 1
                queue.leases.begin(self._state.now, series, start, stop, attempt)
