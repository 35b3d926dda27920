"""What the application said of events: gathered, sent as one message, and kept until the node has booked it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from reknit.batch import Batch
from reknit.ledger import Stream
from reknit.outcome import Outcome
from reknit.seqset import SeqSet
from reknit.wire.messages import Rejection, Row, Settle


class Said:
    """The outcomes of one subscription.

    >>> said = Said(sub=1)
    >>> said.accept(("plant/a", b"s" * 16), 1, 3)
    >>> said.accept(("plant/a", b"s" * 16), 3, 9)
    >>> [(row.start, row.stop) for row in said.flush().rows], said.is_booked
    ([(1, 9)], False)
    >>> said.book(1)
    >>> said.is_booked
    True
    """

    def __init__(self, sub: int) -> None:
        self._sub = sub
        self.number = 0
        """Of the last message."""
        self.rows: list[Row] = []
        self._rejected: list[Rejection] = []
        self._unbooked: deque[Settle] = deque()

    def accept(self, stream: Stream, start: int, stop: int) -> None:
        """Mostly what follows on what was accepted before: one row for all of it."""
        last = self.rows[-1] if self.rows else None
        if last is not None and _follows(last, stream, start):
            self.rows[-1] = Row(*stream, last.start, stop, last.outcome)
        else:
            self.rows.append(Row(*stream, start, stop, int(Outcome.ACCEPTED)))

    def bury(self, batch: Batch, reason: str, code: int, text: str) -> None:
        """Events that the node did not hand out: it gets them, to make dead letters of them."""
        self._rejected.append(Rejection(bytes(batch.data), code, text, batch.attempt, reason))

    def flush(self) -> Settle | None:
        """All that gathered, as one message; None if there is nothing."""
        if not self.rows and not self._rejected:
            return None
        self.number += 1
        message = Settle(self._sub, self.number, self.rows, self._rejected)
        self.rows, self._rejected = [], []
        self._unbooked.append(message)
        return message

    def unbooked(self) -> list[Settle]:
        """What the node has not confirmed: it is said again after a reconnection."""
        return list(self._unbooked)

    def all_rows(self) -> Iterator[Row]:
        """Everything that the node may not know of yet."""
        for message in self._unbooked:
            yield from message.rows
        yield from self.rows

    def ranges(self) -> dict[Stream, SeqSet]:
        """What that is about."""
        said: dict[Stream, SeqSet] = {}
        for row in self.all_rows():
            said.setdefault((row.topic, row.source), SeqSet()).add(row.start, row.stop)
        return said

    def book(self, number: int) -> None:
        """The node has booked everything up to this number."""
        while self._unbooked and self._unbooked[0].number <= number:
            self._unbooked.popleft()

    def clear(self) -> None:
        """It is of no interest any more."""
        self.rows, self._rejected = [], []
        self._unbooked.clear()

    @property
    def is_booked(self) -> bool:
        """Whether the node knows everything."""
        return not self.rows and not self._rejected and not self._unbooked


def _follows(row: Row, stream: Stream, start: int) -> bool:
    same = row.outcome == Outcome.ACCEPTED and row.stop == start
    return same and (row.topic, row.source) == stream
