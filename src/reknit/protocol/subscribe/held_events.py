"""The events that an application has, and those that come back to it.

call          from                  to
deliver       not here, returning   held
note_attempt  held                  held, for an attempt after the first
settle        held                  settled
give_back     settled               returning
turn_back     not here, returning   not wanted, until it comes
revoke        held                  returning and revoked
end_revoked   returning, revoked    settled
redeliver     returning, revoked    delivered next
lose          returning             lost
"""

from __future__ import annotations

from reknit.batch import Batch
from reknit.ledger import Series
from reknit.protocol.series_seqs import SeriesSeqs
from reknit.seqset import Range, SeqSet


class HeldEvents:
    """The unsettled events of one subscription.

    >>> held, series = HeldEvents(), ("plant/a", b"s")
    >>> held.deliver(series, 1, 5)
    >>> held.revoke(series, 2, 3)
    >>> held.settle(series, 1, 9), held.end_revoked(series, 1, 9)
    ([(1, 2), (3, 5)], [(2, 3)])
    """

    __slots__ = (
        "_attempts",
        "_held",
        "_repeated",
        "_returning",
        "_revoked",
        "_unwanted",
        "deliver",
        "settle",
    )

    def __init__(self) -> None:
        self._held = SeriesSeqs()
        self.deliver = self._held.add  # bound directly, because every batch passes here
        """Events go to the application."""
        self.settle = self._held.take
        """The application settles events; returns those that it has: only these count, and only once."""
        self._returning = SeriesSeqs()
        """Events that were given back and will be delivered again."""
        self._revoked = SeriesSeqs()
        """Those of them whose lease ran out: the application may still have them, and end them."""
        self._unwanted = SeriesSeqs()
        """Events on their way that have to wait for one that was given back."""
        self._repeated = SeriesSeqs()
        """Events that the application has, and that came again for a later attempt."""
        self._attempts: dict[Series, dict[int, int]] = {}
        """By series and seq: the attempt of events that were redelivered."""

    # -- transitions

    def note_attempt(self, batch: Batch) -> None:
        """A batch that goes to the application was delivered before: this is its latest attempt."""
        noted = self._attempts.setdefault((batch.topic, batch.source), {})
        noted.update(dict.fromkeys(range(batch.first, batch.stop), batch.attempt))

    def settle_attempt(self, series: Series, start: int, stop: int, attempt: int) -> list[Range]:
        """As `settle`, for one attempt, or for the latest if it is 0: events that came again since stay held."""
        noted = self._attempts.get(series)
        if noted is None:  # the usual way
            return self.settle(series, start, stop)
        later = SeqSet.from_ranges(
            (seq, seq + 1) for seq in range(start, stop) if attempt and noted.get(seq, 0) > attempt
        )
        ranges = [part for bounds in later.missing(start, stop) for part in self.settle(series, *bounds)]
        self._forget_attempts(series, ranges)
        return ranges

    def _forget_attempts(self, series: Series, ranges: list[Range]) -> None:
        noted = self._attempts.get(series)
        if noted is not None:
            for seq in [seq for bounds in ranges for seq in range(*bounds)]:
                noted.pop(seq, None)
            if not noted:
                del self._attempts[series]

    def give_back(self, series: Series, start: int, stop: int) -> None:
        """Settled events will be delivered again."""
        self._returning.add(series, start, stop)

    def turn_back(self, series: Series, start: int, stop: int, expected: int) -> None:
        """Give back what is still on its way of `[start, stop)` when it comes; from `expected` on, nothing came yet."""
        for low, high in self._returning.within(series, start, stop):
            self._unwanted.add(series, low, high)
        if max(start, expected) < stop:
            self._unwanted.add(series, max(start, expected), stop)

    def repeat(self, series: Series, start: int, stop: int) -> None:
        """Events came again. Where the application has them, its outcome is about the attempt that came last."""
        for low, high in self._held.within(series, start, stop):
            self._repeated.add(series, low, high)

    def take_repeated(self, series: Series, start: int, stop: int) -> SeqSet:
        """Events are settled; returns those that came again meanwhile."""
        return SeqSet.from_ranges(self._repeated.take(series, start, stop))

    def take_unwanted(self, series: Series, start: int, stop: int) -> list[Range]:
        """Events came; returns those that are not wanted before an earlier one."""
        return self._unwanted.take(series, start, stop)

    def disconnected(self) -> None:
        """Nothing is on its way any more."""
        self._unwanted.clear()

    def revoke(self, series: Series, start: int, stop: int) -> None:
        """A lease ran out: the events will be delivered again, unless the application ends them first."""
        ranges = self._held.take(series, start, stop)
        self._forget_attempts(series, ranges)
        for low, high in ranges:
            self._returning.add(series, low, high)
            self._revoked.add(series, low, high)

    def end_revoked(self, series: Series, start: int, stop: int) -> list[Range]:
        """The application ends events that were revoked; returns those."""
        ranges = self._revoked.take(series, start, stop)
        for low, high in ranges:
            self._returning.take(series, low, high)
        return ranges

    def redeliver(self, series: Series, start: int, stop: int) -> list[Range]:
        """Events are delivered again; returns those that were given back."""
        self._revoked.take(series, start, stop)
        return self._returning.take(series, start, stop)

    def lose(self, series: Series, start: int, stop: int) -> list[Range]:
        """Events will not be delivered any more; returns those that were given back."""
        return self._returning.take(series, start, stop)

    def forget_returning(self) -> None:
        """The node has another journal, which decides what comes: nothing is expected again."""
        self._returning.clear()
        self._revoked.clear()

    def clear(self) -> None:
        """The application no longer owns its events."""
        self._held.clear()

    # -- questions

    def has_revoked(self, series: Series) -> bool:
        return series in self._revoked

    def held_of(self, series: Series) -> SeqSet:
        """A copy of the seqs of a series that the application has."""
        return self._held.of(series)

    def held_within(self, series: Series, start: int, stop: int) -> list[Range]:
        return self._held.within(series, start, stop)

    def held_ranges(self) -> list[tuple[Series, int, int]]:
        """The events that the application has, in order."""
        return self._held.ranges()

    def ranges(self) -> list[tuple[Series, int, int]]:
        """The events that the application has, then those that will be redelivered."""
        return self._held.ranges() + self._returning.ranges()

    def returning(self) -> list[tuple[Series, SeqSet]]:
        """The events that will be redelivered, by series."""
        return list(self._returning)

    def first_unsettled(self) -> list[tuple[Series, int]]:
        """By series: the first seq that the application has or that will be redelivered."""
        return [(series, seqs.first) for group in (self._held, self._returning) for series, seqs in group]
