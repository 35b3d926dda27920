"""Requests that wait for their responses: a client's side of RPC.

A request is an event to a method's topic, its response one to the requester's. Each request is settled once, by the
first response to its id; what comes late or twice is counted and dropped.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import assert_never
from uuid import UUID

import msgspec

from reknit.envelope.attributes import Attributes
from reknit.outcome import Code
from reknit.protocol.machine import Peer


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
