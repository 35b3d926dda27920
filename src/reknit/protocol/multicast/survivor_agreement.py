"""What a sender that is gone left behind: its survivors deliver the same, and lose the same.

Every survivor says what it holds, and how far it knows that the sender got. Once all of the view have spoken,
everyone knows the same: the last seq that there was, what at least one of them has or several have in pieces,
and that the rest is lost. What it lacks, each fetches from the others. Until all have spoken, nothing more of
the departed sender is taken in, so that what was said stays true. A new view starts it over, and what was given
up stays given up among those who did so; who was apart from them may still have it from others.
"""

from __future__ import annotations

from reknit.seqset import Range, SeqSet
from reknit.wire.groups import GroupHoldings
from reknit.wire.pieces import piece_count


class SurvivorAgreement:
    """The exchange about one departed sender, within one view; `before` is the exchange in the view before, if any."""

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
        self.say_at = now
        self.target: int | None = None
        """The last seq that any survivor knows of; None until all have spoken."""
        self.start = 0
        """One that the sender never told where to start begins after this, if not later.

        Everyone had it whom the sender waited for, so that it was not for a later one, and not all of it is there now.
        """
        self.lost: list[Range] = []
        """What no survivor has, up to the target."""
        self.is_given_up = False
        """Whether our own window knows what is lost."""
        self._survivors = survivors
        self._fellows = before._survivors if before is not None else frozenset[bytes]()
        """Who may have given something up together with us."""
        self._reports: dict[bytes, GroupHoldings] = {}

    def report(self, member: bytes, holdings: GroupHoldings) -> None:
        """A survivor said what it holds."""
        if holdings.stamp != self.stamp or member not in self._survivors:
            return
        known = self._reports.get(member)
        if known is None or known.delivered <= holdings.delivered:
            self._reports[member] = holdings
        if self.target is None and len(self._reports) == len(self._survivors):
            self.agree()

    def knows(self, member: bytes, delivered: int) -> bool:
        """True if this member said that it got so far."""
        report = self._reports.get(member)
        return report is not None and report.delivered >= delivered

    def agree(self) -> None:
        """Decide by what was said so far."""
        reports = self._reports.values()
        # Who spoke in an earlier view may have got more since, and the others would give that up.
        assert all(report.stamp == self.stamp for report in reports)
        parties = [report for report in reports if not report.is_answer]
        first = min(report.delivered for report in parties)
        self.target = max(max(report.delivered, report.high) for report in reports)
        self.lost = self._held().missing(first + 1, self.target + 1)
        stable = max(report.stable for report in parties)
        self.start = max((min(stop - 1, stable) for start, stop in self.lost if start <= stable), default=0)

    def _held(self) -> SeqSet:
        """What the survivors can give: one of them a whole batch, or several its pieces."""
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
        """True if every survivor has delivered all that there is, or never had to do with it."""
        target, reports = self.target, self._reports.values()
        return target is not None and all(each.is_answer or each.delivered >= target for each in reports)

    def holder(self, seq: int, tries: int, others: list[bytes]) -> bytes | None:
        """Someone who can give this seq, or pieces of its batch; another one at another try."""
        able = [other for other in others if self._can_give(other, seq)]
        return able[tries % len(able)] if able else None

    def _can_give(self, member: bytes, seq: int) -> bool:
        report = self._reports.get(member)
        if report is None:
            return False
        parts = [(first, first + count) for first, count, *_ in report.parts]
        return any(start <= seq < stop for start, stop in [*report.ranges, *parts])
