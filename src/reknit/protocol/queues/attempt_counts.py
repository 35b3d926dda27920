"""How often events of one queue were tried: kept only for events that came back from an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reknit.attempts import Attempt, AttemptCount
from reknit.ledger import Series, seqs_within
from reknit.seqset import Range

AttemptPiece = tuple[int, int, AttemptCount | None]
"""(start, stop, count): a range of events with equal counts; None where no attempt came back."""


def has_same_counts(one: AttemptCount, other: AttemptCount) -> bool:
    """Whether two events were tried equally often."""
    return (one.acquired, one.failed) == (other.acquired, other.failed)


class AttemptCounts:
    """The counts of one queue.

    >>> from reknit.outcome import Outcome
    >>> counts, series = AttemptCounts(), ("plant/a", b"s")
    >>> counts.count(series, 2, 4, Attempt(5, Outcome.FAILED))
    >>> [(start, stop, count and count.failed) for start, stop, count in counts.pieces(series, 1, 6)]
    [(1, 2, None), (2, 4, 1), (4, 6, None)]
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Series, dict[int, AttemptCount]] = {}

    def __len__(self) -> int:
        """How many events came back."""
        return sum(map(len, self._counts.values()))

    def __contains__(self, series: Series) -> bool:
        """Whether events of a series came back."""
        return series in self._counts

    def resume(self, counts: Mapping[Series, Mapping[int, AttemptCount]]) -> None:
        """Start from the counts of a durable subscriber's account."""
        self._counts = {series: dict(by_seq) for series, by_seq in counts.items()}

    def count(self, series: Series, start: int, stop: int, attempt: Attempt) -> None:
        """An attempt at `[start, stop)` came back."""
        counts = self._counts.setdefault(series, {})
        for seq in range(start, stop):
            counts[seq] = counts.get(seq, AttemptCount()).tried(attempt)

    def forget(self, series: Series, start: int, stop: int) -> None:
        """Events ended: their counts are not needed any more."""
        counts = self._counts.get(series)
        if counts is None:
            return
        for seq in seqs_within(counts, start, stop):
            del counts[seq]
        if not counts:
            del self._counts[series]

    def next_attempt(self, series: Series, seq: int) -> int:
        """The number of an event's present or next attempt, the first being 1."""
        counts = self._counts.get(series)
        count = None if counts is None else counts.get(seq)
        return 1 if count is None else count.acquired + 1

    def tried_within(self, series: Series, start: int, stop: int) -> list[Range]:
        """Each event of `[start, stop)` that came back from an attempt, as a range."""
        return [(seq, seq + 1) for seq in seqs_within(self._counts.get(series, {}), start, stop)]

    def pieces(
        self,
        series: Series,
        start: int,
        stop: int,
        is_like: Callable[[AttemptCount, AttemptCount], bool] = has_same_counts,
    ) -> list[AttemptPiece]:
        """`[start, stop)` in pieces that were tried equally often, or whose counts are alike in another way."""
        counts = self._counts.get(series)
        if counts is None:
            return [(start, stop, None)] if start != stop else []
        pieces: list[AttemptPiece] = []
        at = start
        for seq in sorted(seqs_within(counts, start, stop)):
            if at < seq:
                pieces.append((at, seq, None))
            count = counts[seq]
            last = pieces[-1] if pieces else None
            if last is not None and last[1] == seq and last[2] is not None and is_like(last[2], count):
                pieces[-1] = (last[0], seq + 1, last[2])
            else:
                pieces.append((seq, seq + 1, count))
            at = seq + 1
        return pieces if at == stop else [*pieces, (at, stop, None)]
