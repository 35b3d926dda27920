"""A queue's cursor: its place in the journal, and which events it leaves out.

A live cursor is at the journal's end: new durable events are delivered at once. A cursor that is behind reads the
journal from its position on, by scans where that is no longer in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from reknit.batch import Head
from reknit.ledger import Series
from reknit.seqset import Range, SeqSet

LIVE: Final = -1
"""The position of a cursor that is at the journal's end."""

EndedBefore = Callable[[Series], SeqSet]
"""By series: the events that had ended before a queue was opened, as a set of its own."""


class Cursor:
    """The place of one queue in the journal.

    >>> cursor = Cursor(0, after={b"s": 4})
    >>> cursor.wanted(0, Head(b"s", "plant/a", 3, 4, 100, 0))
    [(5, 7)]
    """

    __slots__ = (
        "_after", "_early", "_ended", "_ended_before", "_has_turn", "_part", "_passed", "_resumed_to", "_since",
        "is_scanning", "position", "priority",
    )  # fmt: skip

    def __init__(self, position: int, after: Mapping[bytes, int] | None = None) -> None:
        self.position = position
        """The next position to look at, or `LIVE`."""
        self.is_scanning = False
        """Whether the journal was asked for more."""
        self.priority = 1
        """Of the batch that the cursor stopped at."""
        self._has_turn = False
        self._after = dict(after or {})
        """By source: the seqs up to which events are skipped, because the subscriber's checkpoint covers them."""
        self._since: dict[Series, int] = {}
        """The first owed seq of series of which earlier events may still come, from another node."""
        self._resumed_to = 0
        """Before this position some events may have ended or be with the subscriber already."""
        self._ended: dict[Series, SeqSet] = {}
        """Events that ended before the cursor reached them, of the series that it met."""
        self._ended_before: EndedBefore | None = None
        self._passed: dict[Series, int] = {}
        """The seq before which the cursor has seen everything of a series."""
        self._early: dict[Series, SeqSet] = {}
        """Events that were passed before the cursor reached them."""
        self._part: tuple[int, int] = (-1, 0)
        """The position of a batch that was delivered in part, and the seq up to which it was."""

    # -- movement

    @property
    def is_live(self) -> bool:
        return self.position < 0

    @property
    def can_read(self) -> bool:
        """Whether there is more to read, and no scan is under way."""
        return self.position >= 0 and not self.is_scanning

    def go_live(self) -> None:
        """The cursor has reached the journal's end."""
        self.position = LIVE
        self._early.clear()

    def read_to(self, position: int) -> None:
        """Everything before `position` was looked at. A live cursor stays live."""
        if self.position >= 0:
            self.position = position

    def stop_at(self, position: int, priority: int) -> None:
        """There is no room for the batch at `position`, which has this priority."""
        self.position = position
        self.priority = priority

    def stop_within(self, position: int, seq: int) -> None:
        """Of the batch at `position` the events before `seq` were delivered."""
        self._part = (position, seq)

    def trimmed(self, start: int) -> None:
        """Retention removed everything before `start`."""
        self.position = start
        self.is_scanning = False

    def scan_began(self) -> None:
        self.is_scanning = True

    def scan_ended(self) -> None:
        self.is_scanning = False

    def takes_turn(self, priority: int, is_shared: bool) -> bool:
        """Whether a turn of a priority is the cursor's. It alternates with lanes of its priority if `is_shared`."""
        self._has_turn = not self._has_turn
        return priority == self.priority and (self._has_turn or not is_shared)

    # -- what was passed

    def passed_to(self, series: Series) -> int:
        """The seq before which the cursor has seen everything of a series; 0 if it has seen nothing."""
        return self._passed.get(series, 0)

    def pass_to(self, series: Series, stop: int) -> None:
        """Everything of a series before `stop` was seen."""
        self._passed[series] = stop

    def pass_early(self, series: Series, start: int, stop: int) -> None:
        """Events were passed before the cursor reached them."""
        self._early.setdefault(series, SeqSet()).add(start, stop)
        self._passed[series] = stop

    @property
    def has_early(self) -> bool:
        return bool(self._early)

    def is_early(self, series: Series) -> bool:
        """Whether events of a series were passed early and the cursor has still to reach them."""
        return series in self._early

    def not_early(self, series: Series, wanted: list[Range]) -> list[Range]:
        """Those of the wanted events that were not passed early."""
        seqs = self._early.get(series)
        return wanted if seqs is None else [part for bounds in wanted for part in seqs.missing(*bounds)]

    def reach(self, series: Series, stop: int) -> None:
        """The cursor has reached everything of a series before `stop`: nothing of that is ahead any more."""
        seqs = self._early.get(series)
        if seqs is not None:
            seqs.discard(0, stop)
            if not seqs:
                del self._early[series]

    def is_next(self, series: Series, head: Head, published: SeqSet | None) -> bool:
        """Whether everything of the series before a batch was passed: then it overtakes nothing of its source."""
        if series in self._passed:
            return self._passed[series] == head.first
        is_first = published is not None and published.first == head.first
        return is_first and not self._after and series not in self._since

    # -- what is left out

    def resume(self, end: int, ended: EndedBefore | None = None) -> None:
        """Up to `end` some events have ended, or the subscriber has them."""
        self._resumed_to = max(self._resumed_to, end)
        if ended is not None:
            self._ended_before = ended

    def leave_out_before(self, series: Series, seq: int) -> None:
        """Events of a series before `seq` are not owed, even if they come later than those after them."""
        self._since[series] = seq

    def skip(self, series: Series, start: int, stop: int) -> None:
        """Events that the cursor may still reach have ended."""
        self._ended_of(series).add(start, stop)

    def not_skipped(self, series: Series, start: int, stop: int) -> list[Range]:
        """The parts of `[start, stop)` that are not known to have ended before the cursor reached them."""
        if self._ended_before is None and series not in self._ended:
            return [(start, stop)]
        return self._ended_of(series).missing(start, stop)

    def _ended_of(self, series: Series) -> SeqSet:
        """Those of one series, which are looked up when the cursor first meets it: there may be very many series."""
        seqs = self._ended.get(series)
        if seqs is None:
            seqs = SeqSet() if self._ended_before is None else self._ended_before(series)
            self._ended[series] = seqs
        return seqs

    @property
    def is_resuming(self) -> bool:
        """Whether the cursor may still reach events that have ended."""
        return 0 <= self.position < self._resumed_to

    def first_owed(self, series: Series) -> int:
        """The first seq of a series that the cursor has neither passed nor skips for a checkpoint."""
        after = self._after.get(series[1], 0)
        return max(self._passed.get(series, 0), after + 1, self._since.get(series, 0))

    def is_fresh(self, position: int) -> bool:
        """Whether nothing is left out from `position` on."""
        return (
            position >= self._resumed_to
            and not self._after
            and not self._since
            and self._part[0] < position
            and not self._early
        )

    def may_repeat(self, position: int) -> bool:
        """Whether some events of a batch at `position` may have ended, or be with the subscriber, already."""
        return position < self._resumed_to

    def wanted(self, position: int, head: Head) -> list[Range]:
        """Which events of a batch are neither skipped nor ended."""
        start = max(head.first, self._after.get(head.source, 0) + 1)
        if self._since:
            start = max(start, self._since.get((head.topic, head.source), 0))
        if position == self._part[0]:
            start = max(start, self._part[1])
        if start >= head.stop:
            return []
        if position >= self._resumed_to:
            return [(start, head.stop)]
        return self.not_skipped((head.topic, head.source), start, head.stop)
