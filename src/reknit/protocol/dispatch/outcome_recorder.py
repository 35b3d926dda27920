"""Ends: an event and a subscriber part for good, once, and it is written down: the dead letter first, then the end."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import msgspec

from reknit.attempts import Tally, Try
from reknit.ledger import Stream
from reknit.outcome import CODE_OF, Code, End, Outcome, Reason
from reknit.protocol.dispatch.overflow import Overflow
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.state import Desk
from reknit.protocol.effects import DeadLetter
from reknit.records import OutcomeRow, Outcomes
from reknit.seqset import Range


class Endings:
    """Ends events of queues, and of durable subscribers that are away."""

    def __init__(self, desk: Desk, overflow: Overflow) -> None:
        self._desk = desk
        self._overflow = overflow

    def row(
        self,
        stream: Stream,
        bounds: Range,
        end: End,
        code: int = 0,
        reason: str = "",
        text: str = "",
        attempts: int = 1,
    ) -> OutcomeRow:
        return OutcomeRow(*stream, *bounds, end, int(code), str(reason), text, attempts, self._desk.time_us)

    def accept(self, queue: Queue, stream: Stream, bounds: Range) -> list[OutcomeRow]:
        """The subscriber has processed these."""
        ranges = queue.at_hand(stream, *bounds, is_final=True) if stream in queue.waiting else [bounds]
        return [
            self.row(stream, ended, End.ACCEPTED, Code.OK)
            for one in ranges
            for ended in queue.end(stream, *one)
        ]

    def dead_letter(
        self,
        queue: Queue,
        stream: Stream,
        bounds: Range,
        code: int,
        reason: Reason,
        text: str,
        last: Try | None = None,
    ) -> list[OutcomeRow]:
        """End open events as dead letters; `last` is the attempt that led to it and is in no tally yet."""
        rows: list[OutcomeRow] = []
        seqs = queue.open.get(stream)
        for low, high in seqs.overlap(*bounds) if seqs else ():
            for start, stop, tally in queue.alike(stream, low, high, operator.eq):
                counted = (tally or Tally()).tried(last) if last is not None else tally or Tally()
                rows.append(
                    self.letter(
                        queue.name, stream, (start, stop), code, reason, text, counted, str(queue.peer)
                    )
                )
        queue.end(stream, *bounds)
        return rows

    def letter(
        self,
        name: str,
        stream: Stream,
        bounds: Range,
        code: int,
        reason: Reason,
        text: str,
        tally: Tally,
        path: str = "",
    ) -> OutcomeRow:
        """Make dead letters of events; gives the end that is to be booked after them."""
        code = code or int(CODE_OF[reason])
        letter = DeadLetter(
            name, *stream, *bounds, code, str(reason), text, tally.acquired, path, tally.tries
        )
        effects = self._desk.effects
        if effects and isinstance(last := effects[-1], DeadLetter) and _continues(last, letter):
            effects[-1] = msgspec.structs.replace(last, stop=letter.stop)
        else:
            effects.append(letter)
        return self.row(stream, bounds, End.DEAD_LETTERED, code, reason, text, tally.acquired)

    def reject(self, queue: Queue, stream: Stream, bounds: Range, code: int, text: str) -> list[OutcomeRow]:
        """The subscriber refuses these for good."""
        text = text or "rejected by the subscriber"
        last = Try(self._desk.time_us, Outcome.REJECTED, code)
        return [
            row
            for one in queue.at_hand(stream, *bounds, is_final=True)
            for row in self.dead_letter(queue, stream, one, code, Reason.REJECTED, text, last)
        ]

    def book(self, queue: Queue, rows: list[OutcomeRow]) -> None:
        """Write down what ended for a connected subscriber."""
        floor = queue.move_floor(self._desk.end)
        if queue.is_durable and rows:
            self.record(queue.name, rows, floor)

    def record(self, name: str, rows: Sequence[OutcomeRow], floor: int) -> None:
        """Write down what ended for a durable subscriber."""
        self._desk.floors[name] = floor
        self._overflow.ended(name, rows)
        self._desk.recorded[name] = self._desk.append(Outcomes(name, _merged(rows), floor))


def _continues(last: DeadLetter, letter: DeadLetter) -> bool:
    """Whether a letter is about what follows the last one, and says the same."""
    return (
        last.stop == letter.start
        and msgspec.structs.replace(letter, start=last.start, stop=last.stop) == last
    )


def _merged(rows: Sequence[OutcomeRow]) -> list[OutcomeRow]:
    """The same rows, those that follow each other and say the same as one."""
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
