"""Agreement on the events of a sender that is gone: all survivors deliver the same, and lose the same.

Every survivor reports what it holds, and the last seq that it knows of. Once all of the view have reported, everyone
knows the same: the last seq, the events that one survivor has whole or several have in pieces, and that the rest is
lost. Each survivor then fetches what it lacks from the others. Until all have reported, nothing more of the departed
sender is taken in, so that the reports stay true. A new view starts the agreement over. Events that were given up
stay given up among the survivors that did so; a member that was apart from them may still get them from others.
"""

from __future__ import annotations

from reknit.seqset import Range, SeqSet
from reknit.wire.groups import GroupHoldings
from reknit.wire.pieces import piece_count


class SurvivorAgreement:
    """The agreement about one departed sender, within one view. `before` is the one in the view before, if any."""

    def __init__(
        self,
        stamp: int,
        survivors: frozenset[bytes],
        now: float,
        until: float,
        before: SurvivorAgreement | None,
    ) -> None:
        self.stamp = stamp
        self.until = until
        self.report_at = now
        """When to report our own holdings again."""
        self.target: int | None = None
        """The last seq that any survivor knows of; None until all have reported."""
        self.start = 0
        """A survivor that the sender never told where to start begins after this, if not later.

        Every member that the sender waited for had these events, so they were not for a later one; and some of them
        are no longer there.
        """
        self.lost: list[Range] = []
        """The events up to the target that no survivor has."""
        self._is_given_up = False
        self._survivors = survivors
        self._fellows = before._survivors if before is not None else frozenset[bytes]()
        """The members that may have given something up together with us."""
        self._reports: dict[bytes, GroupHoldings] = {}

    def report(self, member: bytes, holdings: GroupHoldings) -> None:
        """A survivor reported what it holds."""
        if holdings.stamp != self.stamp or member not in self._survivors:
            return
        known = self._reports.get(member)
        if known is None or known.delivered <= holdings.delivered:
            self._reports[member] = holdings
        if self.target is None and len(self._reports) == len(self._survivors):
            self.agree()

    def knows(self, member: bytes, delivered: int) -> bool:
        """True if this member reported that it delivered this much."""
        report = self._reports.get(member)
        return report is not None and report.delivered >= delivered

    def report_again(self, at: float) -> None:
        """Report our own holdings at this time."""
        self.report_at = at

    def agree(self) -> None:
        """Decide by the reports so far."""
        reports = self._reports.values()
        # A member that reported in an earlier view may have got more since, and the others would give that up.
        assert all(report.stamp == self.stamp for report in reports)
        parties = [report for report in reports if not report.is_answer]
        first = min(report.delivered for report in parties)
        self.target = max(max(report.delivered, report.high) for report in reports)
        self.lost = self._held().missing(first + 1, self.target + 1)
        stable = max(report.stable for report in parties)
        self.start = max((min(stop - 1, stable) for start, stop in self.lost if start <= stable), default=0)

    def give_up(self) -> bool:
        """True the first time it is called: our own window does not know yet what is lost."""
        is_first = not self._is_given_up
        self._is_given_up = True
        return is_first

    def _held(self) -> SeqSet:
        """The events that the survivors can send: one survivor has the whole batch, or several have its pieces."""
        held = SeqSet.from_ranges(part for report in self._reports.values() for part in report.ranges)
        pieces: dict[tuple[int, int, int, int], SeqSet] = {}
        for report in self._reports.values():
            for first, count, length, size, ranges in report.parts:
                of_batch = pieces.setdefault((first, count, length, max(size, 1)), SeqSet())
                for run in ranges:
                    of_batch.add(*run)
        for (first, count, length, size), of_batch in pieces.items():
            if of_batch.covers(0, piece_count(length, size)):
                held.add(first, first + count)
        for run in [
            run for fellow in self._fellows & self._reports.keys() for run in self._reports[fellow].lost
        ]:
            held.discard(*run)
        return held

    @property
    def is_done(self) -> bool:
        """True if every survivor has delivered all that there is, or never had anything of it."""
        target, reports = self.target, self._reports.values()
        return target is not None and all(each.is_answer or each.delivered >= target for each in reports)

    def holder(self, seq: int, attempts: int, others: list[bytes]) -> bytes | None:
        """A survivor that has this event, or pieces of its batch; another one at each attempt."""
        able = [other for other in others if self._can_send(other, seq)]
        return able[attempts % len(able)] if able else None

    def _can_send(self, member: bytes, seq: int) -> bool:
        report = self._reports.get(member)
        if report is None:
            return False
        parts = [(first, first + count) for first, count, *_ in report.parts]
        return any(start <= seq < stop for start, stop in [*report.ranges, *parts])
