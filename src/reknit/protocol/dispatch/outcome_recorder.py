"""Records the outcome of events for subscribers, each once: the dead letter first, then the outcome."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import msgspec

from reknit.attempts import Attempt, AttemptCount
from reknit.fields import SeriesRange
from reknit.ledger import Series
from reknit.outcome import CODE_OF, Code, FinalOutcome, Outcome, Reason
from reknit.protocol.dispatch.overflow import Overflow
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.effects import DeadLetter
from reknit.protocol.queues.queue import Queue
from reknit.records import AttemptRow, Attempts, LossesKnown, OutcomeRow, Outcomes
from reknit.seqset import Range


class OutcomeRecorder:
    """Ends events of queues, and of durable subscribers that are not connected."""

    def __init__(self, state: DispatchState, overflow: Overflow) -> None:
        self._state = state
        self._overflow = overflow
        self._floors: dict[str, int] = {}
        """By durable subscriber, the floor that was recorded last."""
        self._recorded: dict[str, int] = {}
        """By durable subscriber, the number of the last record of its outcomes: it outlives connections."""

    # -- rows

    def row(
        self,
        series: Series,
        bounds: Range,
        end: FinalOutcome,
        code: int = 0,
        reason: str = "",
        text: str = "",
        attempts: int = 1,
    ) -> OutcomeRow:
        return OutcomeRow(*series, *bounds, end, int(code), str(reason), text, attempts, self._state.time_us)

    def accept(self, queue: Queue, series: Series, bounds: Range) -> list[OutcomeRow]:
        """The subscriber has processed these events."""
        is_partly = queue.is_shared or queue.unsettled.is_waiting(series)
        ranges = queue.can_settle(series, *bounds) if is_partly else [bounds]
        return [
            self.row(series, ended, FinalOutcome.ACCEPTED, Code.OK)
            for one in ranges
            for ended in queue.end(series, *one)
        ]

    def reject(self, queue: Queue, series: Series, bounds: Range, code: int, text: str) -> list[OutcomeRow]:
        """The subscriber rejected these events."""
        text = text or "rejected by the subscriber"
        last = Attempt(self._state.time_us, Outcome.REJECTED, code)
        return [
            row
            for one in queue.can_settle(series, *bounds)
            for row in self.dead_letter(queue, series, one, code, Reason.REJECTED, text, last)
        ]

    def dead_letter(
        self,
        queue: Queue,
        series: Series,
        bounds: Range,
        code: int,
        reason: Reason,
        text: str,
        last: Attempt | None = None,
    ) -> list[OutcomeRow]:
        """End open events as dead letters; `last` is the attempt that led to it and is not counted yet."""
        rows: list[OutcomeRow] = []
        path = str(queue.peer)
        for low, high in queue.unsettled.open_within(series, *bounds):
            for start, stop, count in queue.attempts.pieces(series, low, high, operator.eq):
                counted = count or AttemptCount()
                if last is not None:
                    counted = counted.tried(last)
                bounds_alike = (start, stop)
                rows.append(self.letter(queue.name, series, bounds_alike, code, reason, text, counted, path))
        queue.end(series, *bounds)
        return rows

    def letter(
        self,
        name: str,
        series: Series,
        bounds: Range,
        code: int,
        reason: Reason,
        text: str,
        count: AttemptCount,
        path: str = "",
    ) -> OutcomeRow:
        """Make dead letters of events; returns the outcome to record after them."""
        code = code or int(CODE_OF[reason])
        self._state.emit_dead_letter(
            DeadLetter(name, *series, *bounds, code, str(reason), text, count.acquired, path, count.tries)
        )
        return self.row(series, bounds, FinalOutcome.DEAD_LETTERED, code, reason, text, count.acquired)

    # -- records

    def record_ended(self, queue: Queue, rows: list[OutcomeRow]) -> None:
        """Record the outcomes of events for a connected subscriber."""
        floor = queue.move_floor(self._state.end)
        if queue.is_durable and rows:
            self.record(queue.name, rows, floor)

    def record(self, name: str, rows: Sequence[OutcomeRow], floor: int) -> None:
        """Record the outcomes of events for a durable subscriber, and its floor."""
        self._floors[name] = floor
        self._overflow.ended(name, rows)
        self._recorded[name] = self._state.append(Outcomes(name, _merged(rows), floor))

    def record_attempts(self, name: str, rows: list[AttemptRow]) -> None:
        """Record attempts that did not end events of a durable subscriber."""
        self._recorded[name] = self._state.append(Attempts(name, rows))

    def record_known(self, name: str, lost: list[SeriesRange]) -> None:
        """Record that a durable subscriber knows of losses."""
        self._recorded[name] = self._state.append(LossesKnown(name, lost, self._state.time_us))

    def last_record(self, name: str) -> int:
        """The number of the last record about a durable subscriber's events; 0 if there is none."""
        return self._recorded.get(name, 0)

    def record_floors(self) -> None:
        """Record the floors of connected durable subscribers that moved."""
        for name, queue in sorted(self._state.queues.by_name.items()):
            floor = queue.move_floor(self._state.end)
            if floor > self._floors.get(name, -1):
                self.record(name, [], floor)

    def resume(self, name: str, floor: int) -> None:
        """A durable subscriber is connected; this floor is in its account."""
        self._floors[name] = floor

    def forget(self, name: str) -> None:
        """A durable subscriber was deleted."""
        self._floors.pop(name, None)
        self._recorded.pop(name, None)


def _merged(rows: Sequence[OutcomeRow]) -> list[OutcomeRow]:
    """The same rows; adjacent ranges with the same outcome become one row."""
    if len(rows) < 2:
        return list(rows)
    merged: list[OutcomeRow] = []
    for row in rows:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.stop == row.start
            and msgspec.structs.replace(row, start=last.start, stop=last.stop) == last
        ):
            merged[-1] = msgspec.structs.replace(last, stop=row.stop)
        else:
            merged.append(row)
    return merged
