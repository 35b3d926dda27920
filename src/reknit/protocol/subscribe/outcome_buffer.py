"""Outcomes on their way to the node: gathered, sent as one message, and held until the node has stored them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from reknit.batch import Batch
from reknit.fields import SeriesRange
from reknit.ledger import Series
from reknit.outcome import Outcome
from reknit.protocol.disposition import Disposition
from reknit.seqset import SeqSet
from reknit.wire.messages import DispositionRow, Rejection, Settle


class OutcomeBuffer:
    """The outcomes of one subscription.

    >>> buffer = OutcomeBuffer(sub=1)
    >>> buffer.accept(("plant/a", b"s" * 16), 1, 3)
    >>> buffer.accept(("plant/a", b"s" * 16), 3, 9)
    >>> [(row.start, row.stop) for row in buffer.flush().rows], buffer.is_empty
    ([(1, 9)], False)
    >>> buffer.confirm(1)
    >>> buffer.is_empty
    True
    """

    def __init__(self, sub: int) -> None:
        self._sub = sub
        self.number = 0
        """Of the last message."""
        self._rows: list[DispositionRow] = []
        self._rejected: list[Rejection] = []
        self._lost: list[SeriesRange] = []
        self._unconfirmed: deque[Settle] = deque()

    def accept(self, series: Series, start: int, stop: int) -> None:
        """Events are accepted. A range that follows the last accepted one extends its row."""
        last = self._rows[-1] if self._rows else None
        if last is not None and _extends(last, series, start, Outcome.ACCEPTED):
            self._rows[-1] = DispositionRow(*series, last.start, stop, last.outcome)
        else:
            self._rows.append(DispositionRow(*series, start, stop, int(Outcome.ACCEPTED)))

    def add(self, series: Series, start: int, stop: int, said: Disposition) -> None:
        """Events have any other outcome."""
        row = DispositionRow(
            *series, start, stop, int(said.outcome), said.code, said.text, said.delay_s, said.attempt
        )
        self._rows.append(row)

    def add_or_extend(self, series: Series, start: int, stop: int, said: Disposition) -> None:
        """The same. A range that continues a row with the same outcome and no text extends it."""
        last = self._rows[-1] if self._rows else None
        if last is not None and not said.text and _extends(last, series, start, said.outcome):
            self._rows[-1] = DispositionRow(*series, last.start, stop, int(said.outcome), said.code)
        else:
            self.add(series, start, stop, said)

    def reject_recovered(self, batch: Batch, reason: str, code: int, text: str) -> None:
        """Send recovered events to the node, which makes dead letters of them: it did not deliver them."""
        self._rejected.append(Rejection(bytes(batch.data), code, text, batch.attempt, reason))

    def note_lost(self, series: Series, start: int, stop: int) -> None:
        """The subscriber knows that these events are lost."""
        self._lost.append(SeriesRange(*series, start, stop))

    def flush(self) -> Settle | None:
        """Everything gathered, as one message; None if there is nothing."""
        if not self._has_gathered:
            return None
        self.number += 1
        message = Settle(self._sub, self.number, self._rows, self._rejected, self._lost)
        self._rows, self._rejected, self._lost = [], [], []
        self._unconfirmed.append(message)
        return message

    def unconfirmed(self) -> list[Settle]:
        """The messages that the node has not confirmed: they are sent again after a reconnection."""
        return list(self._unconfirmed)

    def all_rows(self) -> Iterator[DispositionRow]:
        """All rows that the node may not have stored yet."""
        for message in self._unconfirmed:
            yield from message.rows
        yield from self._rows

    def ended_of(self, series: Series) -> SeqSet:
        """The events of a series that ended in those rows."""
        return SeqSet.from_ranges(
            (row.start, row.stop)
            for row in self.all_rows()
            if (row.topic, row.source) == series and Outcome(row.outcome).is_final
        )

    def end_again(self, series: Series, start: int, stop: int) -> bool:
        """Events that ended came again: say their outcomes that were sent once more. Returns whether there were some.

        The node may have got them before the events, from another node, and ignored them.
        """
        rows = [
            msgspec.structs.replace(row, start=max(row.start, start), stop=min(row.stop, stop))
            for message in self._unconfirmed
            for row in message.rows
            if (row.topic, row.source) == series and row.start < stop and row.stop > start
        ]
        again = _final(rows)
        self._rows += again
        return bool(again)

    def release_again(self, given_back: Iterable[tuple[Series, SeqSet]]) -> None:
        """Release events that were given back and that none of those rows is about."""
        known: dict[Series, SeqSet] = {}
        for row in self.all_rows():
            known.setdefault((row.topic, row.source), SeqSet()).add(row.start, row.stop)
        for series, seqs in given_back:
            for low, high in seqs.difference(known.get(series, SeqSet())).ranges():
                self.add(series, low, high, Disposition(Outcome.RELEASED))

    def drop_given_back(self) -> None:
        """The node has another journal: what was given back is delivered anyway, and attempts count anew there."""
        self._rows = _final(self._rows)
        self._unconfirmed = deque(
            msgspec.structs.replace(message, rows=_final(message.rows)) for message in self._unconfirmed
        )

    def confirm(self, number: int) -> None:
        """The node has stored everything up to this number."""
        while self._unconfirmed and self._unconfirmed[0].number <= number:
            self._unconfirmed.popleft()

    def clear(self) -> None:
        """Drop everything: the outcomes do not matter any more."""
        self._rows, self._rejected, self._lost = [], [], []
        self._unconfirmed.clear()

    @property
    def is_empty(self) -> bool:
        """Whether the node has stored every outcome."""
        return not self._has_gathered and not self._unconfirmed

    @property
    def _has_gathered(self) -> bool:
        return bool(self._rows or self._rejected or self._lost)


def _final(rows: list[DispositionRow]) -> list[DispositionRow]:
    return [row for row in rows if Outcome(row.outcome).is_final]


def _extends(row: DispositionRow, series: Series, start: int, outcome: Outcome) -> bool:
    """Whether an outcome of the events from `start` on can extend a row."""
    is_same = row.stop == start and row.outcome == outcome and not row.text
    return is_same and (row.topic, row.source) == series
