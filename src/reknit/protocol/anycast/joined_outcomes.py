"""The outcomes of several copies of the same events, joined into one for each range."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from reknit.outcome import Outcome
from reknit.wire.outcomes import RangeOutcome

STRENGTH: Final = (Outcome.REJECTED, Outcome.ACCEPTED, Outcome.MODIFIED, Outcome.RELEASED)
"""Which outcome of several counts, the strongest first."""


@dataclass(slots=True, eq=False)
class JoinedOutcomes:
    """Events that went along all paths: the outcomes of the copies become one, a range at a time."""

    open_events: int
    """Events of copies that have no outcome yet."""
    fates: list[RangeOutcome] = field(default_factory=list)

    def add(self, fate: RangeOutcome) -> bool:
        """Add the outcome of one copy. True if it was the last one."""
        self.fates.append(fate)
        self.open_events -= fate.stop - fate.start
        return self.open_events == 0

    def joined(self) -> list[RangeOutcome]:
        """REJECTED > ACCEPTED > MODIFIED > RELEASED. Where copies differ, the text names the outcome of each."""
        places = sorted({at for fate in self.fates for at in (fate.start, fate.stop)})
        joined: list[RangeOutcome] = []
        for start, stop in pairwise(places):
            fates = [fate for fate in self.fates if fate.start <= start < fate.stop]
            one = min(fates, key=lambda fate: STRENGTH.index(Outcome(fate.outcome)))
            same = sum(fate.outcome == one.outcome for fate in fates)
            attempts = sum(fate.attempts for fate in fates)
            text = one.text
            if same < len(fates):
                names = ", ".join(f"{Outcome(fate.outcome).name} by {fate.path}" for fate in fates)
                text = f"{text} ({names})" if text else names
            joined.append(
                RangeOutcome(start, stop, one.outcome, one.code, text, one.node, one.path, attempts)
            )
        return joined
