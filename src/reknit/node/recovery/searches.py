"""Recovery requests of peers that the node can't answer alone, and passes on to other caches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.node.peers.peers import PeerState
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache import total
from reknit.protocol.recovery.search import AskCache, Search, SearchSettings
from reknit.seqset import Range, SeqSet
from reknit.wire.codec import encode
from reknit.wire.recovery import Recover, Recovered, Span, Survey, Surveyed

SPANS_MAX = 4096
"""Rows in one message of a survey's answer."""


def send_spans(peer: PeerState, id_: int, spans: Sequence[Span], is_last: bool) -> None:
    """Answer a survey, in as many messages as it takes."""
    for at in range(0, max(len(spans), 1), SPANS_MAX):
        is_end = is_last and at + SPANS_MAX >= len(spans)
        peer.send(Surveyed(id_, list(spans[at : at + SPANS_MAX]), is_end))


class PeerSearch:
    """One peer's request that the journal could not answer fully.

    `ask` sends a request to a cache, whose answers come back here; `on_done` is called at the end.
    """

    def __init__(
        self,
        request: Recover,
        peer: PeerState,
        others: Sequence[Peer],
        *,
        asking: SearchSettings,
        ask: Callable[[PeerSearch, AskCache], None],
        on_done: Callable[[PeerSearch], None],
    ) -> None:
        self.peer = peer
        self._request = request
        self._ask = ask
        self._on_done = on_done
        self._series: Series = (request.topic, request.source)
        self._search = Search(others, asking)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._missing = SeqSet()
        self._is_done = False

    def begin(self, ranges: list[Range]) -> None:
        """Search for these ranges."""
        self._search.want_all(self._series, ranges, self._loop.time())
        self._run()

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """Pass on at once the events that are still wanted."""
        wanted = self._search.wanted(self._series)
        parts = [
            batch.cut(*bounds)
            for batch in batches
            if (batch.topic, batch.source) == self._series
            for bounds in wanted.overlap(batch.first, batch.stop)
        ]
        if parts and not self._is_done:
            covered = SeqSet.from_ranges((part.first, part.stop) for part in parts).ranges()
            head = Recovered(self._request.id, total(parts), covered, is_last=False)
            self.peer.send_buffers([encode(head), *(part.data for part in parts)])
        for part in parts:
            self._search.found(self._series, part.first, part.stop)
        self._search.heard(cache, self._loop.time())
        self._run()

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """A cache sent all that it has of these ranges."""
        self._search.answered(number, covered, is_last, self._loop.time())
        self._run()

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """Not requested here."""

    def unreachable(self, cache: Peer) -> None:
        """A cache can't be reached for now."""
        self._search.unreachable(cache, self._loop.time())
        self._run()

    def _tick(self) -> None:
        self._search.tick(self._loop.time())
        self._run()

    def _run(self) -> None:
        if self._is_done:
            return
        for effect in self._search.take_effects():
            if isinstance(effect, AskCache):
                self._ask(self, effect)
            else:
                self._missing.add(effect.start, effect.stop)
        if not self._search:
            self.end()
            self.peer.send(Recovered(self._request.id, 0, self._missing.ranges()))
        elif (due := self._search.next_deadline()) is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due, self._tick)

    def end(self) -> None:
        """The peer does not wait any more."""
        self._is_done = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_done(self)


class PeerSurvey:
    """One peer's survey of past events, passed on to other caches."""

    def __init__(
        self,
        request: Survey,
        peer: PeerState,
        others: Sequence[Peer],
        *,
        timeout_s: float,
        ask: Callable[[PeerSurvey, Peer, Survey], None],
        on_done: Callable[[PeerSurvey], None],
    ) -> None:
        self.peer = peer
        self._request = request
        self._ask = ask
        self._on_done = on_done
        self._pending = set(others)
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._finish)

    def begin(self) -> None:
        """Ask all of them."""
        for cache in list(self._pending):
            self._ask(self, cache, self._request)

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """A cache said what it holds."""
        if cache in self._pending:
            send_spans(self.peer, self._request.id, spans, is_last=False)
            if is_last:
                self.unreachable(cache)

    def unreachable(self, cache: Peer) -> None:
        """A cache has nothing more to send."""
        if cache in self._pending:
            self._pending.discard(cache)
            if not self._pending:
                self._finish()

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """Not requested here."""

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """Not requested here."""

    def _finish(self) -> None:
        self.end()
        self.peer.send(Surveyed(self._request.id, []))

    def end(self) -> None:
        """The peer does not wait any more."""
        self._pending.clear()
        self._timer.cancel()
        self._on_done(self)
