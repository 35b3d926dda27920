"""How often events of one queue were tried: kept only for events that came back from an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reknit.attempts import Tally, Try
from reknit.ledger import Series, seqs_within
from reknit.seqset import Range

AttemptPiece = tuple[int, int, Tally | None]
"""(start, stop, tally): a range of events with equal tallies; None where no attempt came back."""


def has_same_counts(one: Tally, other: Tally) -> bool:
    """Whether two events were tried equally often."""
    return (one.acquired, one.failed) == (other.acquired, other.failed)


class AttemptCounts:
    """The tallies of one queue.

    >>> from reknit.outcome import Outcome
    >>> counts, series = AttemptCounts(), ("plant/a", b"s")
    >>> counts.count(series, 2, 4, Try(5, Outcome.FAILED))
    >>> [(start, stop, tally and tally.failed) for start, stop, tally in counts.pieces(series, 1, 6)]
    [(1, 2, None), (2, 4, 1), (4, 6, None)]
    """

    __slots__ = ("_tallies",)

    def __init__(self) -> None:
        self._tallies: dict[Series, dict[int, Tally]] = {}

    def __len__(self) -> int:
        """How many events came back."""
        return sum(map(len, self._tallies.values()))

    def __contains__(self, series: Series) -> bool:
        """Whether events of a series came back."""
        return series in self._tallies

    def resume(self, tallies: Mapping[Series, Mapping[int, Tally]]) -> None:
        """Start from the counts of a durable subscriber's account."""
        self._tallies = {series: dict(by_seq) for series, by_seq in tallies.items()}

    def count(self, series: Series, start: int, stop: int, attempt: Try) -> None:
        """An attempt at `[start, stop)` came back."""
        tallies = self._tallies.setdefault(series, {})
        for seq in range(start, stop):
            tallies[seq] = tallies.get(seq, Tally()).tried(attempt)

    def forget(self, series: Series, start: int, stop: int) -> None:
        """Events ended: their counts are not needed any more."""
        tallies = self._tallies.get(series)
        if tallies is None:
            return
        for seq in seqs_within(tallies, start, stop):
            del tallies[seq]
        if not tallies:
            del self._tallies[series]

    def next_attempt(self, series: Series, seq: int) -> int:
        """The number of an event's present or next attempt, the first being 1."""
        tallies = self._tallies.get(series)
        tally = None if tallies is None else tallies.get(seq)
        return 1 if tally is None else tally.acquired + 1

    def tried_within(self, series: Series, start: int, stop: int) -> list[Range]:
        """Each event of `[start, stop)` that came back from an attempt, as a range."""
        return [(seq, seq + 1) for seq in seqs_within(self._tallies.get(series, {}), start, stop)]

    def pieces(
        self, series: Series, start: int, stop: int, is_like: Callable[[Tally, Tally], bool] = has_same_counts
    ) -> list[AttemptPiece]:
        """`[start, stop)` in pieces that were tried equally often, or whose tallies are alike in another way."""
        tallies = self._tallies.get(series)
        if tallies is None:
            return [(start, stop, None)] if start != stop else []
        pieces: list[AttemptPiece] = []
        at = start
        for seq in sorted(seqs_within(tallies, start, stop)):
            if at < seq:
                pieces.append((at, seq, None))
            tally = tallies[seq]
            last = pieces[-1] if pieces else None
            if last is not None and last[1] == seq and last[2] is not None and is_like(last[2], tally):
                pieces[-1] = (last[0], seq + 1, last[2])
            else:
                pieces.append((seq, seq + 1, tally))
            at = seq + 1
        return pieces if at == stop else [*pieces, (at, stop, None)]
