"""Requests to caches over one connection: each reply goes to the requester that asked.

A reply may come in several messages, and batches follow a `Recovered` message as frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.machine import Peer
from reknit.seqset import Range
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


class CacheRequests:
    """The requests that are open on one connection."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[CacheRequester, Peer, int]] = {}
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
        return Recover(self._register(requester, cache, number), *stream, ranges, bytes_max, deep)

    def survey(
        self, requester: CacheRequester, cache: Peer, number: int, pattern: str, age_s: float, deep: bool
    ) -> Survey:
        """The message that requests a list of the ranges that the cache holds."""
        return Survey(self._register(requester, cache, number), pattern, age_s, deep)

    def _register(self, requester: CacheRequester, cache: Peer, number: int) -> int:
        self._count += 1
        self._open[self._count] = (requester, cache, number)
        return self._count

    def take(self, message: Recovered | Surveyed) -> None:
        """A reply came; the batches that it announces follow as frames."""
        if isinstance(message, Surveyed):
            if (request := self._request(message.id, message.is_last)) is not None:
                requester, cache, number = request
                requester.told(cache, number, message.spans, message.is_last)
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
            request[0].found(request[1], batches)
        if self._announced.message is None:
            self._end(reply)

    def _end(self, reply: Recovered) -> None:
        if (request := self._request(reply.id, reply.is_last)) is not None:
            requester, cache, number = request
            requester.answered(cache, number, reply.covered, reply.is_last)

    def _request(self, id_: int, is_last: bool) -> tuple[CacheRequester, Peer, int] | None:
        return self._open.pop(id_, None) if is_last else self._open.get(id_)

    def forget(self, requester: CacheRequester) -> None:
        """Drop the replies to a requester that is gone."""
        self._open = {id_: request for id_, request in self._open.items() if request[0] is not requester}

    def lost(self) -> None:
        """The connection is gone, and its replies with it: tell every requester, once for each cache."""
        requests, self._open = self._open, {}
        self._announced.clear()
        for requester, cache in dict.fromkeys(
            (requester, cache) for requester, cache, _ in requests.values()
        ):
            requester.unreachable(cache)
