"""A client's side of RPC: requests that wait for their responses.

A request is an event on a method's topic, its response an event on the requester's topic. Each request is settled once,
by the first response to its id from the address that it went to. Other responses are counted and dropped.

    RequestSent        the request is open until `due`; an id that is open already raises
    ResponseReceived   SettleRequest, or counted: late, a duplicate, a stranger's, or of no known request
    RequestsFailed     SettleRequest for those that are open
    tick               SettleRequest with DEADLINE_EXCEEDED for those that are due
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import assert_never
from uuid import UUID

import msgspec

from reknit.address import Address
from reknit.envelope.attributes import Attributes
from reknit.outcome import Code
from reknit.protocol.machine import Machine, Peer


class RequestSent(msgspec.Struct, frozen=True):
    """A request was sent; it times out at `due`."""

    id: UUID
    due: float
    sink: Address | None = None
    """Only a response from this address counts; None: from any."""


class ResponseReceived(msgspec.Struct, frozen=True):
    """A response came."""

    attributes: Attributes
    payload: bytes


class RequestsFailed(msgspec.Struct, frozen=True):
    """These requests will not be answered, for this reason."""

    ids: Sequence[UUID]
    code: int
    text: str


class SettleRequest(msgspec.Struct, frozen=True):
    """A request ended, with or without its response."""

    id: UUID
    answer: ResponseReceived | RequestsFailed


Input = RequestSent | ResponseReceived | RequestsFailed


class Requests:
    """The requests of one client that wait for their responses.

    >>> from reknit.envelope.ids import make_id
    >>> requests = Requests()
    >>> requests.receive(RequestSent(make_id(1, 1), due=2.0), "client", 0.0)
    >>> requests.tick(2.0)
    >>> [effect.answer.code.name for effect in requests.take_effects()]
    ['DEADLINE_EXCEEDED']
    """

    def __init__(self, remembered_max: int = 65_536) -> None:
        self.late = 0
        """Responses that came after their request had timed out."""
        self.duplicates = 0
        """Responses that came after another one."""
        self.strays = 0
        """Responses to requests that are not known here: sent before a restart, or settled long ago."""
        self.strangers = 0
        """Responses from another address than the request went to. The request still waits."""
        self._open: dict[UUID, Address | None] = {}
        self._due: list[tuple[float, UUID]] = []
        self._ended: OrderedDict[UUID, bool] = OrderedDict()
        """The requests that ended last, and whether by a response."""
        self._remembered_max = remembered_max
        self._effects: list[SettleRequest] = []

    def __len__(self) -> int:
        return len(self._open)

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """A request was sent, was answered, or will not be."""
        match message:
            case RequestSent(id=id_, due=due, sink=sink):
                assert id_ not in self._open, "an id is used once"
                self._open[id_] = sink
                heapq.heappush(self._due, (due, id_))
            case ResponseReceived(attributes=attributes):
                self._answered(message, attributes)
            case RequestsFailed(ids=ids):
                for id_ in ids:
                    self._end(id_, message)
            case _:
                assert_never(message)

    def _answered(self, message: ResponseReceived, attributes: Attributes) -> None:
        reqid = attributes.reqid
        sink = None if reqid is None else self._open.get(reqid)
        if sink is not None and attributes.source != sink:
            self.strangers += 1
            return
        if reqid is not None and self._end(reqid, message):
            return
        was_answered = None if reqid is None else self._ended.get(reqid)
        if was_answered is None:
            self.strays += 1
        elif was_answered:
            self.duplicates += 1
        else:
            self.late += 1

    def _end(self, id_: UUID, answer: ResponseReceived | RequestsFailed) -> bool:
        """Settle a request, once."""
        if id_ not in self._open:
            return False
        del self._open[id_]
        self._ended[id_] = isinstance(answer, ResponseReceived)
        if len(self._ended) > self._remembered_max:
            self._ended.popitem(last=False)
        self._effects.append(SettleRequest(id_, answer))
        return True

    def tick(self, now: float) -> None:
        """Time out the requests that were not answered: whether they were carried out is not known."""
        while self._due and (self._due[0][0] <= now or self._due[0][1] not in self._open):
            _, id_ = heapq.heappop(self._due)
            text = "no response arrived in time; the request may have been carried out"
            self._end(id_, RequestsFailed([id_], Code.DEADLINE_EXCEEDED, text))

    def next_deadline(self) -> float | None:
        """When the first request times out. It may have been answered meanwhile."""
        return self._due[0][0] if self._due else None

    def take_effects(self) -> list[SettleRequest]:
        """Return the effects, in order, and forget them."""
        effects, self._effects = self._effects, []
        return effects


_: type[Machine[Input, SettleRequest]] = Requests
