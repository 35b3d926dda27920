"""Anycast in the journal's ledger: which events are in flight, and the outcome of each.

Every rule with a distribution of its own has an account in the ledger, like a durable subscriber. So the ledger
balances, retention spares events that are not delivered yet, and after a crash the node knows which events are owed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from reknit.ledger import ANYCAST, Held, Series
from reknit.node.core.core import Core
from reknit.outcome import CODE_OF, Code, FinalOutcome, Outcome, Reason
from reknit.protocol.effects import AppendRecord, DeadLetter
from reknit.protocol.recovery.loss_reports import TEXT as GONE
from reknit.records import OutcomeRow, Outcomes, SubscriberOpened
from reknit.seqset import SeqSet
from reknit.topic import Pattern
from reknit.wire.outcomes import RangeOutcome

FLOOR_BYTES: Final = 1 << 16
"""A floor that moved by less gets no record of its own."""
REASONS: Final[Mapping[int, Reason]] = {
    Outcome.RELEASED: Reason.NO_ROUTE,
    Outcome.REJECTED: Reason.REJECTED,
    Outcome.MODIFIED: Reason.ATTEMPTS_EXHAUSTED,
}


class AnycastLedger:
    """The accounts of all rules, and the position in the journal before which all events have ended."""

    def __init__(self, core: Core, patterns: list[Pattern]) -> None:
        self._core = core
        self._patterns = {ANYCAST + pattern.text: pattern for pattern in patterns}
        self._flight: deque[tuple[int, Series, int, int]] = deque()
        self._open: dict[Series, SeqSet] = {}
        self._rows: dict[str, list[OutcomeRow]] = {}
        self._dead_letters: list[DeadLetter] = []
        self.is_due = False
        """Whether there is something to write since the last `flush`."""

    def open(self, now: float) -> int:
        """Open the accounts that are missing; returns the first position whose events may be owed."""
        ledger, journal = self._core.journal.ledger, self._core.journal
        position = journal.end
        for name, pattern in self._patterns.items():
            account = ledger.accounts.get(name)
            if account is not None:
                position = min(position, max(account.floor, journal.start))
                for series, low, high in ledger.untold(name):  # the node crashed before it had recorded that
                    self._lose(name, series, low, high, Reason.RETENTION, GONE)
                continue
            since = {series: seqs.last + 1 for series, seqs in ledger.matching(pattern)}
            record = SubscriberOpened.at(name, pattern.text, since, journal.end, self._core.now_us())
            self._store(record, now)
        return position

    def owed(self, series: Series, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of `[start, stop)` that have not ended and were not published before their account was opened."""
        owed = [(start, stop)]
        for name in self._names(series[0]):
            account = self._core.journal.ledger.accounts.get(name)
            if account is not None:
                since = account.since.get(series, 1)
                ended = account.ended(series)
                owed = [
                    part
                    for low, high in owed
                    if max(low, since) < high
                    for part in ended.missing(max(low, since), high)
                ]
        return owed

    def ends(self, series: Series, start: int, stop: int) -> list[tuple[int, int, FinalOutcome]]:
        """The outcomes of events of `[start, stop)`, as far as they have one."""
        for name in self._names(series[0]):
            account = self._core.journal.ledger.accounts.get(name)
            if account is not None:
                ends = account.ends.get(series, {})
                return [(*bounds, end) for end, seqs in ends.items() for bounds in seqs.overlap(start, stop)]
        return []

    def _names(self, topic: str) -> list[str]:
        return [name for name, pattern in self._patterns.items() if pattern.matches(topic)]

    # -- in flight

    def start(self, position: int, series: Series, start: int, stop: int) -> None:
        """Events of the batch at a position are in flight."""
        self._open.setdefault(series, SeqSet()).add(start, stop)
        self._flight.append((position, series, start, stop))

    def in_hand(self) -> dict[str, dict[Series, SeqSet]]:
        """For every account, the events that are in flight."""
        return {
            name: {series: seqs for series, seqs in self._open.items() if pattern.matches(series[0])}
            for name, pattern in self._patterns.items()
        }

    def held_by(self, name: str) -> Held | None:
        """The same for one account, by series; None if no rule has it."""
        return (lambda series: self._open.get(series, SeqSet())) if name in self._patterns else None

    def end(self, topic: str, source: bytes, fate: RangeOutcome) -> None:
        """Events ended: their outcome goes into the ledger, and undelivered events become dead letters."""
        series = (topic, source)
        seqs = self._open.get(series)
        ranges = seqs.overlap(fate.start, fate.stop) if seqs is not None else []
        if seqs is None or not ranges:
            return
        for start, stop in ranges:
            seqs.discard(start, stop)
            for name in self._names(topic):
                self._record(name, series, (start, stop), fate)
        if not seqs:
            del self._open[series]
        self.is_due = True

    def lose(self, series: Series, start: int, stop: int) -> None:
        """Events that were not offered yet can't be read any more: what is owed of them ends as lost."""
        open_seqs, reason = self._open.get(series, SeqSet()), Reason.DAMAGED
        for low, high in [part for one in self.owed(series, start, stop) for part in open_seqs.missing(*one)]:
            for name in self._names(series[0]):
                self._lose(name, series, low, high, reason, "its bytes in the journal are damaged")

    def _lose(self, name: str, series: Series, start: int, stop: int, reason: Reason, text: str) -> None:
        code, now_us = int(CODE_OF[reason]), self._core.now_us()
        row = OutcomeRow(*series, start, stop, FinalOutcome.LOST, code, str(reason), text, 0, now_us)
        self._rows.setdefault(name, []).append(row)
        self.is_due = True

    def _record(self, name: str, series: Series, bounds: tuple[int, int], fate: RangeOutcome) -> None:
        rows = self._rows.setdefault(name, [])
        now_us = self._core.now_us()
        if fate.outcome == Outcome.ACCEPTED:
            last = rows[-1] if rows else None
            if (
                last is not None
                and (last.topic, last.source, last.stop, last.end)
                == (*series, bounds[0], FinalOutcome.ACCEPTED)
                and last.attempts == fate.attempts
            ):
                bounds = (rows.pop().start, bounds[1])
            rows.append(OutcomeRow(*series, *bounds, FinalOutcome.ACCEPTED, 0, "", "", fate.attempts, now_us))
            return
        reason = Reason.EXPIRED if fate.code == Code.DEADLINE_EXCEEDED else REASONS[fate.outcome]
        code = fate.code or int(CODE_OF[reason])
        text = f"{fate.text or Outcome(fate.outcome).name.lower()} (by {fate.path or fate.node})"
        self._dead_letters.append(DeadLetter(name, *series, *bounds, code, str(reason), text, fate.attempts))
        rows.append(
            OutcomeRow(
                *series, *bounds, FinalOutcome.DEAD_LETTERED, code, str(reason), text, fate.attempts, now_us
            )
        )

    # -- into the journal

    def flush(self, cursor: int, now: float) -> int:
        """Stage the outcomes for the journal: the dead letters first. Returns the number of the last record."""
        self.is_due = False
        dead_letters, self._dead_letters = self._dead_letters, []
        rows_of, self._rows = self._rows, {}
        for dead_letter in dead_letters:
            self._core.stage(dead_letter, now)
        floor = self._floor(cursor)
        number = 0
        for name, rows in rows_of.items():
            number = self._store(Outcomes(name, rows, floor), now)
        return number

    def move_floor(self, cursor: int, now: float) -> None:
        """Every event before the cursor that is not in flight has ended, or is not on these topics."""
        floor = self._floor(cursor)
        for name in self._patterns:
            account = self._core.journal.ledger.accounts.get(name)
            if account is not None and floor > account.floor + FLOOR_BYTES:
                self._store(Outcomes(name, [], floor), now)

    def _floor(self, cursor: int) -> int:
        flight = self._flight
        while flight:
            position, series, start, stop = flight[0]
            seqs = self._open.get(series)
            if seqs is not None and seqs.overlap(start, stop):
                return position
            flight.popleft()
        return cursor

    def _store(self, record: SubscriberOpened | Outcomes, now: float) -> int:
        number = self._core.intake.next_number()
        self._core.stage(AppendRecord(number, record), now)
        return number
