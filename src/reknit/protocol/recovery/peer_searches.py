"""Recovery requests of peers that a node can't answer alone, and passes on to other caches.

A search ends when everything is found or denied, a survey when every cache has answered or its time is over. Then the
peer gets the last reply; it gets what is found before as it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.effects import Send
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache import total
from reknit.protocol.recovery.cache_inputs import Effect, SendFound
from reknit.protocol.recovery.search import AskCache, Search, SearchSettings
from reknit.seqset import Range, SeqSet
from reknit.wire.recovery import Recover, Recovered, Span, Survey, Surveyed

SPANS_MAX: Final = 4096
"""Rows in one message of a survey's answer."""


class SearchContext(Protocol):
    """The machine that searches belong to."""

    now: float

    def emit(self, effect: Effect) -> None:
        """An effect of a search."""

    def ask(self, search: PeerSearch, effect: AskCache) -> bool:
        """Ask a cache for ranges; False if it can't be reached."""

    def ask_survey(self, survey: PeerSurvey, cache: Peer) -> bool:
        """Ask a cache which ranges it holds; False if it can't be reached."""

    def ended(self, number: int) -> None:
        """A search is over."""


def spans_messages(id_: int, spans: Sequence[Span], is_last: bool) -> list[Surveyed]:
    """The answer to a survey, in as many messages as it takes.

    >>> spans_messages(7, [], is_last=True)
    [Surveyed(id=7, spans=[], is_last=True)]
    """
    return [
        Surveyed(id_, list(spans[at : at + SPANS_MAX]), is_last and at + SPANS_MAX >= len(spans))
        for at in range(0, max(len(spans), 1), SPANS_MAX)
    ]


class PeerSearch:
    """One peer's request that the journal could not answer fully."""

    def __init__(
        self,
        number: int,
        request: Recover,
        peer: Peer,
        others: Sequence[Peer],
        settings: SearchSettings,
        context: SearchContext,
    ) -> None:
        self.number = number
        self.peer = peer
        self._request = request
        self._context = context
        self._series: Series = (request.topic, request.source)
        self._search = Search(others, settings)
        self._missing = SeqSet()
        self._is_over = False

    def begin(self, ranges: list[Range]) -> None:
        """Search for these ranges."""
        self._search.want_all(self._series, ranges, self._context.now)
        self._run()

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """Pass on at once the events that are still wanted: none once the search is over."""
        wanted = self._search.wanted(self._series)
        parts = [
            batch.cut(*bounds)
            for batch in batches
            if (batch.topic, batch.source) == self._series
            for bounds in wanted.overlap(batch.first, batch.stop)
        ]
        if parts and not self._is_over:
            covered = SeqSet.from_ranges((part.first, part.stop) for part in parts).ranges()
            reply = Recovered(self._request.id, total(parts), covered, is_last=False)
            self._context.emit(SendFound(self.peer, reply, parts))
        for part in parts:
            self._search.found(self._series, part.first, part.stop)
        self._search.heard(cache, self._context.now)
        self._run()

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """A cache sent all that it has of these ranges."""
        self._search.answered(number, covered, is_last, self._context.now)
        self._run()

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """Not requested here."""

    def unreachable(self, cache: Peer) -> None:
        """A cache can't be reached for now."""
        self._search.unreachable(cache, self._context.now)
        self._run()

    def tick(self, now: float) -> None:
        """Time passed."""
        self._search.tick(now)
        self._run()

    def next_deadline(self) -> float | None:
        """When a cache has been silent for too long, or is asked again."""
        return self._search.next_deadline()

    def _run(self) -> None:
        if self._is_over:
            return
        while effects := self._search.take_effects():
            for effect in effects:
                if not isinstance(effect, AskCache):
                    self._missing.add(effect.start, effect.stop)
                elif not self._context.ask(self, effect):
                    self._search.unreachable(effect.cache, self._context.now)
        if not self._search:
            self.end()
            self._context.emit(Send(self.peer, Recovered(self._request.id, 0, self._missing.ranges())))

    def end(self) -> None:
        """The peer does not wait any more: replies that still come are ignored."""
        self._is_over = True
        self._context.ended(self.number)


class PeerSurvey:
    """One peer's survey of past events, passed on to other caches."""

    def __init__(
        self,
        number: int,
        request: Survey,
        peer: Peer,
        others: Sequence[Peer],
        timeout_s: float,
        context: SearchContext,
    ) -> None:
        self.number = number
        self.peer = peer
        self.request = request
        self._context = context
        self._pending = dict.fromkeys(others)
        """The caches that have not answered yet."""
        self._deadline = context.now + timeout_s

    def begin(self) -> None:
        """Ask all of them."""
        for cache in list(self._pending):
            if not self._context.ask_survey(self, cache):
                self.unreachable(cache)

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """A cache said what it holds."""
        if cache in self._pending:
            for message in spans_messages(self.request.id, spans, is_last=False):
                self._context.emit(Send(self.peer, message))
            if is_last:
                self.unreachable(cache)

    def unreachable(self, cache: Peer) -> None:
        """A cache has nothing more to send."""
        if cache in self._pending:
            del self._pending[cache]
            if not self._pending:
                self._finish()

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """Not requested here."""

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """Not requested here."""

    def tick(self, now: float) -> None:
        """Caches that were silent for too long are not waited for."""
        if now >= self._deadline:
            self._finish()

    def next_deadline(self) -> float | None:
        """When the peer is answered, whoever is silent."""
        return self._deadline

    def _finish(self) -> None:
        self.end()
        self._context.emit(Send(self.peer, Surveyed(self.request.id, [])))

    def end(self) -> None:
        """The peer does not wait any more: replies that still come are ignored."""
        self._pending.clear()
        self._context.ended(self.number)
