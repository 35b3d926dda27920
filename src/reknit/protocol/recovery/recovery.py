"""Recovery on a subscriber: batches arrive, and are released once, in seq order, with gaps filled from caches.

While nothing is missing, no message is sent. A gap holds back the later events of its series, and is searched for in
the caches, the nearest first. Events that nobody has are reported as lost once, with their exact range, in their place.

    arrive (a live batch)     -> ReleaseBatches, or held behind a gap: AskCache
    BatchesRecovered          -> the gap closes: ReleaseBatches
    CacheAnswered             -> the next cache is asked; after the last one: UnrecoverableGap
    CacheSurveyed             -> it is decided where series start; events that did not arrive are missing
    Heartbeat, note, miss     -> events that did not arrive are missing: AskCache
    CacheReachable, CacheUnreachable    -> caches are asked again, or passed over
    tick                      -> caches that are silent are passed over; a periodic survey: SurveyCache

Answers under a number that is not open are ignored: they come late. So are recovered batches of unknown series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

import msgspec

from reknit.batch import Batch
from reknit.delivery import RECOVERED
from reknit.ledger import Series
from reknit.protocol.machine import Machine, Peer, earliest
from reknit.protocol.recovery.cache import NO_SOURCE
from reknit.protocol.recovery.held_series import HeldSeries, HoldLimits
from reknit.protocol.recovery.history import History, Surveys
from reknit.protocol.recovery.search import AskCache, Missing, Search, SearchSettings
from reknit.seqset import Range, SeqSet
from reknit.wire.recovery import Heartbeat, Span


class BatchesRecovered(msgspec.Struct, frozen=True):
    """Batches came from a cache."""

    batches: list[Batch]


class CacheAnswered(msgspec.Struct, frozen=True):
    """A cache has answered for the ranges `covered`; its batches came before."""

    number: int
    covered: Sequence[Range]
    is_last: bool = True


class CacheSurveyed(msgspec.Struct, frozen=True):
    """A cache said what it holds; more follows unless this is the last message."""

    number: int
    spans: Sequence[Span]
    is_last: bool = True


class CacheReachable(msgspec.Struct, frozen=True):
    """A cache can be asked, or asked again."""


class CacheUnreachable(msgspec.Struct, frozen=True):
    """A cache can't be asked for now."""


class ReleaseBatches(msgspec.Struct, frozen=True):
    """Deliver these batches: nothing is missing before them."""

    batches: list[Batch]


class HeldBatchesDropped(msgspec.Struct, frozen=True):
    """This many bytes that came live are not held: they are known, or are searched for later."""

    series: Series
    ranges: list[Range]
    size: int


class UnrecoverableGap(msgspec.Struct, frozen=True):
    """Events `[start, stop)` are lost: nobody has them."""

    series: Series
    start: int
    stop: int


class SurveyCache(msgspec.Struct, frozen=True):
    """Ask a cache what it holds; the answer comes back under this number."""

    cache: Peer
    number: int
    age_s: float


Input = BatchesRecovered | CacheAnswered | CacheSurveyed | Heartbeat | CacheReachable | CacheUnreachable
Effect = ReleaseBatches | HeldBatchesDropped | UnrecoverableGap | AskCache | SurveyCache


class Recovery:
    """All series of one subscription.

    >>> recovery = Recovery(caches=["edge"])
    >>> one, two, three = (Batch.build(b"s" * 16, "plant/a", seq, [b"x"], 0) for seq in (1, 2, 3))
    >>> recovery.arrive(one, now=0.0), recovery.arrive(three, now=0.1)
    (True, False)
    >>> [ask] = recovery.take_effects()
    >>> ask.cache, ask.ranges
    ('edge', [(2, 3)])
    >>> recovery.receive(BatchesRecovered([two]), "edge", now=0.2)
    >>> [batch.first for batch in recovery.take_effects()[0].batches]
    [2, 3]
    """

    def __init__(
        self,
        caches: Sequence[Peer] = (),
        asking: SearchSettings | None = None,
        holding: HoldLimits | None = None,
        history: History | None = None,
        query_s: float = 0.0,
        after: Mapping[bytes, int] | None = None,
    ) -> None:
        asking = asking or SearchSettings()
        self._search = Search(caches, asking)
        self._surveys = Surveys(history, asking.timeout_s)
        self._limits = holding or HoldLimits()
        self._query_s = query_s
        self._query_at: float | None = None
        self._after = dict(after or {})
        """The seqs up to which a source was seen before this subscription."""
        self._series: dict[Series, HeldSeries] = {}
        self._held_bytes = 0
        self._effects: list[Effect] = []
        self.questions = 0
        """How often a cache was asked for anything. It stays 0 while nothing is missing."""

    @property
    def caches(self) -> Sequence[Peer]:
        return self._search.caches

    def held_live(self) -> list[tuple[Series, int, int]]:
        """The events that the node delivered, and that wait behind a gap."""
        return [(series, *bounds) for series, held in self._series.items() for bounds in held.live_ranges()]

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def held_events(self, series: Series) -> int:
        """How many events of a series are held behind a gap."""
        track = self._series.get(series)
        return track.held.count if track is not None else 0

    @property
    def is_searching(self) -> bool:
        """Whether something is missing that may still be found."""
        return bool(self._search)

    def next_seqs(self) -> dict[Series, int]:
        """The next seq to release of every series."""
        return {series: track.next for series, track in self._series.items() if track.is_open}

    def start(self, now: float) -> None:
        """The subscription is confirmed. With history or periodic queries, ask the caches what they hold."""
        if self._query_s:
            self._query_at = now + self._query_s
        if self.caches and (self._surveys.history is not None or self._query_s):
            self._survey(now)

    # -- live events

    def arrive(self, batch: Batch, now: float) -> bool:
        """A live batch arrived. True: deliver it unchanged, nothing else changed. False: see the effects."""
        series = (batch.topic, batch.source)
        track = self._series.get(series)
        if track is None:
            if batch.source == NO_SOURCE:
                return True  # "Samples received with no attached SourceInfo metadata are passed to the user."
            track = self._meet(series, batch.first, now)
        if track.pass_on(batch):
            return True
        self._take(series, track, batch, now)
        self._settle(now)
        return False

    def _meet(self, series: Series, first: int, now: float) -> HeldSeries:
        """A new source. "The first sample received with a given source_id is also passed to the user.\""""
        begin = min(first, self._after.get(series[1], first - 1) + 1)
        is_open = first <= 1 or begin < first or not self._wants_history()
        track = self._series[series] = HeldSeries(begin, begin, is_open=is_open)
        if not is_open:
            self._survey(now)
        return track

    def _wants_history(self) -> bool:
        return self._surveys.history is not None and bool(self.caches)

    def _take(self, series: Series, track: HeldSeries, batch: Batch, now: float) -> None:
        """Hold the new events of a batch, search for events missing before it, and release events without a gap."""
        if batch.counted:
            track.start_earlier(batch)
        if track.is_open and batch.first > track.known:
            self._want(series, track, track.known, batch.first, now)
        self._hold(series, track, batch)
        track.extend(batch.stop)
        self._follow(series, track, now)

    def _hold(self, series: Series, track: HeldSeries, batch: Batch) -> None:
        size, held = track.hold(batch)
        self._held_bytes += size
        self._search.found(series, batch.first, batch.stop)
        if batch.counted and size != batch.head.length:
            dropped = SeqSet.from_ranges(held).missing(batch.first, batch.stop)
            self._effects.append(HeldBatchesDropped(series, dropped, batch.head.length - size))

    def _want(self, series: Series, track: HeldSeries, start: int, stop: int, now: float) -> None:
        """Search for the missing events of `[start, stop)`."""
        if parts := track.missing(start, stop):
            self._search.want_all(series, parts, now)

    def _follow(self, series: Series, track: HeldSeries, now: float) -> None:
        """Release events without a gap before them. A loss is reported in its place."""
        out: list[Batch] = []
        while True:
            if (batch := track.take_next()) is not None:
                self._held_bytes -= batch.head.length
                out.append(batch)
            elif (lost := track.take_lost()) is not None:
                self._release(out)
                out = []
                self._effects.append(UnrecoverableGap(series, *lost))
            else:
                break
        self._release(out)
        if track.reopen():
            self._want(series, track, track.next, track.known, now)
        elif track.has_batches:
            self._make_room(series, track)

    def _make_room(self, series: Series, track: HeldSeries) -> None:
        dropped = track.drop_newest(self._limits, self._held_bytes)
        if dropped:
            self._held_bytes -= sum(batch.head.length for batch in dropped)
            if live := [batch for batch in dropped if batch.counted]:
                ranges = [(batch.first, batch.stop) for batch in live]
                size = sum(batch.head.length for batch in live)
                self._effects.append(HeldBatchesDropped(series, ranges, size))

    def _release(self, batches: list[Batch]) -> None:
        if batches:
            self._effects.append(ReleaseBatches(batches))

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An input from a cache, about a cache, or about a publisher."""
        match message:
            case BatchesRecovered(batches=batches):
                self._recovered(batches, now)
                self._search.heard(peer, now)
            case CacheAnswered(number=number, covered=covered, is_last=is_last):
                self._search.answered(number, covered, is_last, now)
            case CacheSurveyed(number=number, spans=spans, is_last=is_last):
                self._decide(self._surveys.surveyed(number, peer, spans, is_last), now)
            case Heartbeat(topic=topic, source=source, seq=seq):
                self.note((topic, source), seq + 1, now)
            case CacheReachable():
                self._search.reachable(peer, now)
            case CacheUnreachable():
                self._search.unreachable(peer, now)
                self._decide(self._surveys.unreachable(peer), now)
            case _:
                assert_never(message)
        self._settle(now)

    def note(self, series: Series, known: int, now: float) -> None:
        """Events before `known` exist: those that did not arrive are missing, including the last ones."""
        track = self._series.get(series)
        if track is None:
            is_open = known <= 1 or not self._wants_history()
            self._series[series] = HeldSeries(known, known, is_open=is_open, tentative=known)
            if not is_open:
                self._survey(now)
        elif known > track.known:
            if track.is_open:
                self._want(series, track, track.known, known, now)
            track.extend(known)
        self._settle(now)

    def look(self, now: float) -> None:
        """The last events of some series may be missing: ask the caches what they hold."""
        if self.caches:
            self._survey(now)

    def miss(self, series: Series, start: int, stop: int, now: float) -> None:
        """Events `[start, stop)` will not arrive live."""
        self._series.setdefault(series, HeldSeries(start, start))
        self.note(series, stop, now)

    def pause(self, is_paused: bool) -> bool:
        """Search no further while there is no room for recovered events. True if there is room again: `resume`."""
        return self._search.pause(is_paused)

    def resume(self, now: float) -> None:
        """There is room again for recovered events."""
        self._search.resume(now)
        self._settle(now)

    def tick(self, now: float) -> None:
        """Time passed: a cache may have been silent for too long, or a periodic survey is due."""
        self._search.tick(now)
        self._decide(self._surveys.tick(now), now)
        if self._query_at is not None and now >= self._query_at:
            self._query_at = now + self._query_s
            self.look(now)
        self._settle(now)

    def next_deadline(self) -> float | None:
        """When `tick` is due."""
        return earliest((self._search.next_deadline(), self._surveys.next_deadline(), self._query_at))

    def take_effects(self) -> list[Effect]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects

    # -- answers from caches

    def _recovered(self, batches: Iterable[Batch], now: float) -> None:
        for batch in batches:
            series = (batch.topic, batch.source)
            track = self._series.get(series)
            if track is not None and batch.source != NO_SOURCE:
                self._take(series, track, batch.delivered(RECOVERED), now)

    def _settle(self, now: float) -> None:
        """Perform the effects of the search."""
        while True:
            found = self._search.take_effects()
            if not found:
                return
            for effect in found:
                if isinstance(effect, Missing):
                    self._lose(effect, now)
                else:
                    self.questions += 1
                    self._effects.append(effect)

    def _lose(self, missing: Missing, now: float) -> None:
        track = self._series[missing.series]
        track.lose(missing.start, missing.stop)
        self._follow(missing.series, track, now)

    # -- surveys

    def _survey(self, now: float) -> None:
        for cache, number in self._surveys.ask(self.caches, now):
            self.questions += 1
            self._effects.append(SurveyCache(cache, number, self._surveys.age_s))

    def _decide(self, spans: dict[Series, tuple[int, int]], now: float) -> None:
        """The caches have said where these series start and end."""
        for series, (first, known) in sorted(spans.items()):
            track = self._series.get(series)
            if track is None:
                tentative = first if self._surveys.history is None else 0
                track = self._series[series] = HeldSeries(first, first, tentative=tentative)
            elif not track.is_open:
                known = max(known, track.known)
                track.start_at(first)
            if known > track.known:
                self._want(series, track, track.known, known, now)
                track.extend(known)
            self._follow(series, track, now)
        if not self._surveys.is_done:
            return
        if self._surveys.is_wanted_again:
            self._survey(now)
        else:
            self._open_all(now)

    def _open_all(self, now: float) -> None:
        """No cache knows more about the remaining series: they start with the held events."""
        for series, track in list(self._series.items()):
            if not track.is_open:
                track.start_at_held()
                self._want(series, track, track.next, track.known, now)
                self._follow(series, track, now)


_: type[Machine[Input, Effect]] = Recovery
