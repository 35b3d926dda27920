"""The node as a cache, and the way to caches behind it: publishers, caches in clients, further nodes.

What is asked for is answered from the journal first. What the journal lacks is searched for, nearest first: with the
connections that offered to hold it, then at the nodes that the configuration names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from reknit.batch import Batch
from reknit.connection.cache_requests import CacheRequests
from reknit.connection.remote_cache import RemoteCache
from reknit.errors import InvalidTopic, MalformedFrame
from reknit.node.peers.peers import PeerState
from reknit.node.recovery.keepers import JournalKeeper, Keepers
from reknit.node.recovery.searches import PeerSearch, PeerSurvey, send_spans
from reknit.node.recovery.storage_acks import PutReplies
from reknit.node.replication.aligned import Aligned
from reknit.node.replication.loss_recorder import Skips
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

if TYPE_CHECKING:
    from reknit.node.node import Node

OFFERS_MAX = 65_536

Question = Recover | Survey | Heartbeat | Offer | Require | Recovered | Surveyed

TOLD: Final = (Reason.REJECTED, Reason.ATTEMPTS_EXHAUSTED, Reason.EXPIRED)
"""Why a subscriber may say that what it recovered is dead."""


class Caches:
    """Everything about recovery that a node does for its peers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.aligned = Aligned(node.journal, node.config)
        self.keeper = Keepers([JournalKeeper(node.journal), self.aligned])
        self._offers: dict[int, dict[Offer, Pattern]] = {}
        self._inquiries: dict[int, CacheRequests] = {}
        self._far = {url: self._way_to(url) for url in node.config.recovery.caches}
        self._searches: set[PeerSearch | PeerSurvey] = set()
        self._beats: dict[tuple[str, bytes], Heartbeat] = {}
        self._replies = PutReplies(node)
        self.skips = Skips(node)
        self.questions = 0
        """How many questions came: none in stable times."""

    def add(self, url: str) -> None:
        """Ask this node too."""
        if url not in self._far:
            self._far[url] = self._way_to(url)

    def _way_to(self, url: str) -> RemoteCache:
        config = self._node.config
        return RemoteCache(url, self._node.name, config, config.security.token)

    async def close(self) -> None:
        for search in list(self._searches):
            search.end()
        await asyncio.gather(*(far.close() for far in self._far.values()))
        await self.aligned.close()

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
        """A subscriber is done in vain with events that it recovered, here or elsewhere: they become dead letters."""
        core, now = self._node.core, asyncio.get_running_loop().time()
        queue = self._node.dispatch.queues.get((peer.id, message.sub))
        for one in message.rejected:
            try:
                batch, reason = Batch.parse(one.data), _told(one.reason)
                code = Code(one.code or CODE_OF[reason])
            except (MalformedFrame, ValueError) as error:
                peer.dismiss(Code.INVALID_ARGUMENT, str(error))
                return
            is_theirs = queue is not None and queue.pattern.matches(batch.topic)
            if is_theirs and batch.topic != core.dead_letters.topic:
                problem = Refusal(code, one.text or "rejected by the subscriber", reason)
                core.keep(RefusedBatch(peer.id, batch, problem, one.attempts), now)

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
            self._inquiries.setdefault(peer.id, CacheRequests())

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
            search = PeerSearch(self, request, peer, others)
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
            survey = PeerSurvey(self, request, peer, others)
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

    def ask(self, who: PeerSearch, effect: AskCache) -> None:
        """Ask a connection or a further node for ranges."""
        asked = (effect.number, effect.series, effect.ranges, effect.bytes_max)
        if isinstance(effect.cache, str):
            self._far[effect.cache].recover(who, *asked)
        elif (peer := self._node.peers.get(effect.cache)) is not None:
            peer.send(self._inquiries[peer.id].recover(who, peer.id, *asked, deep=False))
        else:
            asyncio.get_running_loop().call_soon(who.unreachable, effect.cache)

    def ask_survey(self, who: PeerSurvey, cache: Peer, request: Survey) -> None:
        """Ask a connection or a further node what it holds."""
        if isinstance(cache, str):
            self._far[cache].survey(who, 0, request.pattern, request.age_s)
        elif (peer := self._node.peers.get(cache)) is not None:
            inquiry = self._inquiries[peer.id].survey(who, peer.id, 0, request.pattern, request.age_s, False)
            peer.send(inquiry)
        else:
            who.unreachable(cache)

    @property
    def asking(self) -> SearchSettings:
        """Further caches get half of the time that the asker gives us, so that he hears from us in time."""
        settings = self._node.config.recovery
        return SearchSettings(settings.ask_timeout_s / 2, settings.ask_timeout_s / 2, settings.ask_bytes_max)

    def done(self, search: PeerSearch | PeerSurvey) -> None:
        self._searches.discard(search)


def _told(text: str) -> Reason:
    """Why a subscriber says that events are dead. Raises ValueError."""
    if text not in TOLD:
        raise ValueError(f"{text!r} is no reason for a dead letter that a subscriber may give")
    return Reason(text)


def _serves(offer: Offer, held: Pattern, pattern: Pattern, source: bytes) -> bool:
    return (not source or offer.source in (b"", source)) and held.intersects(pattern)
