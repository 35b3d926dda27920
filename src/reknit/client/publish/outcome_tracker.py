"""The calls of one publisher that wait for outcomes, and the events that have none yet."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from reknit.client.outcome_errors import ERRORS, undelivered
from reknit.connection.futures import fail_all, resolve_all
from reknit.errors import Full
from reknit.outcome import Outcome
from reknit.seqset import SeqSet
from reknit.wire.outcomes import PathThere, RangeOutcome, Told

FORGET_CALLS: Final = 256


@dataclass(slots=True, eq=False)
class OutcomeCall:
    """One call that waits for outcomes: events from `offset` on among those without a seq, then `[start, stop)`."""

    offset: int
    count: int
    future: asyncio.Future[Outcome]
    start: int = 0
    stop: int = 0
    left: int = 0
    failed: list[RangeOutcome] = field(default_factory=list)

    def resolve(self, topic: str, source: bytes) -> None:
        """All outcomes are known: give ACCEPTED, or raise the error of the worst."""
        if self.future.done():
            return
        if not self.failed:
            self.future.set_result(Outcome.ACCEPTED)
            return
        worst = min(self.failed, key=lambda fate: list(ERRORS).index(fate.outcome))
        self.future.set_exception(undelivered(topic, source, worst))
        self.future.exception()  # marks it as retrieved: asyncio logs nothing if the caller never awaits it


class OutcomeTracker:
    """Which call waits for the outcome of which events.

    A call begins with events that have no seq. `number` gives them seqs once they become a batch, and `receive`
    resolves the calls whose events all have an outcome.
    """

    def __init__(self, topic: str, source: bytes, waiting_max: int) -> None:
        self.has_path = False
        """Whether a subscriber is there: events wait for one before they are sent."""
        self._topic, self._source = topic, source
        self._waiting_max = waiting_max
        self._is_journal = False
        """Whether the topic has no distribution: an event that is stored is accepted."""
        self._unnumbered: list[OutcomeCall] = []
        self._open: list[OutcomeCall] = []
        """In the order of their seqs."""
        self._unresolved = SeqSet()
        self._waiters: list[asyncio.Future[None]] = []
        """Futures of calls that wait for a path, or for every outcome; they check again whenever they are woken."""

    @property
    def unresolved(self) -> int:
        """How many events have a seq and no outcome yet."""
        return self._unresolved.count

    def first_unresolved(self, default: int) -> int:
        """The first seq without an outcome."""
        return self._unresolved.first if self._unresolved else default

    # -- calls

    def add(self, offset: int, count: int) -> asyncio.Future[Outcome]:
        """A call publishes `count` events behind `offset` others that have no seq yet. Raises `Full`."""
        if self._unresolved.count + offset + count > self._waiting_max:
            raise Full(f"{self._unresolved.count} events have no outcome yet", "limits.publish_waiting_max")
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._unnumbered.append(OutcomeCall(offset, count, future))
        return future

    def renamed(self, source: bytes) -> None:
        """The source became known with the connection."""
        self._source = source

    def number(self, first: int, count: int) -> None:
        """All events without a seq, `count` of them, become `[first, first + count)`."""
        self._unresolved.add(first, first + count)
        for call in self._unnumbered:
            call.start, call.left = first + call.offset, call.count
            call.stop = call.start + call.count
        self._open.extend(self._unnumbered)
        self._unnumbered = []

    async def changed(self) -> None:
        """Return when a path comes or goes, or every event has its outcome. Raises the error of a failure."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Let all waiting calls check again."""
        waiters, self._waiters = self._waiters, []
        resolve_all(waiters)

    # -- from the node

    def disconnected(self) -> None:
        """There is no path until the node reports one again."""
        self.has_path = False

    def path_changed(self, message: PathThere) -> None:
        """A subscriber came, or the last one left."""
        self.has_path, self._is_journal = message.is_there, message.is_journal or self._is_journal

    def receive(self, message: Told) -> None:
        """The node reports outcomes."""
        for fate in message.rows:
            if fate.outcome != Outcome.RECEIVED:
                self._resolve(fate)

    def stored(self, stop: int) -> None:
        """Everything before `stop` is stored."""
        if self._is_journal and self._unresolved:
            self._resolve(RangeOutcome(self._unresolved.first, stop, Outcome.ACCEPTED))

    def _resolve(self, fate: RangeOutcome) -> None:
        """Events have their outcome; one that is reported twice counts once."""
        for start, stop in self._unresolved.overlap(fate.start, fate.stop):
            self._unresolved.discard(start, stop)
            at = bisect_right(self._open, start, key=_stop)
            while at < len(self._open) and self._open[at].start < stop:
                call = self._open[at]
                self._resolve_part(call, max(call.start, start), min(call.stop, stop), fate)
                at += 1
        self._forget_resolved()
        if not self._unresolved:
            self.wake()

    def _resolve_part(self, call: OutcomeCall, start: int, stop: int, fate: RangeOutcome) -> None:
        call.left -= stop - start
        if fate.outcome != Outcome.ACCEPTED:
            call.failed.append(msgspec.structs.replace(fate, start=start, stop=stop))
        if call.left == 0:
            call.resolve(self._topic, self._source)

    def _forget_resolved(self) -> None:
        """Calls are resolved in any order, and forgotten from the front, many at a time."""
        done = 0
        while done < len(self._open) and self._open[done].left == 0:
            done += 1
        if done == len(self._open) or done >= FORGET_CALLS:
            del self._open[:done]

    def fail(self, error: Exception) -> None:
        """Raise the error in everyone who waits."""
        futures: list[asyncio.Future[Any]] = [call.future for call in (*self._open, *self._unnumbered)]
        futures += self._waiters
        self._open, self._unnumbered, self._waiters = [], [], []
        fail_all(futures, error)


def _stop(call: OutcomeCall) -> int:
    return call.stop
