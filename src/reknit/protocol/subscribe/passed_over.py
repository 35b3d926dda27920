"""Events that a node passed over for a durable subscriber: it ended them itself, in a full queue or by their ttl.

It delivers the events behind them before it has stored that. If it crashes in between, they come after all, behind
events that came before. What a subscriber has not been passed over for, and comes behind others, came before.

call          the end of passed events
note          is stored when an outcome with this number is: the node appends one after the other
disconnected  may be undone: a crash of the node ends the connection
advance       is stored with the outcome of this number: the node passed them again
confirm       is stored: they can't come any more
take          was undone: they come
"""

from __future__ import annotations

from collections import deque

from reknit.ledger import Series
from reknit.protocol.series_seqs import SeriesSeqs
from reknit.seqset import Range


class PassedOver:
    """The events that may still come behind others.

    >>> passed, series = PassedOver(), ("plant/a", b"s")
    >>> passed.note(series, 3, 9, number=1)
    >>> passed.take(series, 2, 5)
    [(3, 5)]
    >>> passed.confirm(1)
    >>> passed.take(series, 5, 9)
    []
    """

    __slots__ = ("_seqs", "_unstored", "_unsure")

    def __init__(self) -> None:
        self._seqs = SeriesSeqs()
        self._unstored: deque[tuple[int, Series, Range]] = deque()
        """By the number of an outcome, in order: the ranges whose end is stored when that is."""
        self._unsure: dict[Series, list[Range]] = {}
        """The ranges that were passed over on an earlier connection, and neither came nor were passed since."""

    def __bool__(self) -> bool:
        return bool(self._unstored or self._unsure)

    def note(self, series: Series, start: int, stop: int, number: int) -> None:
        """A later event came before `[start, stop)`. The outcome with this number is not sent yet."""
        self._seqs.add(series, start, stop)
        self._unstored.append((number, series, (start, stop)))

    def advance(self, series: Series, number: int) -> None:
        """A new event of a series came: what was passed over before the connection broke is passed over again."""
        self._unstored.extend((number, series, bounds) for bounds in self._unsure.pop(series, ()))

    def confirm(self, number: int) -> None:
        """The node has stored the outcomes up to this number, and everything that it knew before them."""
        while self._unstored and self._unstored[0][0] <= number:
            _, series, bounds = self._unstored.popleft()
            self._seqs.take(series, *bounds)

    def disconnected(self) -> None:
        """The node may have crashed."""
        for _, series, bounds in self._unstored:
            self._unsure.setdefault(series, []).append(bounds)
        self._unstored.clear()

    def take(self, series: Series, start: int, stop: int) -> list[Range]:
        """Events behind others came; returns those that were passed over."""
        return self._seqs.take(series, start, stop)

    def clear(self) -> None:
        """The node has another journal: everything that comes is new."""
        self._seqs.clear()
        self._unstored.clear()
        self._unsure.clear()
