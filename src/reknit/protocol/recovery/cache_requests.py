"""Requests to caches over one connection: each reply goes to the requester that asked.

A reply may come in several messages, and batches follow a `Recovered` message as frames. Events and series that were
not asked for are dropped: a cache may be another version, broken or hostile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from reknit.batch import Batch, Head
from reknit.ledger import Series
from reknit.protocol.machine import Peer
from reknit.seqset import Range
from reknit.topic import Pattern
from reknit.wire.announced import Announced
from reknit.wire.codec import Frames
from reknit.wire.recovery import Recover, Recovered, Span, Survey, Surveyed


class CacheRequester(Protocol):
    """Asks caches for events, and gets their replies."""

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """A cache sent these batches."""

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """A cache has sent everything that it holds of these ranges."""

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """A cache listed the ranges that it holds."""

    def unreachable(self, cache: Peer) -> None:
        """A cache can't be reached for now."""


class OpenRequest(msgspec.Struct, frozen=True):
    """A request whose reply is not complete: who asked whom, and for what."""

    requester: CacheRequester
    cache: Peer
    number: int
    series: Series = ("", b"")
    ranges: Sequence[Range] = ()
    pattern: Pattern | None = None

    def asked_for(self, head: Head) -> bool:
        """Whether some events of a batch were asked for."""
        is_series = (head.topic, head.source) == self.series
        return is_series and any(start < head.stop and head.first < stop for start, stop in self.ranges)

    def asked_about(self, span: Span) -> bool:
        """Whether a series is among those that were asked for."""
        return self.pattern is not None and self.pattern.matches(span.topic)


class CacheRequests:
    """The requests that are open on one connection."""

    def __init__(self) -> None:
        self._open: dict[int, OpenRequest] = {}
        self._count = 0
        self._announced: Announced[Recovered] = Announced()
        """The reply whose batches come next."""

    def recover(
        self,
        requester: CacheRequester,
        cache: Peer,
        number: int,
        stream: Series,
        ranges: list[Range],
        bytes_max: int,
        deep: bool,
    ) -> Recover:
        """The message that requests ranges."""
        request = OpenRequest(requester, cache, number, stream, ranges)
        return Recover(self._register(request), *stream, ranges, bytes_max, deep)

    def survey(
        self, requester: CacheRequester, cache: Peer, number: int, pattern: str, age_s: float, deep: bool
    ) -> Survey:
        """The message that requests a list of the ranges that the cache holds."""
        request = OpenRequest(requester, cache, number, pattern=Pattern(pattern))
        return Survey(self._register(request), pattern, age_s, deep)

    def _register(self, request: OpenRequest) -> int:
        self._count += 1
        self._open[self._count] = request
        return self._count

    def take(self, message: Recovered | Surveyed) -> None:
        """A reply came; the batches that it announces follow as frames."""
        if isinstance(message, Surveyed):
            if (request := self._request(message.id, message.is_last)) is not None:
                spans = [span for span in message.spans if request.asked_about(span)]
                request.requester.told(request.cache, request.number, spans, message.is_last)
        elif message.size > 0:
            self._announced.announce(message)
        else:
            self._end(message)

    def take_frames(self, frames: Frames) -> Frames | None:
        """Take the batches that belong to a reply; returns the frames that do not."""
        reply = self._announced.message
        if reply is None:
            return frames
        at = 0
        batches: list[Batch] = []
        for index, head in enumerate(frames.heads):
            if self._announced.take(head.length) is None:
                self._pass_on(reply, batches)
                return Frames(frames.data[at:], frames.heads[index:])
            data = memoryview(frames.data)[at : at + head.length]
            batches.append(Batch(head, data, whole=(frames.data, at)))
            at += head.length
        self._pass_on(reply, batches)
        return None

    def _pass_on(self, reply: Recovered, batches: list[Batch]) -> None:
        request = self._open.get(reply.id)
        if request is not None:
            wanted = [batch for batch in batches if request.asked_for(batch.head)]
            request.requester.found(request.cache, wanted)
        if self._announced.message is None:
            self._end(reply)

    def _end(self, reply: Recovered) -> None:
        if (request := self._request(reply.id, reply.is_last)) is not None:
            request.requester.answered(request.cache, request.number, reply.covered, reply.is_last)

    def _request(self, id_: int, is_last: bool) -> OpenRequest | None:
        return self._open.pop(id_, None) if is_last else self._open.get(id_)

    def forget(self, requester: CacheRequester) -> None:
        """Drop the replies to a requester that is gone."""
        self._open = {id_: one for id_, one in self._open.items() if one.requester is not requester}

    def lost(self) -> None:
        """The connection is gone, and its replies with it: tell every requester, once for each cache."""
        requests, self._open = self._open, {}
        self._announced.clear()
        for requester, cache in dict.fromkeys((one.requester, one.cache) for one in requests.values()):
            requester.unreachable(cache)
