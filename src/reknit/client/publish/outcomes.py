"""Publishing with outcomes: each call ends with what became of its events, not only with their being kept.

While nobody is there to take them, events wait here: a publisher gets credit only while there is a path.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from reknit.client.publish.publisher import Kept, Publisher
from reknit.client.recovery.caches import Recoverable
from reknit.connection.futures import fail_all, resolve_all
from reknit.errors import Full, LocalError, Modified, Refused, Rejected, Released, Undelivered
from reknit.frame import Buffer
from reknit.outcome import Outcome
from reknit.protocol.publish import publisher as machines
from reknit.seqset import SeqSet
from reknit.wire.outcomes import Fate, PathThere, Told, Want

if TYPE_CHECKING:
    from reknit.client.session import Session

ERRORS: Final[dict[int, type[Undelivered]]] = {
    Outcome.REJECTED: Rejected,
    Outcome.MODIFIED: Modified,
    Outcome.RELEASED: Released,
}
"""What each outcome but ACCEPTED is raised as; of several, the first in this order."""

FORGET_CALLS: Final = 256


@dataclass(slots=True, eq=False)
class Call:
    """One call that waits for outcomes: events from `offset` on among those without a seq, then `[start, stop)`."""

    offset: int
    count: int
    future: asyncio.Future[Outcome]
    start: int = 0
    stop: int = 0
    left: int = 0
    failed: list[Fate] = field(default_factory=list)


class OutcomePublisher(Publisher):
    """Made by `session.publisher(topic, outcome=True)` or `(topic, resend_released=True)`.

    `await publisher.publish(payload)` gives `Outcome.ACCEPTED`, or raises `Released`, `Rejected` or `Modified`, which
    say where and why. `publish_many` does so for all of its events; the error is that of the worst.
    """

    def __init__(
        self,
        session: Session,
        source: bytes,
        topic: str,
        lasting: bool,
        wait: bool = True,
        ttl_ms: int = 0,
        priority: int = 1,
        recovery: Recoverable | None = None,
        is_resent: bool = False,
    ) -> None:
        self._is_resent = is_resent
        self._has_path = False
        self._is_journal = False
        self._calls: list[Call] = []
        """Those whose events have no seq yet."""
        self._open: list[Call] = []
        self._unresolved = SeqSet()
        self._resolved: list[asyncio.Future[None]] = []
        super().__init__(session, source, topic, lasting, wait, ttl_ms, priority, recovery)

    @property
    def unresolved(self) -> int:
        """How many events have a seq and no outcome yet."""
        return self._unresolved.count

    # -- publishing

    def publish(self, payload: Buffer | str) -> asyncio.Future[Outcome]:  # type: ignore[override]
        """Publish one event; the awaitable gives its outcome, or raises."""
        return self.publish_many((payload,))

    def publish_many(self, payloads: Iterable[Buffer | str]) -> asyncio.Future[Outcome]:  # type: ignore[override]
        """Publish many events; the awaitable gives ACCEPTED when all of them are, or raises."""
        checked = [self._check(payload) for payload in payloads]
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if not checked:
            future.set_result(Outcome.ACCEPTED)
            return future
        waiting_max = self._limits.publish_waiting_max
        if self._unresolved.count + len(self._payloads) + len(checked) > waiting_max:
            raise Full(f"{self._unresolved.count} events have no outcome yet", "limits.publish_waiting_max")
        self._calls.append(Call(len(self._payloads), len(checked), future))
        self._payloads += checked
        self._bytes += sum(map(len, checked)) + 4 * len(checked)
        if self._bytes >= self._batch_bytes:
            self._cut()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
        return future

    async def flush(self) -> None:
        """Return when everything that could be sent so far is kept. What nobody is there for waits on."""
        self._cut()
        if self._failed is not None:
            raise self._failed
        if self._machine.unacked:
            kept: Kept = self._loop.create_future()
            self._waiting.append((self._machine.next_seq, [kept]))
            await kept

    async def resolve(self) -> None:
        """Return when everything published so far has an outcome. What that is, each call's awaitable says."""
        self._cut()
        while (self._unresolved or self._payloads) and self._failed is None:
            resolved: asyncio.Future[None] = self._loop.create_future()
            self._resolved.append(resolved)
            await resolved

    async def _path_there(self) -> None:
        while not self._has_path:
            await super()._path_there()
            there: asyncio.Future[None] = self._loop.create_future()
            self._resolved.append(there)
            await there

    def _cut(self) -> None:
        if not self._has_path or not self._payloads or not self._machine.numbered:
            return
        base = self._machine.next_seq
        self._unresolved.add(base, base + len(self._payloads))
        for call in self._calls:
            call.start, call.left = base + call.offset, call.count
            call.stop = call.start + call.count
        self._open.extend(self._calls)
        self._calls = []
        super()._cut()

    # -- the session's side

    def receive(self, message: machines.Input) -> None:
        """Something for this source came in, or the connection changed."""
        if isinstance(message, machines.Connected):
            unacked = self._machine.unacked
            kept = (unacked[0].first if unacked else self._machine.next_seq) - 1
            first = self._unresolved.first if self._unresolved else kept + 1
            self._session.link.send(Want(self.source, self.topic, self._is_resent, first, kept))
        elif isinstance(message, machines.Disconnected):
            self._has_path = False
        super().receive(message)

    def hear(self, message: Told | PathThere) -> None:
        """The node tells outcomes, or whether anyone is there."""
        if isinstance(message, Told):
            for fate in message.rows:
                if fate.outcome != Outcome.RECEIVED:
                    self._resolve(fate)
            return
        self._has_path, self._is_journal = message.is_there, message.is_journal or self._is_journal
        self._cut()
        self._wake_all()

    def _confirm(self, stop: int) -> None:
        super()._confirm(stop)
        if self._is_journal and self._unresolved:
            self._resolve(Fate(self._unresolved.first, stop, Outcome.ACCEPTED))

    def _resolve(self, fate: Fate) -> None:
        """Events have their outcome; one that is told twice counts once."""
        for start, stop in self._unresolved.overlap(fate.start, fate.stop):
            self._unresolved.discard(start, stop)
            at = bisect_right(self._open, start, key=_stop)
            while at < len(self._open) and self._open[at].start < stop:
                self._note(
                    self._open[at], max(self._open[at].start, start), min(self._open[at].stop, stop), fate
                )
                at += 1
        self._forget_answered()
        if not self._unresolved and not self._payloads:
            self._wake_all()

    def _wake_all(self) -> None:
        futures, self._resolved = self._resolved, []
        resolve_all(futures)

    def _note(self, call: Call, start: int, stop: int, fate: Fate) -> None:
        call.left -= stop - start
        if fate.outcome != Outcome.ACCEPTED:
            call.failed.append(msgspec.structs.replace(fate, start=start, stop=stop))
        if call.left == 0:
            _answer(call, self.topic, self.source)

    def _forget_answered(self) -> None:
        """Calls are answered in any order, and forgotten from the front, many at a time."""
        done = 0
        while done < len(self._open) and self._open[done].left == 0:
            done += 1
        if done == len(self._open) or done >= FORGET_CALLS:
            del self._open[:done]

    def fail(self, error: LocalError | Refused) -> None:
        """Nothing more can be published here: everyone who waits is told."""
        super().fail(error)
        calls = [*self._open, *self._calls]
        self._open.clear()
        self._calls = []
        futures: list[asyncio.Future[Any]] = [*(call.future for call in calls), *self._resolved]
        fail_all(futures, error)


def _stop(call: Call) -> int:
    return call.stop


def _answer(call: Call, topic: str, source: bytes) -> None:
    if call.future.done():
        return
    if not call.failed:
        call.future.set_result(Outcome.ACCEPTED)
        return
    worst = min(call.failed, key=lambda fate: list(ERRORS).index(fate.outcome))
    error = ERRORS[worst.outcome]
    where = (worst.text, worst.code, worst.node, worst.path, worst.attempts)
    call.future.set_exception(error(topic, source.hex(), worst.start, worst.stop, *where))
    call.future.exception()  # retrieved here: a caller that never waits is not nagged by asyncio
