"""This member's progress with senders that are gone.

After a partition, one side may have delivered more of a sender that is gone than the other. The other side reports
those events as lost, so it asks the first side until it is answered. Some member may still be able to send them:
in each view, members that finished with a sender in an earlier view exchange again.
"""

from __future__ import annotations

from collections.abc import Iterable

from reknit.protocol.multicast.effects import LostEvents, SendToGroup
from reknit.wire.groups import GroupEnds

DEPARTED_MAX = 1024
"""How many departed senders are remembered…"""
REPORTED_MAX = 256
"""…and how many are reported to others."""


class DepartedSenders:
    """The last seq that we delivered of every departed sender.

    >>> departed = DepartedSenders(repeat_s=0.1)
    >>> departed.add(b"s", 50, stamp=7)
    >>> departed.is_earlier(b"s", 7), departed.is_earlier(b"s", 8)
    (False, True)
    >>> departed.learn(b"s", 60)
    LostEvents(source=b's', start=51, stop=61)
    >>> departed.learn(b"s", 60), departed.learn(b"unknown", 7), departed.get(b"s")
    (None, None, 60)
    """

    def __init__(self, repeat_s: float) -> None:
        self._repeat_s = repeat_s
        self._ends: dict[bytes, int] = {}
        self._stamps: dict[bytes, int] = {}
        self._asking: dict[bytes, float] = {}
        """The members to ask, and when to ask again."""

    def get(self, source: bytes) -> int | None:
        return self._ends.get(source)

    def is_earlier(self, source: bytes, stamp: int) -> bool:
        """True if we finished with it in another view than that of this stamp."""
        return source in self._ends and self._stamps[source] != stamp

    def add(self, source: bytes, seq: int, stamp: int) -> None:
        """It is gone, and this was its last event here. The stamp names the view."""
        self._ends[source], self._stamps[source] = seq, stamp
        if len(self._ends) > DEPARTED_MAX:
            self.pop(next(iter(self._ends)), 0)

    def pop(self, source: bytes, default: int) -> int:
        """It is back: return its last event here."""
        self._stamps.pop(source, None)
        return self._ends.pop(source, default)

    def learn(self, source: bytes, seq: int) -> LostEvents | None:
        """Another member delivered up to this seq. The events that we lack are lost."""
        own = self._ends.get(source)
        if own is None or seq <= own:
            return None
        self._ends[source] = seq
        return LostEvents(source, own + 1, seq + 1)

    # -- asking members that were apart from us

    def met(self, members: Iterable[bytes], now: float) -> None:
        """These members were not with us before."""
        if self._ends:
            self._asking |= dict.fromkeys(members, now)

    def heard(self, member: bytes) -> None:
        """This member answered."""
        self._asking.pop(member, None)

    def answer(self) -> GroupEnds:
        return GroupEnds(list(self._ends.items())[-REPORTED_MAX:], is_question=False)

    def keep(self, members: Iterable[bytes]) -> None:
        """Only these members are still there to be asked."""
        there = set(members)
        self._asking = {member: at for member, at in self._asking.items() if member in there}

    def tick(self, now: float) -> list[SendToGroup]:
        """The questions that are due."""
        if not self._asking:
            return []
        due = [member for member, at in self._asking.items() if at <= now]
        self._asking |= dict.fromkeys(due, now + self._repeat_s)
        question = GroupEnds(list(self._ends.items())[-REPORTED_MAX:], is_question=True)
        return [SendToGroup(member, question) for member in due]

    def next_deadline(self) -> float:
        return min(self._asking.values(), default=float("inf"))
