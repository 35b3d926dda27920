"""Requests and their responses: the client's side, which waits for one, and the node's side, which sees that one comes.

A request is an event to a method's topic, its response one to the requester's. `Requests` settles each request once,
by the first response to its id. `Watch` is a node's memory of requests that nobody has answered: what can't be
delivered is answered by the node, with one of eight codes.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, assert_never
from uuid import UUID

import msgspec

from reknit.envelope.attributes import Attributes
from reknit.ledger import Stream
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


# -- the client's side


class Sent(msgspec.Struct, frozen=True):
    """A request is on its way; it is given up at `due`."""

    id: UUID
    due: float


class Answered(msgspec.Struct, frozen=True):
    """A response came."""

    attributes: Attributes
    payload: bytes


class Failed(msgspec.Struct, frozen=True):
    """These requests will not be answered, and why."""

    ids: Sequence[UUID]
    code: int
    text: str


class Settle(msgspec.Struct, frozen=True):
    """A request ended: with its response, or without."""

    id: UUID
    answer: Answered | Failed


class Requests:
    """The requests of one client that wait for their responses.

    >>> from reknit.envelope.ids import make_id
    >>> requests = Requests()
    >>> requests.receive(Sent(make_id(1, 1), due=2.0), "client", 0.0)
    >>> requests.tick(2.0)
    >>> [effect.answer.code.name for effect in requests.take_effects()]
    ['DEADLINE_EXCEEDED']
    """

    def __init__(self, remembered_max: int = 65_536) -> None:
        self.late = 0
        """Responses that came after their request was given up."""
        self.duplicates = 0
        """Responses that came after another one."""
        self.strays = 0
        """Responses to requests that are not known here: of an earlier life, or settled long ago."""
        self._open: dict[UUID, float] = {}
        self._due: list[tuple[float, UUID]] = []
        self._ended: OrderedDict[UUID, bool] = OrderedDict()
        """Requests that ended last, and whether by a response."""
        self._remembered_max = remembered_max
        self._effects: list[Settle] = []

    def __len__(self) -> int:
        return len(self._open)

    def receive(self, message: Sent | Answered | Failed, peer: Peer, now: float) -> None:
        """A request was sent, was answered, or will not be."""
        match message:
            case Sent(id=id_, due=due):
                assert id_ not in self._open, "an id is used once"
                self._open[id_] = due
                heapq.heappush(self._due, (due, id_))
            case Answered(attributes=attributes):
                self._answered(message, attributes.reqid)
            case Failed(ids=ids):
                for id_ in ids:
                    self._end(id_, message)
            case _:
                assert_never(message)

    def _answered(self, message: Answered, reqid: UUID | None) -> None:
        if reqid is not None and self._end(reqid, message):
            return
        was_answered = None if reqid is None else self._ended.get(reqid)
        if was_answered is None:
            self.strays += 1
        elif was_answered:
            self.duplicates += 1
        else:
            self.late += 1

    def _end(self, id_: UUID, answer: Answered | Failed) -> bool:
        """Settle a request, once."""
        if self._open.pop(id_, None) is None:
            return False
        self._ended[id_] = isinstance(answer, Answered)
        if len(self._ended) > self._remembered_max:
            self._ended.popitem(last=False)
        self._effects.append(Settle(id_, answer))
        return True

    def tick(self, now: float) -> None:
        """Give up what was not answered in time: whether it was carried out is not known."""
        while self._due and (self._due[0][0] <= now or self._due[0][1] not in self._open):
            _, id_ = heapq.heappop(self._due)
            text = "no response came in time: whether the request was carried out is not known"
            self._end(id_, Failed([id_], Code.DEADLINE_EXCEEDED, text))

    def next_deadline(self) -> float | None:
        """When the first request is given up; it may have been answered since."""
        return self._due[0][0] if self._due else None

    def take_effects(self) -> list[Settle]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects


# -- the node's side


class Asked(msgspec.Struct, frozen=True):
    """A request was taken in; it is event `seq` of a stream, and expires at `deadline`."""

    request: Attributes
    stream: Stream
    seq: int
    deadline: float
    is_handed: bool = False
    """Whether it may have been handed over already: before the node was started again."""


class Handed(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a stream were handed over to who serves them."""

    stream: Stream
    start: int
    stop: int


class Carried(msgspec.Struct, frozen=True):
    """Events `[start, stop)` of a stream went to another node, which watches over them too and knows more."""

    stream: Stream
    start: int
    stop: int


class Responded(msgspec.Struct, frozen=True):
    """A response to this id was taken in."""

    reqid: UUID


class Died(msgspec.Struct, frozen=True):
    """Who serves them will not get events `[start, stop)` of a stream any more, or refused them."""

    stream: Stream
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
    stream: Stream
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
        self._by_stream: dict[Stream, dict[int, UUID]] = {}
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
            case Handed(stream=stream, start=start, stop=stop):
                for id_ in self._between(stream, start, stop):
                    self._open[id_].is_handed = True
            case Carried(stream=stream, start=start, stop=stop):
                for id_ in self._between(stream, start, stop):
                    self._open[id_].is_carried = self._open[id_].is_handed = True
            case Responded(reqid=reqid):
                self._forget(reqid)
            case Died(stream=stream, start=start, stop=stop):
                for id_ in self._between(stream, start, stop):
                    one = self._open[id_]
                    self._respond(one, answer_code(message.reason, message.code, one.is_handed), message.text)
            case _:
                assert_never(message)

    def _asked(self, message: Asked) -> None:
        id_ = message.request.id
        if id_ in self._open:  # the same request once more, by a publisher that lost its place
            return
        self._open[id_] = _Open(message)
        self._by_stream.setdefault(message.stream, {})[message.seq] = id_
        heapq.heappush(self._due, (message.deadline, id_))

    def _between(self, stream: Stream, start: int, stop: int) -> list[UUID]:
        """The open requests among events `[start, stop)`, at the cost of whichever is fewer."""
        seqs = self._by_stream.get(stream)
        if not seqs:
            return []
        if stop - start <= len(seqs):
            return [seqs[seq] for seq in range(start, stop) if seq in seqs]
        return [id_ for seq, id_ in seqs.items() if start <= seq < stop]

    def _forget(self, id_: UUID) -> _Open | None:
        one = self._open.pop(id_, None)
        if one is not None:
            stream = one.asked.stream
            seqs = self._by_stream[stream]
            del seqs[one.asked.seq]
            if not seqs:
                del self._by_stream[stream]
        return one

    def _respond(self, one: _Open, code: Code, text: str) -> None:
        asked = one.asked
        if self._forget(asked.request.id) is not None:
            self.answered += 1
            self._effects.append(Respond(asked.request, code, text, asked.stream, asked.seq))

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
