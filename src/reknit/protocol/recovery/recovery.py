"""The subscriber's way from what arrives to what is released: every event once, in seq order, gaps filled from caches.

All the burden is here: while nothing is missing, nothing is said. A gap holds the later events of its source and is
searched for in the caches, nearest first; what nobody has is reported once, with its exact range, in its place.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from reknit.batch import Batch
from reknit.delivery import RECOVERED
from reknit.ledger import Stream
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache import NO_SOURCE
from reknit.protocol.recovery.history import History, Surveys
from reknit.protocol.recovery.search import AskCache, Asking, Missing, Search
from reknit.seqset import Range, SeqSet
from reknit.wire.recovery import Heartbeat, Span


class Found(msgspec.Struct, frozen=True):
    """Batches came from a cache."""

    batches: list[Batch]


class Answered(msgspec.Struct, frozen=True):
    """A cache has said all about `covered`; its batches came before."""

    number: int
    covered: Sequence[Range]
    is_last: bool = True


class Told(msgspec.Struct, frozen=True):
    """A cache said what it holds; more follows unless this is the last."""

    number: int
    spans: Sequence[Span]
    is_last: bool = True


class Reachable(msgspec.Struct, frozen=True):
    """The cache can be asked (again)."""


class Unreachable(msgspec.Struct, frozen=True):
    """The cache can't be asked for now."""


class Release(msgspec.Struct, frozen=True):
    """These follow on: hand them out."""

    batches: list[Batch]


class Dropped(msgspec.Struct, frozen=True):
    """So many bytes that were held behind a gap had to go; they are searched for later."""

    size: int


class Gap(msgspec.Struct, frozen=True):
    """Events `[start, stop)` are lost: nobody has them."""

    stream: Stream
    start: int
    stop: int


class SurveyCache(msgspec.Struct, frozen=True):
    """Ask a cache what it holds; the answer comes back under this number."""

    cache: Peer
    number: int
    age_s: float


Input = Found | Answered | Told | Heartbeat | Reachable | Unreachable
Effect = Release | Dropped | Gap | AskCache | SurveyCache


class Holding(msgspec.Struct, frozen=True):
    """How much is held behind gaps."""

    events_max: int = 1_000_000
    """Of one source."""
    bytes_max: int = 64 << 20
    """Of all."""


@dataclass(slots=True)
class _Track:
    """One stream: released before `next`, held from there on, known to exist before `known`."""

    next: int
    known: int
    held: SeqSet = field(default_factory=SeqSet)
    batches: list[tuple[int, Batch]] = field(default_factory=list)
    """A heap by seq."""
    lost: SeqSet = field(default_factory=SeqSet)
    closed_from: int = 0
    """Beyond this seq nothing is held until the gap closes: there was no room. 0: there is."""
    is_open: bool = True
    """Whether it is decided where to begin: not before the caches have said what history there is."""
    tentative: int = 0
    """Where it begins if nothing older comes the usual way: what caches said may overtake the events themselves."""


class Recovery:
    """All streams of one subscription.

    >>> recovery = Recovery(caches=["edge"])
    >>> one, two, three = (Batch.build(b"s" * 16, "plant/a", seq, [b"x"], 0) for seq in (1, 2, 3))
    >>> recovery.arrive(one, now=0.0), recovery.arrive(three, now=0.1)
    (True, False)
    >>> [ask] = recovery.take_effects()
    >>> ask.cache, ask.ranges
    ('edge', [(2, 3)])
    >>> recovery.receive(Found([two]), "edge", now=0.2)
    >>> [batch.first for batch in recovery.take_effects()[0].batches]
    [2, 3]
    """

    def __init__(
        self,
        caches: Sequence[Peer] = (),
        asking: Asking | None = None,
        holding: Holding | None = None,
        history: History | None = None,
        query_s: float = 0.0,
        after: Mapping[bytes, int] | None = None,
    ) -> None:
        asking = asking or Asking()
        self._search = Search(caches, asking)
        self._surveys = Surveys(history, asking.timeout_s)
        self._holding = holding or Holding()
        self._query_s = query_s
        self._query_at: float | None = None
        self._after = dict(after or {})
        """Seqs up to which a source was seen before this subscription."""
        self._tracks: dict[Stream, _Track] = {}
        self._held_bytes = 0
        self._effects: list[Effect] = []
        self.questions = 0
        """How often a cache was asked for anything. In stable times it stays 0."""

    @property
    def caches(self) -> Sequence[Peer]:
        return self._search.caches

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def is_searching(self) -> bool:
        """Whether something is missing that may still be found."""
        return bool(self._search)

    def next_seqs(self) -> dict[Stream, int]:
        """The first seq of every stream that was not released."""
        return {stream: track.next for stream, track in self._tracks.items() if track.is_open}

    def start(self, now: float) -> None:
        """The subscription stands. With history or periodic queries the caches are asked what there is."""
        if self._query_s:
            self._query_at = now + self._query_s
        if self.caches and (self._surveys.history is not None or self._query_s):
            self._survey(now)

    # -- live events

    def arrive(self, batch: Batch, now: float) -> bool:
        """A batch came the usual way. True: hand it out as it is, nothing else changed; otherwise see the effects."""
        stream = (batch.topic, batch.source)
        track = self._tracks.get(stream)
        if track is None:
            if batch.source == NO_SOURCE:
                return True  # "Samples received with no attached SourceInfo metadata are passed to the user."
            track = self._meet(stream, batch.first, now)
        if batch.first == track.next == track.known and track.is_open:
            track.next = track.known = batch.stop
            return True
        self._take(stream, track, batch, now)
        self._settle(now)
        return False

    def _meet(self, stream: Stream, first: int, now: float) -> _Track:
        """A new source. "The first sample received with a given source_id is also passed to the user.\""""
        begin = min(first, self._after.get(stream[1], first - 1) + 1)
        track = self._tracks[stream] = _Track(begin, begin)
        if first > 1 and self._wants_history() and begin == first:
            track.is_open = False
            self._survey(now)
        return track

    def _wants_history(self) -> bool:
        return self._surveys.history is not None and bool(self.caches)

    def _take(self, stream: Stream, track: _Track, batch: Batch, now: float) -> None:
        """Hold what is new of a batch, search for what is missing before it, and release what follows on."""
        if track.tentative == track.next and batch.first < track.next and batch.counted:
            track.next = track.known = batch.first
        if track.is_open and batch.first > track.known:
            self._want(stream, track, track.known, batch.first, now)
        self._hold(stream, track, batch)
        track.known = max(track.known, batch.stop)
        self._follow(stream, track, now)

    def _hold(self, stream: Stream, track: _Track, batch: Batch) -> None:
        low = max(batch.first, track.next) if track.is_open else batch.first
        high = min(batch.stop, track.closed_from) if track.closed_from else batch.stop
        size = 0
        missing = track.held.missing(low, high) if low < high else []
        for first, stop in [part for bounds in missing for part in track.lost.missing(*bounds)]:
            part = batch.cut(first, stop)
            track.held.add(first, stop)
            heapq.heappush(track.batches, (first, part))
            size += part.head.length
        self._held_bytes += size
        self._search.found(stream, batch.first, batch.stop)
        if batch.counted and size != batch.head.length:
            self._effects.append(Dropped(batch.head.length - size))

    def _want(self, stream: Stream, track: _Track, start: int, stop: int, now: float) -> None:
        """Search for what is missing of `[start, stop)`."""
        stop = min(stop, track.closed_from) if track.closed_from else stop
        missing = track.held.missing(start, stop) if start < stop else []
        if parts := [part for bounds in missing for part in track.lost.missing(*bounds)]:
            self._search.want_all(stream, parts, now)

    def _follow(self, stream: Stream, track: _Track, now: float) -> None:
        """Release what follows on; a loss is told where it is."""
        out: list[Batch] = []
        while track.is_open:
            if track.batches and track.batches[0][0] == track.next:
                batch = heapq.heappop(track.batches)[1]
                track.held.discard(batch.first, batch.stop)
                self._held_bytes -= batch.head.length
                track.next = batch.stop
                out.append(batch)
            elif track.next in track.lost:
                self._release(out)
                out = []
                self._tell_lost(stream, track)
            else:
                break
        self._release(out)
        if track.closed_from and (track.next >= track.closed_from or not track.batches):
            track.closed_from = 0
            self._want(stream, track, track.next, track.known, now)
        elif track.batches:
            self._make_room(track)

    def _tell_lost(self, stream: Stream, track: _Track) -> None:
        start, stop = track.next, track.lost.first_missing(track.next)
        track.lost.discard(start, stop)
        track.next = stop
        self._effects.append(Gap(stream, start, stop))

    def _make_room(self, track: _Track) -> None:
        """At the limit the newest go: they can be recovered like what is missing before them."""
        limit = self._holding
        if track.held.count <= limit.events_max and self._held_bytes <= limit.bytes_max:
            return
        track.batches.sort(key=_seq)
        size = 0
        while len(track.batches) > 1 and (
            track.held.count > limit.events_max * 3 // 4 or self._held_bytes > limit.bytes_max * 3 // 4
        ):
            first, batch = track.batches.pop()
            track.held.discard(first, batch.stop)
            track.closed_from = first
            self._held_bytes -= batch.head.length
            size += batch.head.length if batch.counted else 0
        if size:
            self._effects.append(Dropped(size))

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a cache, about a cache, or about a publisher."""
        match message:
            case Found(batches=batches):
                self._search.heard(peer, now)
                self._recovered(batches, now)
            case Answered(number=number, covered=covered, is_last=is_last):
                self._search.answered(number, covered, is_last, now)
            case Told(number=number, spans=spans, is_last=is_last):
                self._decide(self._surveys.told(number, peer, spans, is_last), now)
            case Heartbeat(topic=topic, source=source, seq=seq):
                self.note((topic, source), seq + 1, now)
            case Reachable():
                self._search.reachable(peer, now)
            case Unreachable():
                self._search.unreachable(peer, now)
                self._decide(self._surveys.unreachable(peer), now)
            case _:
                assert_never(message)
        self._settle(now)

    def note(self, stream: Stream, known: int, now: float) -> None:
        """Events before `known` exist: those that did not come are missing, the tail included."""
        track = self._tracks.get(stream)
        if track is None:
            self._tracks[stream] = track = _Track(known, known, tentative=known)
            if known > 1 and self._wants_history():
                track.is_open = False
                self._survey(now)
        elif known > track.known:
            if track.is_open:
                self._want(stream, track, track.known, known, now)
            track.known = known
        self._settle(now)

    def look(self, now: float) -> None:
        """Something happened that may have cost a tail: ask what there is."""
        if self.caches:
            self._survey(now)

    def miss(self, stream: Stream, start: int, stop: int, now: float) -> None:
        """`[start, stop)` will not come the usual way."""
        self._tracks.setdefault(stream, _Track(start, start))
        self.note(stream, stop, now)

    def pause(self, is_paused: bool) -> bool:
        """Whether there is no room for recovered events; True if there is some again: then `resume`."""
        was_paused, self._search.is_paused = self._search.is_paused, is_paused
        return was_paused and not is_paused

    def resume(self, now: float) -> None:
        """There is room again."""
        self._search.resume(now)
        self._settle(now)

    def tick(self, now: float) -> None:
        """Time passed: caches may have been silent, or a periodic query is due."""
        self._search.tick(now)
        self._decide(self._surveys.tick(now), now)
        if self._query_at is not None and now >= self._query_at:
            self._query_at = now + self._query_s
            self.look(now)
        self._settle(now)

    def next_deadline(self) -> float | None:
        """When `tick` has something to do."""
        due = (self._search.next_deadline(), self._surveys.next_deadline(), self._query_at)
        return min((at for at in due if at is not None), default=None)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- what caches say

    def _recovered(self, batches: Iterable[Batch], now: float) -> None:
        for batch in batches:
            stream = (batch.topic, batch.source)
            track = self._tracks.get(stream)
            if track is not None and batch.source != NO_SOURCE:
                self._take(stream, track, batch.delivered(RECOVERED), now)

    def _release(self, batches: list[Batch]) -> None:
        if batches:
            self._effects.append(Release(batches))

    def _settle(self, now: float) -> None:
        """Carry out what the search found out."""
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
        track = self._tracks[missing.stream]
        track.lost.add(missing.start, missing.stop)
        self._follow(missing.stream, track, now)

    # -- history, and what there is

    def _survey(self, now: float) -> None:
        for cache, number in self._surveys.ask(self.caches, now):
            self.questions += 1
            self._effects.append(SurveyCache(cache, number, self._surveys.age_s))

    def _decide(self, spans: dict[Stream, tuple[int, int]], now: float) -> None:
        """The caches have said from where to where there is something of these streams."""
        for stream, (first, known) in sorted(spans.items()):
            track = self._tracks.get(stream)
            if track is None:
                tentative = first if self._surveys.history is None else 0
                track = self._tracks[stream] = _Track(first, first, tentative=tentative)
            elif not track.is_open:
                track.next = min(first, track.held.first or track.known)
                track.is_open = True
                known = max(known, track.known)
                track.known = track.next
            if known > track.known:
                self._want(stream, track, track.known, known, now)
                track.known = known
            self._follow(stream, track, now)
        if not self._surveys.is_done:
            return
        if self._surveys.is_wanted_again:
            self._survey(now)
        else:
            self._open_all(now)

    def _open_all(self, now: float) -> None:
        """Nobody had more to say about these: they begin with what came."""
        for stream, track in list(self._tracks.items()):
            if not track.is_open:
                track.is_open = True
                track.next = track.held.first or track.known
                self._want(stream, track, track.next, track.known, now)
                self._follow(stream, track, now)


def _seq(entry: tuple[int, Batch]) -> int:
    return entry[0]
