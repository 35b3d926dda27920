"""How far senders got that are gone, and telling it to those who were apart from us meanwhile.

After a partition one side may have had more of a sender that is gone than the other. What one had and the other
never will is reported by the other as lost: so it asks, as long as it takes to be answered. Someone may still be
able to give it, so that in each view those who had done with a sender in an earlier one exchange once more.
"""

from __future__ import annotations

from collections.abc import Iterable

from reknit.protocol.multicast.effects import ReportLost, SendMessage
from reknit.wire.groups import GroupEnds

ENDED_MAX = 1024
"""Of so many departed senders it is remembered how far they got…"""
TOLD_MAX = 256
"""…and of so many it is told."""


class DepartedSenders:
    """The last seq of every departed sender, as we got it.

    >>> ended = DepartedSenders(repeat_s=0.1)
    >>> ended.add(b"s", 50, stamp=7)
    >>> ended.is_earlier(b"s", 7), ended.is_earlier(b"s", 8)
    (False, True)
    >>> ended.learn(b"s", 60)
    ReportLost(source=b's', start=51, stop=61)
    >>> ended.learn(b"s", 60), ended.learn(b"unknown", 7), ended.get(b"s")
    (None, None, 60)
    """

    def __init__(self, repeat_s: float) -> None:
        self._repeat_s = repeat_s
        self._ends: dict[bytes, int] = {}
        self._stamps: dict[bytes, int] = {}
        self._asking: dict[bytes, float] = {}

    def get(self, source: bytes) -> int | None:
        return self._ends.get(source)

    def is_earlier(self, source: bytes, stamp: int) -> bool:
        """True if we had done with it before the view of this stamp."""
        return source in self._ends and self._stamps[source] != stamp

    def add(self, source: bytes, seq: int, stamp: int) -> None:
        """It is gone, and this was the last of it; the stamp names the view."""
        self._ends[source], self._stamps[source] = seq, stamp
        if len(self._ends) > ENDED_MAX:
            self.pop(next(iter(self._ends)), 0)

    def pop(self, source: bytes, default: int) -> int:
        """It is back."""
        self._stamps.pop(source, None)
        return self._ends.pop(source, default)

    def learn(self, source: bytes, seq: int) -> ReportLost | None:
        """Another got so far with it. What we lack of that can't be had any more."""
        own = self._ends.get(source)
        if own is None or seq <= own:
            return None
        self._ends[source] = seq
        return ReportLost(source, own + 1, seq + 1)

    # -- telling

    def met(self, members: Iterable[bytes], now: float) -> None:
        """These were not with us before."""
        if self._ends:
            self._asking |= dict.fromkeys(members, now)

    def heard(self, member: bytes) -> None:
        self._asking.pop(member, None)

    def answer(self) -> GroupEnds:
        return GroupEnds(list(self._ends.items())[-TOLD_MAX:], is_question=False)

    def keep(self, members: Iterable[bytes]) -> None:
        """Only these are still there to be asked."""
        there = set(members)
        self._asking = {member: at for member, at in self._asking.items() if member in there}

    def tick(self, now: float) -> list[SendMessage]:
        """The questions that are due."""
        if not self._asking:
            return []
        due = [member for member, at in self._asking.items() if at <= now]
        self._asking |= dict.fromkeys(due, now + self._repeat_s)
        question = GroupEnds(list(self._ends.items())[-TOLD_MAX:], is_question=True)
        return [SendMessage(member, question) for member in due]

    def next_deadline(self) -> float:
        return min(self._asking.values(), default=float("inf"))
