"""The node as a cache, and its access to other caches: publishers, caches in clients, further nodes.

Recovery requests are answered from the journal first. Events that the journal lacks are searched for, nearest first:
with the connections that offered to hold them, then at the nodes that the configuration names.
"""

from __future__ import annotations

import asyncio
from typing import Final

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.cache_requests import CacheRequests
from reknit.connection.remote_cache import RemoteCache
from reknit.errors import InvalidTopic, MalformedFrame
from reknit.node.core.core import Core
from reknit.node.peers.peers import Peers, PeerState
from reknit.node.recovery.aligned import AlignedEvents
from reknit.node.recovery.keepers import JournalKeeper, Keepers
from reknit.node.recovery.loss_recorder import LossRecorder
from reknit.node.recovery.searches import PeerSearch, PeerSurvey, send_spans
from reknit.node.recovery.storage_acks import StoredEvents
from reknit.outcome import CODE_OF, Code, Reason
from reknit.protocol.machine import Peer
from reknit.protocol.publish.admission import Refusal
from reknit.protocol.publish.intake import RefusedBatch
from reknit.protocol.recovery.cache import answer, total
from reknit.protocol.recovery.search import AskCache, SearchSettings
from reknit.seqset import SeqSet
from reknit.topic import Pattern
from reknit.wire.codec import Frames, encode
from reknit.wire.messages import Settle, Subscribe
from reknit.wire.recovery import Heartbeat, Offer, Recover, Recovered, Require, Survey, Surveyed

OFFERS_MAX = 65_536

CacheMessage = Recover | Survey | Heartbeat | Offer | Require | Recovered | Surveyed

SUBSCRIBER_REASONS: Final = (Reason.REJECTED, Reason.ATTEMPTS_EXHAUSTED, Reason.EXPIRED)
"""Why a subscriber may give up an event that it recovered."""


class NodeCaches:
    """Everything about recovery that a node does for its peers; `node.caches`."""

    def __init__(
        self, *, config: Config, node_name: str, core: Core, peers: Peers, losses: LossRecorder
    ) -> None:
        self._config = config
        self._node_name = node_name
        self._core = core
        self._peers = peers
        self._losses = losses
        self.aligned = AlignedEvents(core.journal, config)
        self.keeper = Keepers([JournalKeeper(core.journal), self.aligned])
        self._offers: dict[int, dict[Offer, Pattern]] = {}
        self._requests: dict[int, CacheRequests] = {}
        self._far = {url: self._cache_at(url) for url in config.recovery.caches}
        self._searches: set[PeerSearch | PeerSurvey] = set()
        self._beats: dict[tuple[str, bytes], Heartbeat] = {}
        self._stored = StoredEvents(ledger=core.journal.ledger, peers=peers)
        self.questions = 0
        """How many recovery requests came: none while nothing is missed."""

    def add(self, url: str) -> None:
        """Search at this node, too."""
        if url not in self._far:
            self._far[url] = self._cache_at(url)

    def _cache_at(self, url: str) -> RemoteCache:
        return RemoteCache(url, self._node_name, self._config, self._config.security.token)

    async def close(self) -> None:
        """Give up all searches, and disconnect from further nodes."""
        for search in list(self._searches):
            search.end()
        await asyncio.gather(*(far.close() for far in self._far.values()))
        await self.aligned.close()

    # -- from peers

    def take(self, message: CacheMessage, peer: PeerState) -> None:
        """A message about recovery came from a peer."""
        match message:
            case Recovered() | Surveyed():
                requests = self._requests.get(peer.id)
                if requests is not None:
                    requests.take(message)
            case Offer():
                self._take_offer(message, peer)
            case Heartbeat():
                self._beats[message.topic, message.source] = message
                self.durable()
            case Require():
                self._stored.require(message, peer)
            case Recover():
                self.questions += 1
                self._recover(message, peer)
            case Survey():
                self.questions += 1
                self._survey(message, peer)

    def take_frames(self, frames: Frames, peer: PeerState) -> Frames | None:
        """Take the batches that a peer's answer announced; returns the rest, which is published."""
        requests = self._requests.get(peer.id)
        return frames if requests is None else requests.take_frames(frames)

    def watch(self, message: Subscribe | Settle, peer: PeerState) -> None:
        """A peer subscribes or settles: caches have stored accepted events, and a new subscriber is told its losses."""
        if isinstance(message, Subscribe):
            self._losses.subscribing(message, peer.id)
        elif message.rejected:
            self._write_dead_letters(message, peer)
        self._stored.watch(message, peer)

    def _write_dead_letters(self, message: Settle, peer: PeerState) -> None:
        """A subscriber gave up events that it recovered, here or elsewhere: they become dead letters."""
        core, now = self._core, asyncio.get_running_loop().time()
        queue = core.dispatch.queues.get((peer.id, message.sub))
        for one in message.rejected:
            try:
                batch, reason = Batch.parse(one.data), _reason(one.reason)
                code = Code(one.code or CODE_OF[reason])
            except (MalformedFrame, ValueError) as error:
                peer.dismiss(Code.INVALID_ARGUMENT, str(error))
                return
            is_theirs = queue is not None and queue.pattern.matches(batch.topic)
            if is_theirs and batch.topic != core.dead_letters.topic:
                problem = Refusal(code, one.text or "rejected by the subscriber", reason)
                core.stage(RefusedBatch(peer.id, batch, problem, one.attempts), now)

    def left(self, peer: PeerState) -> None:
        """A peer's connection is gone."""
        self._offers.pop(peer.id, None)
        self._losses.left(peer.id)
        self._stored.left(peer.id)
        requests = self._requests.pop(peer.id, None)
        if requests is not None:
            requests.lost()
        for search in [one for one in self._searches if one.peer is peer]:
            search.end()

    def durable(self) -> None:
        """More is durable: pass on heartbeats, but not before the events that they announce can be delivered."""
        self._losses.durable()
        journal = self._core.journal
        if not self._beats or journal.staged_end > journal.end:
            return
        beats, self._beats = self._beats, {}
        for queue in self._core.dispatch.queues.values():
            peer = self._peers.get(queue.peer)
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
            self._requests.setdefault(peer.id, CacheRequests())

    # -- answers

    def _recover(self, request: Recover, peer: PeerState) -> None:
        bytes_max = min(request.bytes_max, self._config.recovery.ask_bytes_max)
        bounded = Recover(request.id, request.topic, request.source, request.ranges, bytes_max)
        batches, covered = answer(self.keeper, bounded)
        have = SeqSet.from_ranges((batch.first, batch.stop) for batch in batches)
        rest = [gap for bounds in covered for gap in have.missing(*bounds)]
        others = self._others(Pattern(request.topic), request.source, peer) if request.deep and rest else []
        said = have.ranges() if others else covered
        head = Recovered(request.id, total(batches), said, is_last=not others)
        peer.send_buffers([encode(head), *(batch.data for batch in batches)])
        if others:
            search = PeerSearch(
                request, peer, others, asking=self._asking, ask=self._ask, on_done=self._searches.discard
            )
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
            survey = PeerSurvey(
                request,
                peer,
                others,
                timeout_s=self._asking.timeout_s,
                ask=self._ask_survey,
                on_done=self._searches.discard,
            )
            self._searches.add(survey)
            survey.begin()

    def _others(self, pattern: Pattern, source: bytes, peer: PeerState) -> list[Peer]:
        """The other caches that may hold events of a pattern (and source), nearest first, without the peer itself."""
        near: list[Peer] = [
            id_
            for id_, offers in self._offers.items()
            if id_ != peer.id and any(_serves(offer, held, pattern, source) for offer, held in offers.items())
        ]
        return [*near, *self._far]

    def _ask(self, who: PeerSearch, effect: AskCache) -> None:
        """Request ranges over a connection or from a further node."""
        number, series, ranges, bytes_max = effect.number, effect.series, effect.ranges, effect.bytes_max
        if isinstance(effect.cache, str):
            self._far[effect.cache].recover(who, number, series, ranges, bytes_max)
        elif (peer := self._peers.get(effect.cache)) is not None:
            requests = self._requests[peer.id]
            peer.send(requests.recover(who, peer.id, number, series, ranges, bytes_max, deep=False))
        else:
            asyncio.get_running_loop().call_soon(who.unreachable, effect.cache)

    def _ask_survey(self, who: PeerSurvey, cache: Peer, request: Survey) -> None:
        """Ask a peer or a further node which events it holds."""
        if isinstance(cache, str):
            self._far[cache].survey(who, 0, request.pattern, request.age_s)
        elif (peer := self._peers.get(cache)) is not None:
            survey = self._requests[peer.id].survey(who, peer.id, 0, request.pattern, request.age_s, False)
            peer.send(survey)
        else:
            who.unreachable(cache)

    @property
    def _asking(self) -> SearchSettings:
        """Further caches get half of the peer's timeout, so that the peer is answered in time."""
        settings = self._config.recovery
        return SearchSettings(settings.ask_timeout_s / 2, settings.ask_timeout_s / 2, settings.ask_bytes_max)


def _reason(text: str) -> Reason:
    """Why a subscriber gave up events. Raises ValueError."""
    if text not in SUBSCRIBER_REASONS:
        raise ValueError(f"{text!r} is not a reason that a subscriber may give for a dead letter")
    return Reason(text)


def _serves(offer: Offer, held: Pattern, pattern: Pattern, source: bytes) -> bool:
    return (not source or offer.source in (b"", source)) and held.intersects(pattern)
