"""The node as a cache, and the way to caches behind it: publishers, caches in clients, further nodes.

What is asked for is answered from the journal first. What the journal lacks is searched for, nearest first: with the
connections that offered to hold it, then at the nodes that the configuration names.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reknit.batch import Batch
from reknit.client.cache import FarCache, bounds_of
from reknit.client.inquiries import Inquiries
from reknit.errors import Gone, InvalidTopic, MalformedFrame
from reknit.ledger import Stream
from reknit.node.peers import PeerState
from reknit.node.skips import Skips
from reknit.outcome import CODE_OF, Code, End, Outcome, Reason
from reknit.protocol import alignment
from reknit.protocol.cache import Cache, Keeper, answer, total
from reknit.protocol.codec import Frames, encode
from reknit.protocol.intake import Problem, Refused
from reknit.protocol.machine import Peer
from reknit.protocol.messages import (
    Heartbeat,
    Offer,
    Recover,
    Recovered,
    Require,
    Settle,
    Span,
    Stored,
    Subscribe,
    Survey,
    Surveyed,
)
from reknit.protocol.recovery_search import AskCache, Asking, Search
from reknit.seqset import Range, SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

SPANS_MAX = 4096
"""Rows in one message of a survey's answer."""
OFFERS_MAX = 65_536
HOT_S = 60.0
"""What changed within so long goes into an alignment's first message."""
HOT_RUNS_MAX = 8

Question = Recover | Survey | Heartbeat | Offer | Require | Recovered | Surveyed


class JournalKeeper:
    """A journal as a cache: it survives restarts, and retention bounds it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """What is held of `[start, stop)`, cut to it, in seq order."""
        found: list[Batch] = []
        while bytes_max > 0 and start < stop:
            # It gives as many as fit. What does not fit is asked for until the limit is passed: less means no more.
            entries = self._journal.find(topic, source, start, stop, bytes_max)
            if not entries:
                break
            for entry in entries:
                bytes_max -= entry.head.length
                try:
                    found.append(Batch(entry.head, self._journal.fetch(entry)).cut(start, stop))
                except Gone:
                    continue
            start = max(start, entries[-1].head.stop)
        return found

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """What is held of every stream that matches."""
        oldest_us = time.time_ns() // 1000 - int(age_s * 1e6) if age_s else 0
        spans: list[Span] = []
        for (topic, source), seqs in sorted(self._journal.ledger.published.items()):
            if seqs and pattern.matches(topic):
                first = self._first(topic, source, seqs.last + 1, oldest_us)
                spans.append(
                    Span(topic, source, seqs.overlap(min(first, seqs.last + 1), seqs.last + 1), seqs.last)
                )
        return spans

    def _first(self, topic: str, source: bytes, stop: int, oldest_us: int) -> int:
        first = self._journal.first_held(topic, source)
        if oldest_us and first < stop:
            for entry in reversed(self._journal.find(topic, source, first, stop)):
                if entry.head.time_us < oldest_us:
                    return entry.head.stop
        return first


class Keepers:
    """Several caches as one: what the first lacks is taken from the next."""

    def __init__(self, keepers: Sequence[Keeper]) -> None:
        self._keepers = keepers

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """What is held of `[start, stop)`, cut to it, in seq order."""
        found = self._keepers[0].find(topic, source, start, stop, bytes_max)
        if total(found) >= bytes_max or (found and found[-1].stop - found[0].first == stop - start):
            return found  # it may hold more of it: that is asked for next
        for keeper in self._keepers[1:]:
            have = SeqSet.from_ranges((batch.first, batch.stop) for batch in found)
            for low, high in have.missing(start, stop):
                found += keeper.find(topic, source, low, high, bytes_max)
        return sorted(found, key=lambda batch: batch.first)

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """What is held of every stream that matches, by any."""
        spans: dict[Stream, tuple[SeqSet, int]] = {}
        for keeper in self._keepers:
            for span in keeper.survey(pattern, age_s):
                stream = (span.topic, span.source)
                seqs, last = spans.get(stream, (SeqSet(), 0))
                spans[stream] = (seqs.union(SeqSet.from_ranges(span.ranges)), max(last, span.last))
        return [Span(*stream, seqs.ranges(), last) for stream, (seqs, last) in sorted(spans.items())]


class Caches:
    """Everything about recovery that a node does for its peers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.extra = Cache(Pattern("**"), bounds_of(node.config))
        """Events older than what the journal goes on from: brought by an alignment, held in memory."""
        self.keeper = Keepers([JournalKeeper(node.journal), self.extra])
        self._offers: dict[int, dict[Offer, Pattern]] = {}
        self._inquiries: dict[int, Inquiries] = {}
        self._far = {url: FarCache(url, node.name, node.config) for url in node.config.recovery.caches}
        self._searches: set[_Search | _Survey] = set()
        self._beats: dict[tuple[str, bytes], Heartbeat] = {}
        self._replies = PutReplies(node)
        self.skips = Skips(node)
        self.questions = 0
        """How many questions came: none in stable times."""

    def add(self, url: str) -> None:
        """Ask this node too."""
        if url not in self._far:
            self._far[url] = FarCache(url, self._node.name, self._node.config)

    async def close(self) -> None:
        for search in list(self._searches):
            search.end()
        await asyncio.gather(*(far.close() for far in self._far.values()))

    # -- alignment

    def holdings(self, pattern: Pattern) -> tuple[dict[Stream, SeqSet], dict[Stream, int]]:
        """What is held here, and below which seq it was removed."""
        held, floors = self.extra.holdings(pattern)
        journal = self._node.journal
        for stream, seqs in journal.ledger.published.items():
            if seqs and pattern.matches(stream[0]):
                floors[stream] = journal.first_held(*stream)
                kept = seqs.copy()
                kept.discard(0, floors[stream])
                held[stream] = kept.union(held.get(stream, SeqSet()))
        return held, floors

    def compare(self, args: dict[str, Any]) -> alignment.Input:
        """One level of what is held here, for another node that compares it with what it holds."""
        pattern = Pattern(str(args["pattern"]))
        held, _ = self.holdings(pattern)
        match args["level"]:
            case "digest":
                return alignment.digest(held, pattern.text, self._hot())
            case "buckets":
                return alignment.buckets(held)
            case _:
                return alignment.rows(held, [int(number) for number in args["buckets"]])

    def _hot(self) -> list[Stream]:
        """The streams that changed lately, the latest first."""
        journal = self._node.journal
        position = journal.position_at(time.time_ns() // 1000 - int(HOT_S * 1e6))
        stop = journal.end
        hot: dict[Stream, bool] = {}
        for _ in range(HOT_RUNS_MAX):
            if position >= stop:
                break
            run = journal.read(max(position, journal.start), stop)
            for entry in run.entries:
                hot.pop((entry.head.topic, entry.head.source), None)
                hot[entry.head.topic, entry.head.source] = True
            position = run.next_position
        return list(reversed(hot))

    # -- from peers

    def take(self, message: Question, peer: PeerState) -> None:
        """Something about recovery came from a peer."""
        match message:
            case Recovered() | Surveyed():
                inquiries = self._inquiries.get(peer.id)
                if inquiries is not None:
                    inquiries.take(message)
            case Offer():
                self._take_offer(message, peer)
            case Heartbeat():
                self._beats[message.topic, message.source] = message
                self.kept()
            case Require():
                self._replies.require(message, peer)
            case Recover():
                self.questions += 1
                self._recover(message, peer)
            case Survey():
                self.questions += 1
                self._survey(message, peer)

    def take_frames(self, frames: Frames, peer: PeerState) -> Frames | None:
        """Take the batches that a peer's answer announced; gives the rest, which is published."""
        inquiries = self._inquiries.get(peer.id)
        return frames if inquiries is None else inquiries.take_frames(frames)

    def watch(self, message: Subscribe | Settle, peer: PeerState) -> None:
        """Caches that subscribe tell by their outcomes what they stored; who subscribes is told what is lost."""
        if isinstance(message, Subscribe):
            self.skips.watch(message, peer.id)
        elif message.rejected:
            self._bury(message, peer)
        self._replies.watch(message, peer)

    def _bury(self, message: Settle, peer: PeerState) -> None:
        """A subscriber rejects events that it recovered, from here or elsewhere: they become dead letters."""
        core, now = self._node.core, asyncio.get_running_loop().time()
        queue = self._node.dispatch.queues.get((peer.id, message.sub))
        for one in message.rejected:
            try:
                batch, code = Batch.parse(one.data), Code(one.code or CODE_OF[Reason.REJECTED])
            except (MalformedFrame, ValueError) as error:
                peer.dismiss(Code.INVALID_ARGUMENT, str(error))
                return
            is_theirs = queue is not None and queue.pattern.matches(batch.topic)
            if is_theirs and batch.topic != core.dead_letters.topic:
                problem = Problem(code, one.text or "rejected by the subscriber", Reason.REJECTED)
                core.keep(Refused(peer.id, batch, problem, one.attempts), now)

    def left(self, peer: PeerState) -> None:
        """A peer's connection is gone."""
        self._offers.pop(peer.id, None)
        self.skips.left(peer.id)
        self._replies.left(peer.id)
        inquiries = self._inquiries.pop(peer.id, None)
        if inquiries is not None:
            inquiries.lost()
        for search in [one for one in self._searches if one.peer is peer]:
            search.end()

    def kept(self) -> None:
        """Pass on heartbeats, not before the events that they tell of could be handed out."""
        self.skips.kept()
        journal = self._node.journal
        if not self._beats or journal.staged_end > journal.end:
            return
        beats, self._beats = self._beats, {}
        for queue in self._node.dispatch.queues.values():
            peer = self._node.peers.get(queue.peer)
            if queue.is_live and not queue.is_durable and peer is not None:
                for beat in beats.values():
                    if queue.pattern.matches(beat.topic):
                        peer.send(Heartbeat(beat.topic, beat.source, beat.seq, queue.sub))

    def _take_offer(self, offer: Offer, peer: PeerState) -> None:
        try:
            pattern = Pattern(offer.pattern)
        except InvalidTopic as error:
            peer.dismiss(Code.INVALID_ARGUMENT, str(error))
            return
        offers = self._offers.setdefault(peer.id, {})
        if not offer.is_on:
            offers.pop(Offer(offer.pattern, offer.source), None)
        elif len(offers) < OFFERS_MAX:
            offers[offer] = pattern
            self._inquiries.setdefault(peer.id, Inquiries())

    # -- answers

    def _recover(self, request: Recover, peer: PeerState) -> None:
        bytes_max = min(request.bytes_max, self._node.config.recovery.ask_bytes_max)
        bounded = Recover(request.id, request.topic, request.source, request.ranges, bytes_max)
        batches, covered = answer(self.keeper, bounded)
        have = SeqSet.from_ranges((batch.first, batch.stop) for batch in batches)
        rest = [gap for bounds in covered for gap in have.missing(*bounds)]
        others = self._others(Pattern(request.topic), request.source, peer) if request.deep and rest else []
        said = have.ranges() if others else covered
        head = Recovered(request.id, total(batches), said, is_last=not others)
        peer.send_buffers([encode(head), *(batch.data for batch in batches)])
        if others:
            search = _Search(self, request, peer, others)
            self._searches.add(search)
            search.begin(rest)

    def _survey(self, request: Survey, peer: PeerState) -> None:
        try:
            pattern = Pattern(request.pattern)
        except InvalidTopic as error:
            peer.dismiss(Code.INVALID_ARGUMENT, str(error))
            return
        others = self._others(pattern, b"", peer) if request.deep else []
        send_spans(peer, request.id, self.keeper.survey(pattern, request.age_s), is_last=not others)
        if others:
            survey = _Survey(self, request, peer, others)
            self._searches.add(survey)
            survey.begin()

    def _others(self, pattern: Pattern, source: bytes, peer: PeerState) -> list[Peer]:
        """Who else may hold something of a pattern (and source), nearest first; the asker himself is not asked."""
        near: list[Peer] = [
            id_
            for id_, offers in self._offers.items()
            if id_ != peer.id and any(_serves(offer, held, pattern, source) for offer, held in offers.items())
        ]
        return [*near, *self._far]

    def ask(self, who: _Search, effect: AskCache) -> None:
        """Ask a connection or a further node for ranges."""
        asked = (effect.number, effect.stream, effect.ranges, effect.bytes_max)
        if isinstance(effect.cache, str):
            self._far[effect.cache].recover(who, *asked)
        elif (peer := self._node.peers.get(effect.cache)) is not None:
            peer.send(self._inquiries[peer.id].recover(who, peer.id, *asked, deep=False))
        else:
            asyncio.get_running_loop().call_soon(who.unreachable, effect.cache)

    def ask_survey(self, who: _Survey, cache: Peer, request: Survey) -> None:
        """Ask a connection or a further node what it holds."""
        if isinstance(cache, str):
            self._far[cache].survey(who, 0, request.pattern, request.age_s)
        elif (peer := self._node.peers.get(cache)) is not None:
            inquiry = self._inquiries[peer.id].survey(who, peer.id, 0, request.pattern, request.age_s, False)
            peer.send(inquiry)
        else:
            who.unreachable(cache)

    @property
    def asking(self) -> Asking:
        """Further caches get half of the time that the asker gives us, so that he hears from us in time."""
        settings = self._node.config.recovery
        return Asking(settings.ask_timeout_s / 2, settings.ask_timeout_s / 2, settings.ask_bytes_max)

    def done(self, search: _Search | _Survey) -> None:
        self._searches.discard(search)


def _serves(offer: Offer, held: Pattern, pattern: Pattern, source: bytes) -> bool:
    return (not source or offer.source in (b"", source)) and held.intersects(pattern)


def send_spans(peer: PeerState, id_: int, spans: Sequence[Span], is_last: bool) -> None:
    """Answer a survey, in as many messages as it takes."""
    for at in range(0, max(len(spans), 1), SPANS_MAX):
        is_end = is_last and at + SPANS_MAX >= len(spans)
        peer.send(Surveyed(id_, list(spans[at : at + SPANS_MAX]), is_end))


class _Search:
    """One peer's question that the journal could not answer fully, on its way through other caches."""

    def __init__(self, caches: Caches, request: Recover, peer: PeerState, others: Sequence[Peer]) -> None:
        self.peer = peer
        self._caches = caches
        self._request = request
        self._stream: Stream = (request.topic, request.source)
        self._search = Search(others, caches.asking)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._missing = SeqSet()
        self._is_done = False

    def begin(self, ranges: list[Range]) -> None:
        for start, stop in ranges:
            self._search.want(self._stream, start, stop, self._loop.time())
        self._run()

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """Pass on at once what is still wanted."""
        self._search.heard(cache, self._loop.time())
        wanted = self._search.wanted(self._stream)
        parts = [
            batch.cut(*bounds)
            for batch in batches
            if (batch.topic, batch.source) == self._stream
            for bounds in wanted.overlap(batch.first, batch.stop)
        ]
        if parts and not self._is_done:
            covered = SeqSet.from_ranges((part.first, part.stop) for part in parts).ranges()
            head = Recovered(self._request.id, total(parts), covered, is_last=False)
            self.peer.send_buffers([encode(head), *(part.data for part in parts)])
        for part in parts:
            self._search.found(self._stream, part.first, part.stop)
        self._run()

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        self._search.answered(number, covered, is_last, self._loop.time())
        self._run()

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """Not asked for here."""

    def unreachable(self, cache: Peer) -> None:
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
                self._caches.ask(self, effect)
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
        """Nobody waits for this any more."""
        self._is_done = True
        if self._timer is not None:
            self._timer.cancel()
        self._caches.done(self)


class _Survey:
    """One peer's question what there is, on its way through other caches."""

    def __init__(self, caches: Caches, request: Survey, peer: PeerState, others: Sequence[Peer]) -> None:
        self.peer = peer
        self._caches = caches
        self._request = request
        self._pending = set(others)
        self._timer = asyncio.get_running_loop().call_later(caches.asking.timeout_s, self._finish)

    def begin(self) -> None:
        for cache in list(self._pending):
            self._caches.ask_survey(self, cache, self._request)

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        if cache in self._pending:
            send_spans(self.peer, self._request.id, spans, is_last=False)
            if is_last:
                self.unreachable(cache)

    def unreachable(self, cache: Peer) -> None:
        if cache in self._pending:
            self._pending.discard(cache)
            if not self._pending:
                self._finish()

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """Not asked for here."""

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """Not asked for here."""

    def _finish(self) -> None:
        self.end()
        self.peer.send(Surveyed(self._request.id, []))

    def end(self) -> None:
        """Nobody waits for this any more."""
        self._pending.clear()
        self._timer.cancel()
        self._caches.done(self)


class PutReplies:
    """Who stored what: a cache that subscribes here says so by its outcomes, publishers that asked are told."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._publishers: dict[bytes, tuple[int, str]] = {}
        """By source: the connection of the publisher that wants replies, and its topic."""
        self._caches: dict[tuple[int, int], str] = {}
        self._stored: dict[tuple[str, Stream], SeqSet] = {}

    def require(self, message: Require, peer: PeerState) -> None:
        """A publisher wants to hear of every cache that stores its events; what is stored is told at once."""
        self._publishers[message.source] = (peer.id, message.topic)
        for key, name in self._caches.items():
            self._tell(key, name, (message.topic, message.source))

    def watch(self, message: Subscribe | Settle, peer: PeerState) -> None:
        key = (peer.id, message.sub)
        if isinstance(message, Subscribe):
            if message.is_cache:
                self._caches[key] = message.name or f"{peer.name}/{message.sub}"
            return
        name = self._caches.get(key)
        if name is None:
            return
        for row in message.rows:
            if row.outcome == Outcome.ACCEPTED and row.start < row.stop:
                stream = (row.topic, row.source)
                self._stored.setdefault((name, stream), SeqSet()).add(row.start, row.stop)
                if row.source in self._publishers:
                    self._tell(key, name, stream)

    def _tell(self, key: tuple[int, int], name: str, stream: Stream) -> None:
        peer_id, topic = self._publishers[stream[1]]
        peer = self._node.peers.get(peer_id)
        stored = self._stored.get((name, stream), SeqSet())
        account = self._node.journal.ledger.accounts.get(name)
        if account is not None:
            stored = stored.union(account.ends.get(stream, {}).get(End.ACCEPTED, SeqSet()))
        if peer is not None and topic == stream[0] and stored:
            peer.send(Stored(stream[1], stored.first_missing(stored.first) - 1, name))

    def left(self, peer_id: int) -> None:
        """A connection is gone: its caches may come back without what they stored, unless they last."""
        self._publishers = {source: row for source, row in self._publishers.items() if row[0] != peer_id}
        for key in [key for key in self._caches if key[0] == peer_id]:
            name = self._caches.pop(key)
            self._stored = {row: seqs for row, seqs in self._stored.items() if row[0] != name}
