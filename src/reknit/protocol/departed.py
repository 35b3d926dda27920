"""What a sender that is gone left behind: its survivors end with the same prefix of its events.

Every survivor says what it holds. Once all of the view have spoken, everyone knows how far the events reach
that at least one of them holds, and fetches from the others what it lacks. While this goes on, nothing else
of the departed sender is taken in, so that what was said stays true. A new view starts it over.
"""

from __future__ import annotations

from typing import Any

from reknit.protocol.group_messages import Holdings
from reknit.protocol.window import Window
from reknit.seqset import SeqSet

HOLDINGS_MAX = 256
"""How many ranges one member reports; more, and the last are left out."""


class Departure:
    """The exchange about one departed sender, within one view."""

    def __init__(self, fingerprint: int, survivors: frozenset[bytes], now: float, until: float) -> None:
        self.fingerprint = fingerprint
        self.until = until
        self.say_at = now
        self.target: int | None = None
        """The last seq that any survivor holds without a gap; None until all have spoken."""
        self._survivors = survivors
        self._reports: dict[bytes, Holdings] = {}

    def holdings(self, source: bytes, window: Window[Any]) -> Holdings:
        """What we say about it."""
        held = window.held()[:HOLDINGS_MAX]
        return Holdings(source, self.fingerprint, window.delivered, held, is_answer=False)

    def report_own(self, me: bytes, source: bytes, window: Window[Any]) -> None:
        """Note what we hold, where that has changed."""
        known = self._reports.get(me)
        if known is None or known.delivered < window.delivered:
            self.report(me, self.holdings(source, window))

    def report(self, member: bytes, holdings: Holdings) -> None:
        """A survivor said what it holds."""
        if holdings.fingerprint == self.fingerprint and member in self._survivors:
            known = self._reports.get(member)
            if known is None or known.delivered <= holdings.delivered:
                self._reports[member] = holdings
            if self.target is None and len(self._reports) == len(self._survivors):
                self.target = self._reach()

    def _held(self) -> SeqSet:
        """What at least one survivor can give."""
        return SeqSet.from_ranges(part for report in self._reports.values() for part in report.ranges)

    def _reach(self) -> int:
        delivered = max(report.delivered for report in self._reports.values())
        return self._held().first_missing(delivered + 1) - 1

    def lost_up_to(self, seq: int) -> int:
        """If nobody has this seq: the last of those that nobody has. A later joiner may be past them."""
        if self.target is None or seq > self.target:
            return 0
        start, stop = next(iter(self._held().missing(seq, self.target + 1)), (0, 0))
        return stop - 1 if start == seq else 0

    @property
    def is_done(self) -> bool:
        """True if every survivor has delivered all that there is."""
        target = self.target
        return target is not None and all(report.delivered >= target for report in self._reports.values())

    def holder(self, seq: int, tries: int, others: list[bytes]) -> bytes | None:
        """Someone who can give this seq; another one at another try."""
        able = [
            member
            for member in others
            if (report := self._reports.get(member)) and any(a <= seq < b for a, b in report.ranges)
        ]
        return able[tries % len(able)] if able else None
