"""Requests that nobody has answered yet: a node's side of RPC, which sees that each gets a response.

What can't be delivered is answered by the node, with one of eight codes. A client's side is `rpc_requests`.
"""

from __future__ import annotations

import heapq
from typing import Final, assert_never
from uuid import UUID

import msgspec

from reknit.envelope.attributes import Attributes
from reknit.ledger import Stream as Series
from reknit.outcome import Code, Reason
from reknit.protocol.machine import Peer

CODES: Final = frozenset(
    (
        Code.UNAVAILABLE,
        Code.DEADLINE_EXCEEDED,
        Code.PERMISSION_DENIED,
        Code.UNAUTHENTICATED,
        Code.RESOURCE_EXHAUSTED,
        Code.INVALID_ARGUMENT,
        Code.UNKNOWN,
        Code.INTERNAL,
    )
)
"""What a node may answer with."""
CARRIED_S: Final = 0.5
"""How long a node waits after a request's deadline for the word of another node that has it."""
_BY_REASON: Final = {
    Reason.EGRESS_FULL: Code.RESOURCE_EXHAUSTED,
    Reason.DENIED: Code.PERMISSION_DENIED,
    Reason.UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Reason.MALFORMED: Code.INVALID_ARGUMENT,
    Reason.NO_ROUTE: Code.UNAVAILABLE,
    Reason.ATTEMPTS_EXHAUSTED: Code.UNKNOWN,
    Reason.INTERNAL: Code.INTERNAL,
    Reason.RETENTION: Code.INTERNAL,
}


def answer_code(reason: str, code: int, is_handed: bool) -> Code:
    """The code with which a node answers a request that ended undelivered.

    >>> answer_code("expired", 4, is_handed=False).name, answer_code("expired", 4, is_handed=True).name
    ('UNAVAILABLE', 'DEADLINE_EXCEEDED')
    >>> answer_code("rejected", Code.NOT_FOUND, is_handed=True).name
    'UNKNOWN'
    """
    if reason == Reason.EXPIRED:
        return Code.DEADLINE_EXCEEDED if is_handed else Code.UNAVAILABLE
    if reason == Reason.REJECTED:
        return Code(code) if code in CODES else Code.UNKNOWN
    return _BY_REASON[Reason(reason)] if reason in _BY_REASON else Code.UNKNOWN


class Asked(msgspec.Struct, frozen=True):
    """A request was taken in; it is event `seq` of a series, and expires at `deadline`."""

    request: Attributes
    series: Series
    seq: int
    deadline: float
    is_handed: bool = False
    """Whether it may have been handed over already: before the node was started again."""


class Handed(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a series were handed over to who serves them."""

    series: Series
    start: int
    stop: int


class Carried(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a series went to another node, which watches over them too and knows more."""

    series: Series
    start: int
    stop: int


class Responded(msgspec.Struct, frozen=True):
    """A response to this id was taken in."""

    reqid: UUID


class Died(msgspec.Struct, frozen=True):
    """Who serves them will not get events `[start, stop)` of a series any more, or refused them."""

    series: Series
    start: int
    stop: int
    code: int
    reason: str
    text: str


class Respond(msgspec.Struct, frozen=True):
    """Answer a request in the name of who does not."""

    request: Attributes
    code: Code
    text: str
    series: Series
    seq: int


Input = Asked | Handed | Carried | Responded | Died


class _Open:
    __slots__ = ("asked", "is_carried", "is_handed")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.is_handed = asked.is_handed
        self.is_carried = False


class Watch:
    """The requests on one node that nobody has answered yet. Each is answered by the node at most once.

    >>> watch = Watch(requests_max=1000)
    >>> watch.tick(0.0)
    >>> watch.take_effects()
    []
    """

    def __init__(self, requests_max: int) -> None:
        self.answered = 0
        """How many requests the node has answered itself."""
        self._requests_max = requests_max
        self._open: dict[UUID, _Open] = {}
        self._by_series: dict[Series, dict[int, UUID]] = {}
        self._due: list[tuple[float, UUID]] = []
        self._effects: list[Respond] = []

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether no more requests can be taken in for now."""
        return len(self._open) >= self._requests_max

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """News of a request."""
        match message:
            case Asked():
                self._asked(message)
            case Handed(series=series, start=start, stop=stop):
                for id_ in self._between(series, start, stop):
                    self._open[id_].is_handed = True
            case Carried(series=series, start=start, stop=stop):
                for id_ in self._between(series, start, stop):
                    self._open[id_].is_carried = self._open[id_].is_handed = True
            case Responded(reqid=reqid):
                self._forget(reqid)
            case Died(series=series, start=start, stop=stop):
                for id_ in self._between(series, start, stop):
                    one = self._open[id_]
                    self._respond(one, answer_code(message.reason, message.code, one.is_handed), message.text)
            case _:
                assert_never(message)

    def _asked(self, message: Asked) -> None:
        id_ = message.request.id
        if id_ in self._open:  # the same request once more, by a publisher that lost its place
            return
        self._open[id_] = _Open(message)
        self._by_series.setdefault(message.series, {})[message.seq] = id_
        heapq.heappush(self._due, (message.deadline, id_))

    def _between(self, series: Series, start: int, stop: int) -> list[UUID]:
        """The open requests among events `[start, stop)`, at the cost of whichever is fewer."""
        seqs = self._by_series.get(series)
        if not seqs:
            return []
        if stop - start <= len(seqs):
            return [seqs[seq] for seq in range(start, stop) if seq in seqs]
        return [id_ for seq, id_ in seqs.items() if start <= seq < stop]

    def _forget(self, id_: UUID) -> _Open | None:
        one = self._open.pop(id_, None)
        if one is not None:
            series = one.asked.series
            seqs = self._by_series[series]
            del seqs[one.asked.seq]
            if not seqs:
                del self._by_series[series]
        return one

    def _respond(self, one: _Open, code: Code, text: str) -> None:
        asked = one.asked
        if self._forget(asked.request.id) is not None:
            self.answered += 1
            self._effects.append(Respond(asked.request, code, text, asked.series, asked.seq))

    def tick(self, now: float) -> None:
        """Answer what has expired: it was never handed over, or nobody has answered it."""
        while self._due and (self._due[0][0] <= now or self._due[0][1] not in self._open):
            one = self._open.get(heapq.heappop(self._due)[1])
            if one is None:
                continue
            if one.is_carried:  # the word of the node that it went to is to come first
                one.is_carried = False
                heapq.heappush(self._due, (now + CARRIED_S, one.asked.request.id))
                continue
            code = answer_code(Reason.EXPIRED, 0, one.is_handed)
            sink, ttl_ms = one.asked.request.sink, one.asked.request.ttl_ms
            if one.is_handed:
                text = f"{sink} was asked and did not answer within {ttl_ms} ms"
            else:
                text = (
                    f"{sink} could not be asked within {ttl_ms} ms: nobody serves it, or it is busy or away"
                )
            self._respond(one, code, text)

    def next_deadline(self) -> float | None:
        """When the first request expires; it may have been answered since."""
        return self._due[0][0] if self._due else None

    def take_effects(self) -> list[Respond]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects
