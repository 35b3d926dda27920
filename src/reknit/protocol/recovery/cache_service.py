"""A node as a cache: answers the recovery requests of its peers, and asks other caches for what it lacks.

A request is answered from the node's own journals first. The rest is searched for, nearest first: with the peers that
offered to hold it, then at further nodes.

    Recover, Survey              LookUp, ListHeld
    LookedUp, Listed             SendFound, Send: the last reply; or, if something is missing, a search begins:
                                 Send (to a peer that offered), AskRemote, SurveyRemote
    Recovered, Surveyed          a peer's reply to a search: SendFound, Send, or the next cache is asked
    Remote…                      the same from a further node
    Offer                        a peer holds events, or no longer does
    PeerLeft                     its offers and requests are gone; the searches that waited for it go on without it
    tick                         caches that are silent are passed over

Replies that no search waits for come late, and are ignored. A pattern or topic that is not valid: Dismiss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from reknit.errors import InvalidTopic
from reknit.outcome import Code
from reknit.protocol.effects import Send
from reknit.protocol.machine import Machine, Peer, PeerLeft, earliest
from reknit.protocol.recovery.cache import total
from reknit.protocol.recovery.cache_inputs import (
    AskRemote,
    Dismiss,
    Effect,
    Input,
    Listed,
    ListHeld,
    LookedUp,
    LookUp,
    Remote,
    RemoteAnswered,
    RemoteFound,
    RemoteListed,
    RemoteUnreachable,
    SendFound,
    SurveyRemote,
)
from reknit.protocol.recovery.cache_requests import CacheRequests
from reknit.protocol.recovery.peer_searches import PeerSearch, PeerSurvey, spans_messages
from reknit.protocol.recovery.search import AskCache, SearchSettings
from reknit.seqset import SeqSet
from reknit.topic import Pattern
from reknit.wire.codec import Frames
from reknit.wire.recovery import Offer, Recover, Recovered, Survey, Surveyed

OFFERS_MAX: Final = 65_536
"""How many offers of one peer are remembered."""


class CacheService:
    """Recovery requests of all peers of one node. `settings` are those of the searches in other caches.

    >>> service = CacheService(SearchSettings())
    >>> service.receive(Recover(7, "plant/a", b"s" * 16, [(1, 9)], 1000), "reader", now=0.0)
    >>> [look_up] = service.take_effects()
    >>> service.receive(LookedUp(look_up.request, [], [(1, 9)]), "reader", now=0.0)
    >>> service.take_effects()[0].reply
    Recovered(id=7, size=0, covered=[(1, 9)], is_last=True)
    """

    def __init__(self, settings: SearchSettings) -> None:
        self.now = 0.0
        self.questions = 0
        """How many recovery requests came: none while nothing is missed."""
        self._settings = settings
        self._offers: dict[Peer, dict[Offer, Pattern]] = {}
        self._requests: dict[Peer, CacheRequests] = {}
        """The requests to each peer that offered to hold events."""
        self._remote: dict[str, None] = {}
        """The addresses of further nodes, in the order in which they are asked."""
        self._searches: dict[int, PeerSearch | PeerSurvey] = {}
        self._count = 0
        self.effects: list[Effect] = []
        """What `take_effects` returns next."""

    def add_remote(self, url: str) -> None:
        """Search at this node, too."""
        self._remote[url] = None

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a peer, from the node's journals, or from a further node, whose address is the peer."""
        self.now = now
        match message:
            case Recover():
                self._recover(message, peer)
            case Survey():
                self._survey(message, peer)
            case LookedUp():
                self._answer(message, peer)
            case Listed():
                self._list(message, peer)
            case Recovered() | Surveyed():
                if (requests := self._requests.get(peer)) is not None:
                    requests.take(message)
            case Offer():
                self._take_offer(message, peer)
            case PeerLeft():
                self._left(peer)
            case RemoteFound() | RemoteAnswered() | RemoteListed() | RemoteUnreachable():
                self._remote_replied(message, peer)
            case _:
                assert_never(message)

    def take_frames(self, frames: Frames, peer: Peer, now: float) -> Frames | None:
        """Take the batches that a peer's reply announced; returns the rest, which is published."""
        requests = self._requests.get(peer)
        if requests is None:
            return frames
        self.now = now
        return requests.take_frames(frames)

    def tick(self, now: float) -> None:
        """Pass over caches that are silent."""
        self.now = now
        for search in list(self._searches.values()):
            search.tick(now)

    def next_deadline(self) -> float | None:
        """When a cache has been silent for too long, or is asked again."""
        if not self._searches:
            return None
        return earliest([search.next_deadline() for search in self._searches.values()])

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self.effects = self.effects, []
        return effects

    # -- peers

    def _take_offer(self, offer: Offer, peer: Peer) -> None:
        try:
            pattern = Pattern(offer.pattern)
        except InvalidTopic as error:
            self.emit(Dismiss(peer, Code.INVALID_ARGUMENT, str(error)))
            return
        offers = self._offers.setdefault(peer, {})
        if not offer.is_on:
            offers.pop(Offer(offer.pattern, offer.source), None)
        elif len(offers) < OFFERS_MAX:
            offers[offer] = pattern
            self._requests.setdefault(peer, CacheRequests())

    def withdraw(self, may_offer: Callable[[Peer, str], bool]) -> None:
        """The rules have changed: forget the offers of peers that may not make them any more."""
        for peer, offers in self._offers.items():
            for offer in [one for one in offers if not may_offer(peer, one.pattern)]:
                del offers[offer]

    def _left(self, peer: Peer) -> None:
        self._offers.pop(peer, None)
        for search in [one for one in self._searches.values() if one.peer == peer]:
            search.end()
        requests = self._requests.pop(peer, None)
        if requests is not None:
            requests.lost()

    # -- requests

    def _recover(self, request: Recover, peer: Peer) -> None:
        self.questions += 1
        bytes_max = min(request.bytes_max, self._settings.bytes_max)
        bounded = Recover(request.id, request.topic, request.source, request.ranges, bytes_max, request.deep)
        self.emit(LookUp(peer, bounded))

    def _answer(self, found: LookedUp, peer: Peer) -> None:
        request, batches = found.request, found.batches
        have = SeqSet.from_ranges((batch.first, batch.stop) for batch in batches)
        rest = [gap for bounds in found.covered for gap in have.missing(*bounds)]
        others = self._others(request.topic, request.source, peer) if request.deep and rest else []
        if others is None:
            return
        covered = have.ranges() if others else found.covered
        reply = Recovered(request.id, total(batches), covered, is_last=not others)
        self.emit(SendFound(peer, reply, batches))
        if others:
            search = PeerSearch(self._next(), request, peer, others, self._settings, self)
            self._searches[search.number] = search
            search.begin(rest)

    def _survey(self, request: Survey, peer: Peer) -> None:
        self.questions += 1
        try:
            Pattern(request.pattern)
        except InvalidTopic as error:
            self.emit(Dismiss(peer, Code.INVALID_ARGUMENT, str(error)))
        else:
            self.emit(ListHeld(peer, request))

    def _list(self, listed: Listed, peer: Peer) -> None:
        request = listed.request
        if not listed.is_last:
            if listed.spans:
                self.emit(Send(peer, Surveyed(request.id, listed.spans, is_last=False)))
            return
        others = self._others(request.pattern, b"", peer) if request.deep else []
        for message in spans_messages(request.id, listed.spans, is_last=not others):
            self.emit(Send(peer, message))
        if others:
            survey = PeerSurvey(self._next(), request, peer, others, self._settings.timeout_s, self)
            self._searches[survey.number] = survey
            survey.begin()

    def _others(self, pattern: str, source: bytes, peer: Peer) -> list[Peer] | None:
        """The other caches that may hold events, nearest first, without the peer itself. None: it is dismissed."""
        try:
            wanted = Pattern(pattern)
        except InvalidTopic as error:
            self.emit(Dismiss(peer, Code.INVALID_ARGUMENT, str(error)))
            return None
        near: list[Peer] = [
            cache
            for cache, offers in self._offers.items()
            if cache != peer and any(_serves(offer, held, wanted, source) for offer, held in offers.items())
        ]
        return [*near, *self._remote]

    def _next(self) -> int:
        self._count += 1
        return self._count

    # -- searches in other caches

    def _remote_replied(self, message: Remote, url: Peer) -> None:
        search = self._searches.get(message.search)
        if search is None:
            return
        match message:
            case RemoteFound(batches=batches):
                search.found(url, batches)
            case RemoteAnswered(number=number, covered=covered, is_last=is_last):
                search.answered(url, number, covered, is_last)
            case RemoteListed(spans=spans, is_last=is_last):
                search.told(url, 0, spans, is_last)
            case RemoteUnreachable():
                search.unreachable(url)
            case _:
                assert_never(message)

    def emit(self, effect: Effect) -> None:
        """An effect of a search."""
        self.effects.append(effect)

    def ask(self, search: PeerSearch, effect: AskCache) -> bool:
        """Ask a peer or a further node for ranges; False if the peer is gone."""
        cache, number, series, ranges = effect.cache, effect.number, effect.series, effect.ranges
        if isinstance(cache, str) and cache in self._remote:
            self.emit(AskRemote(cache, search.number, number, series, ranges, effect.bytes_max))
            return True
        requests = self._requests.get(cache)
        if requests is not None:
            message = requests.recover(search, cache, number, series, ranges, effect.bytes_max, deep=False)
            self.emit(Send(cache, message))
        return requests is not None

    def ask_survey(self, survey: PeerSurvey, cache: Peer) -> bool:
        """Ask a peer or a further node which ranges it holds; False if the peer is gone."""
        request = survey.request
        if isinstance(cache, str) and cache in self._remote:
            self.emit(SurveyRemote(cache, survey.number, request.pattern, request.age_s))
            return True
        requests = self._requests.get(cache)
        if requests is not None:
            message = requests.survey(survey, cache, 0, request.pattern, request.age_s, deep=False)
            self.emit(Send(cache, message))
        return requests is not None

    def ended(self, number: int) -> None:
        """A search is over."""
        self._searches.pop(number, None)


def _serves(offer: Offer, held: Pattern, pattern: Pattern, source: bytes) -> bool:
    return (not source or offer.source in (b"", source)) and held.intersects(pattern)


_MACHINE: type[Machine[Input, Effect]] = CacheService
