"""A node's side of RPC: it makes sure that every request gets a response.

The node answers a request that can't be delivered, or that nobody answers in time, with one of eight codes.
A client's side is `requests.py`.

    RequestAccepted          the request is open until its deadline
    RequestsDelivered        a server of the method has them: at the deadline the answer is DEADLINE_EXCEEDED
    RequestsForwarded        another node has them, and answers first: this node waits a little longer
    ResponseAccepted         the request is answered: forgotten
    RequestsUndeliverable    Respond
    tick                     the deadline: Respond

An input about a request that is not open changes nothing: the request was answered. A repeated request, from a
publisher that lost its place, changes nothing either.
"""

from __future__ import annotations

import heapq
from typing import Final, assert_never
from uuid import UUID

import msgspec

from reknit.address import Address
from reknit.envelope.attributes import Attributes
from reknit.ledger import Series
from reknit.outcome import Code, Reason
from reknit.protocol.machine import Machine, Peer

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
"""The codes that a node may answer with."""
FORWARDED_S: Final = 0.5
"""How long a node waits after a request's deadline for the answer of another node that has it."""
_BY_REASON: Final = {
    Reason.EGRESS_FULL: Code.RESOURCE_EXHAUSTED,
    Reason.DENIED: Code.PERMISSION_DENIED,
    Reason.UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Reason.MALFORMED: Code.INVALID_ARGUMENT,
    Reason.NO_ROUTE: Code.UNAVAILABLE,
    Reason.ATTEMPTS_EXHAUSTED: Code.UNKNOWN,
    Reason.INTERNAL: Code.INTERNAL,
    Reason.RETENTION: Code.INTERNAL,
    Reason.GONE: Code.INTERNAL,
    Reason.DAMAGED: Code.INTERNAL,
}


def answer_code(reason: str, code: int, is_delivered: bool) -> Code:
    """The code of a node's answer to a request that ended undelivered.

    >>> answer_code("expired", 4, is_delivered=False).name, answer_code("expired", 4, is_delivered=True).name
    ('UNAVAILABLE', 'DEADLINE_EXCEEDED')
    >>> answer_code("rejected", Code.NOT_FOUND, is_delivered=True).name
    'UNKNOWN'
    """
    if reason == Reason.EXPIRED:
        return Code.DEADLINE_EXCEEDED if is_delivered else Code.UNAVAILABLE
    if reason == Reason.REJECTED:
        return Code(code) if code in CODES else Code.UNKNOWN
    return _BY_REASON[Reason(reason)] if reason in _BY_REASON else Code.UNKNOWN


class RequestAccepted(msgspec.Struct, frozen=True):
    """A request was accepted; it is event `seq` of a series, and expires at `deadline`."""

    request: Attributes
    series: Series
    seq: int
    deadline: float
    is_delivered: bool = False
    """Whether it may have been delivered already: before the node was restarted."""


class RequestsDelivered(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a series were delivered to a server of their method."""

    series: Series
    start: int
    stop: int


class RequestsForwarded(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a series went to another node, which answers them too, and knows more."""

    series: Series
    start: int
    stop: int


class ResponseAccepted(msgspec.Struct, frozen=True):
    """A response to this id was accepted."""

    reqid: UUID
    source: Address | None = None
    """Whose it is. It answers only a request to this address; None: any."""


class RequestsUndeliverable(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a series will not be delivered any more, or were refused."""

    series: Series
    start: int
    stop: int
    code: int
    reason: str
    text: str


class Respond(msgspec.Struct, frozen=True):
    """Answer a request in place of its server."""

    request: Attributes
    code: Code
    text: str
    series: Series
    seq: int


Input = RequestAccepted | RequestsDelivered | RequestsForwarded | ResponseAccepted | RequestsUndeliverable


class _OpenRequest:
    """A request that nobody has answered yet."""

    __slots__ = ("accepted", "is_delivered", "is_forwarded")

    def __init__(self, accepted: RequestAccepted) -> None:
        self.accepted = accepted
        self.is_delivered = accepted.is_delivered
        self.is_forwarded = False

    def deliver(self) -> None:
        """A server has it."""
        self.is_delivered = True

    def forward(self) -> None:
        """Another node has it."""
        self.is_delivered = self.is_forwarded = True

    def wait_for_node(self) -> bool:
        """True the first time, if another node has it: its answer should come first."""
        was_forwarded, self.is_forwarded = self.is_forwarded, False
        return was_forwarded


class OpenRequests:
    """The requests on one node that nobody has answered yet. The node answers each at most once.

    >>> requests = OpenRequests(requests_max=1000)
    >>> requests.tick(0.0)
    >>> requests.take_effects()
    []
    """

    def __init__(self, requests_max: int) -> None:
        self.answered = 0
        """How many requests the node has answered itself."""
        self._requests_max = requests_max
        self._open: dict[UUID, _OpenRequest] = {}
        self._by_series: dict[Series, dict[int, UUID]] = {}
        self._due: list[tuple[float, UUID]] = []
        self._effects: list[Respond] = []

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether no more requests can be accepted for now."""
        return len(self._open) >= self._requests_max

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """An input about a request."""
        match message:
            case RequestAccepted():
                self._accept(message)
            case RequestsDelivered(series=series, start=start, stop=stop):
                for id_ in self._between(series, start, stop):
                    self._open[id_].deliver()
            case RequestsForwarded(series=series, start=start, stop=stop):
                for id_ in self._between(series, start, stop):
                    self._open[id_].forward()
            case ResponseAccepted(reqid=reqid, source=source):
                one = self._open.get(reqid)
                if one is not None and source in (None, one.accepted.request.sink):
                    self._forget(reqid)
            case RequestsUndeliverable(series=series, start=start, stop=stop):
                for id_ in self._between(series, start, stop):
                    dead = self._open[id_]
                    self._respond(
                        dead, answer_code(message.reason, message.code, dead.is_delivered), message.text
                    )
            case _:
                assert_never(message)

    def _accept(self, message: RequestAccepted) -> None:
        id_ = message.request.id
        if id_ in self._open:  # a repeated request, from a publisher that lost its place
            return
        self._open[id_] = _OpenRequest(message)
        self._by_series.setdefault(message.series, {})[message.seq] = id_
        heapq.heappush(self._due, (message.deadline, id_))

    def _between(self, series: Series, start: int, stop: int) -> list[UUID]:
        """The open requests among events `[start, stop)`. It searches the requests or the range, if that is smaller."""
        seqs = self._by_series.get(series)
        if not seqs:
            return []
        if stop - start <= len(seqs):
            return [seqs[seq] for seq in range(start, stop) if seq in seqs]
        return [id_ for seq, id_ in seqs.items() if start <= seq < stop]

    def _forget(self, id_: UUID) -> _OpenRequest | None:
        one = self._open.pop(id_, None)
        if one is not None:
            series = one.accepted.series
            seqs = self._by_series[series]
            del seqs[one.accepted.seq]
            if not seqs:
                del self._by_series[series]
        return one

    def _respond(self, one: _OpenRequest, code: Code, text: str) -> None:
        accepted = one.accepted
        if self._forget(accepted.request.id) is not None:
            self.answered += 1
            self._effects.append(Respond(accepted.request, code, text, accepted.series, accepted.seq))

    def tick(self, now: float) -> None:
        """Answer the requests that expired: they were never delivered, or nobody has answered them."""
        while self._due and (self._due[0][0] <= now or self._due[0][1] not in self._open):
            one = self._open.get(heapq.heappop(self._due)[1])
            if one is None:
                continue
            if one.wait_for_node():
                heapq.heappush(self._due, (now + FORWARDED_S, one.accepted.request.id))
                continue
            code = answer_code(Reason.EXPIRED, 0, one.is_delivered)
            sink, ttl_ms = one.accepted.request.sink, one.accepted.request.ttl_ms
            if one.is_delivered:
                text = f"{sink} got the request and did not answer within {ttl_ms} ms"
            else:
                text = f"{sink} did not get the request within {ttl_ms} ms: nobody serves it, or it is busy or offline"
            self._respond(one, code, text)

    def next_deadline(self) -> float | None:
        """When the first request expires. It may have been answered meanwhile."""
        return self._due[0][0] if self._due else None

    def take_effects(self) -> list[Respond]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects


_: type[Machine[Input, Respond]] = OpenRequests
