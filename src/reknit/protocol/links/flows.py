"""Events that every subscriber gets, from node to node: one copy over each link, from journal to journal.

The journal is the queue. A node reads its own journal for each neighbour, and sends the events that are wanted there or
behind it. The neighbour acknowledges the position up to which it has stored them, remembers it, and requests events from
there when the link is up again. Events keep their source and seq, so duplicates are dropped, and gaps are noticed and
recovered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from reknit.batch import TYPE_REQUEST, Batch, Head
from reknit.entries import Run
from reknit.errors import Gone
from reknit.frame import Buffer
from reknit.ledger import Series
from reknit.protocol.links.forwarding_table import ForwardingTable
from reknit.protocol.links.inputs import ContinueSoon, Effect, RequestForwarded, SendFrames, SendOnLine
from reknit.protocol.links.missed_events import MissedEvents
from reknit.protocol.machine import Peer
from reknit.wire.codec import encode
from reknit.wire.links import Carry, Pull

TURN_BYTES: Final = 1 << 20
"""How much of the journal is read for one neighbour in one turn. All of them may have to look back at once."""
TELL_BYTES: Final = 4 << 20
"""After this much of the journal without events for it, a neighbour is told the position anyway."""


class FollowedJournal(Protocol):
    """The durable part of a journal, as everybody reads it who follows it."""

    @property
    def start(self) -> int:
        """The first position held."""

    @property
    def end(self) -> int:
        """The position after the last batch that may be passed on."""

    def read(self, position: int) -> Run:
        """Batches from a position on. Raises `Gone` where retention removed them."""

    def position_at(self, time_us: int) -> int:
        """Where to start reading to get everything stored at or after a time."""


class SentParts:
    """The parts of the journal that were sent to a neighbour, until it acknowledges them."""

    __slots__ = ("_began", "_front", "_got", "_unacked", "bytes", "stored")

    def __init__(self) -> None:
        self._unacked: deque[tuple[int, int, dict[Series, int]]] = deque()
        """(position, bytes, {series: stop})"""
        self.bytes = 0
        """How much is not acknowledged."""
        self.stored: dict[Series, int] = {}
        """The seq up to which a series was sent and acknowledged: it is not sent again over another line."""
        self._got = self._front = self._began = -1

    @property
    def reached(self) -> int:
        """Everything before this position is stored there."""
        return max(self._got, self._began)

    def resume(self, position: int, cursor: int) -> None:
        """The neighbour requests events; it has stored everything before `position`, -1 if that is not known."""
        if position < self._got:  # it may have lost what it acknowledged
            self.stored.clear()
        self._unacked.clear()
        self.bytes = 0
        self._got, self._front, self._began = position, cursor, cursor

    def sent(self, position: int, size: int, stops: dict[Series, int]) -> None:
        """A part up to a position was sent. One that is sent after a later part may be lost when that was stored."""
        self._unacked.append((position, size, stops if position > self._front else {}))
        self._front = max(self._front, position)
        self.bytes += size

    def got(self, position: int) -> None:
        """Everything that was sent before and with the part up to a position is stored there.

        Earlier parts of the journal may have been sent after later ones, and one answer may cover both.
        """
        is_behind = bool(self._unacked) and self._unacked[0][0] > position
        is_before = is_behind and any(at == position for at, *_ in self._unacked)
        while self._unacked and (is_before or self._unacked[0][0] <= position):
            at, size, stops = self._unacked.popleft()
            is_before = is_before and at != position
            self._got = max(self._got, at)
            self.bytes -= size
            self.stored.update(stops)


class OutgoingFlow:
    """What is sent to one neighbour. It stays while the link is down, and resumes when the neighbour requests events."""

    def __init__(
        self,
        name: str,
        *,
        window_bytes: int,
        epoch: str,
        journal: FollowedJournal,
        table: ForwardingTable,
        missed: MissedEvents,
        emit: Callable[[Effect], None],
    ) -> None:
        self._name = name
        self._window_bytes = window_bytes
        self._epoch = epoch
        self._journal = journal
        self._table = table
        self._missed = missed
        self._emit = emit
        self._first = 0
        self._line: Peer | None = None
        self._origins_told: set[bytes] = set()
        """Sources whose origin the neighbour was told over this line."""
        self._cursor = -1
        self._told = self._since = 0
        self._front = self._left_at = -1
        """The position up to which everything was sent over this line, and what was stored there when one was lost."""
        self._sent = SentParts()
        self._passed: dict[Series, int] = {}
        """The seq up to which a series was sent there, or came from there."""
        self.events = 0
        """How many events were sent."""
        self.pulled = 0
        """From where on the neighbour asked for events last."""
        self.lost_us = 0
        """When a line was lost last, in microseconds since 1970."""

    def up(self, first: int) -> None:
        """The neighbour is linked; `first` is where its events begin if it has no position of its own."""
        self._first = first

    def lost(self, line: Peer, now_us: int) -> None:
        """A line is gone. If events were requested over another one, they go on there."""
        self.lost_us = now_us
        if line == self._line:
            self._left_at = self.reached
            self._line, self._cursor = None, -1

    @property
    def reached(self) -> int:
        """Everything before this position that was meant for the neighbour is stored there; -1 if that is not known."""
        if self._line is None:
            return self._left_at
        return self._sent.reached if self._sent.bytes else max(self._sent.reached, self._front)

    def stored(self, series: Series) -> int:
        """The seq up to which a series was sent there, and is stored."""
        return self._sent.stored.get(series, 0)

    def pull(self, wanted: Pull, line: Peer) -> bool:
        """The neighbour requests events from a position on; returns whether it missed some that are gone.

        They go over the line of the request. That is the one which counts for the neighbour; another one may count here.
        """
        journal = self._journal
        self._line = line
        self._origins_told.clear()
        is_known = wanted.position >= 0 and wanted.epoch == self._epoch
        if is_known:
            self._cursor = max(wanted.position, journal.start)
        else:
            self._cursor = journal.start if wanted.position >= 0 else max(self._first, journal.start)
        self._sent.resume(wanted.position if is_known else -1, self._cursor)
        self._passed = dict(self._sent.stored)
        self._told = self.pulled = self._front = self._cursor
        self._missed.tell_again(self._name)
        # Events before its position may not have been meant for it at that time, and be now: see `look_back`.
        self._since = min(self._first, self._cursor)
        if wanted.position < 0:
            self._emit(SendOnLine(line, Carry(0, self._cursor, [])))
        self.pump()
        return is_known and wanted.position < journal.start

    def came(self, series: Series, stop: int) -> None:
        """Events came from there: they need not go back."""
        if stop > self._passed.get(series, 0):
            self._passed[series] = stop

    def got(self, position: int) -> None:
        """Everything up to a position is stored there."""
        self._sent.got(position)
        self.pump()

    def forget_origin(self, source: bytes) -> None:
        """The origin of a source changed: the neighbour is told again."""
        self._origins_told.discard(source)

    def look_back(self, position: int) -> None:
        """Routes changed: another node may have been meant to send events from `position` on, and be gone."""
        if self._cursor >= 0:
            self._cursor = min(self._cursor, max(position, self._since))
            self.pump()

    def pump(self) -> None:
        """Send events, as far as there are some and the neighbour keeps up."""
        journal, line = self._journal, self._line
        stop = self._cursor + TURN_BYTES
        while line is not None and 0 <= self._cursor < journal.end and self._sent.bytes < self._window_bytes:
            if self._cursor >= stop:
                self._emit(ContinueSoon())  # let others run first
                return
            try:
                run = journal.read(self._cursor)
            except Gone:
                self._cursor = journal.start
                continue
            self._tell_missed(line)
            self._send(run, line)
            self._cursor = run.next_position
            self._front = max(self._front, self._cursor)
        if line is not None and self._cursor >= 0:
            self._tell_missed(line)

    def _tell_missed(self, line: Peer) -> None:
        """Tell the neighbour which events will not come, after those before them."""
        due = self._missed.due(self._name, self._cursor)
        if due is not None:
            number, losses = due
            origins = self._new_origins({one.source for one in losses})
            self._emit(SendOnLine(line, Carry(0, self._cursor, origins, losses, number)))

    def _new_origins(self, sources: set[bytes]) -> list[tuple[bytes, str]]:
        """The nodes on which these sources are published, as far as the neighbour was not told."""
        found: list[tuple[bytes, str]] = []
        for source in sorted(sources - self._origins_told):
            if (origin := self._table.origins.told(source)) is not None:
                self._origins_told.add(source)
                found.append((source, origin))
        return found

    def _send(self, run: Run, line: Peer) -> None:
        pieces: list[Buffer] = []
        low, origins, stops = -1, [], dict[Series, int]()
        for index, entry in enumerate(run.entries):
            if self._is_wanted(entry.head):
                low = index if low < 0 else low
                source = entry.head.source
                stops[entry.head.topic, source] = entry.head.stop
                if source not in self._origins_told:
                    origins += self._new_origins({source})
                continue
            if low >= 0:
                pieces.append(run.cut(low, index))
                low = -1
        if low >= 0:
            pieces.append(run.cut(low, len(run.entries)))
        size = sum(map(len, pieces))
        if pieces or run.next_position - self._told >= TELL_BYTES:
            self._told = run.next_position
            self._sent.sent(run.next_position, size, stops)
            self._emit(SendFrames(line, [encode(Carry(size, run.next_position, origins)), *pieces]))

    def _is_wanted(self, head: Head) -> bool:
        series = (head.topic, head.source)
        if head.stop <= self._passed.get(series, 0) or not self._table.is_wanted(self._name, series):
            return False
        self._passed[series] = head.stop
        self.events += head.count
        if head.type == TYPE_REQUEST:
            self._emit(RequestForwarded(head))
        return True


class ReceivedPart(msgspec.Struct, eq=False):
    """A part of a neighbour's journal that is arriving. It is done when all of it has arrived and is durable here."""

    position: int
    """The neighbour's position after it."""
    batches_open: int = 0
    """How many of its batches are not durable here."""
    is_whole: bool = False
    """Whether all of it has arrived."""
    missed: list[Carry] = []
    """What is lost after it."""


class IncomingFlow:
    """What comes from one neighbour: acknowledged up to a position when everything before it is durable here."""

    def __init__(self) -> None:
        self._parts: deque[ReceivedPart] = deque()
        self._part_of: dict[Batch, ReceivedPart] = {}
        """While the batch is not durable."""
        self._missed: list[Carry] = []
        """What may be recorded as lost: everything before is durable."""
        self.is_open = False
        """Whether its events can be stored."""
        self.events = 0
        """How many events came."""

    def opened(self) -> None:
        """Its events can be stored from now on."""
        self.is_open = True

    def pulled(self) -> None:
        """Events are requested anew: what was on its way is sent again."""
        self._missed.clear()
        self._parts.clear()
        self._part_of.clear()

    def take(self, position: int, batches: list[Batch], is_last: bool) -> int:
        """Batches arrived, up to a position of the neighbour's journal; returns the position to acknowledge, or -1."""
        if not self._parts or self._parts[-1].position != position:
            self._parts.append(ReceivedPart(position))
        part = self._parts[-1]
        part.batches_open += len(batches)
        part.is_whole = is_last
        for batch in batches:
            self.events += batch.count
            self._part_of[batch] = part
        return self._advance()

    def miss(self, carry: Carry) -> None:
        """Events are lost that were meant to come after those that have arrived."""
        if self._parts:
            self._parts[-1].missed.append(carry)
        else:
            self._missed.append(carry)

    def take_missed(self) -> list[Carry]:
        """The losses that may be recorded, each once."""
        missed, self._missed = self._missed, []
        return missed

    def stored(self, batch: Batch) -> int:
        """A batch is durable; returns the position to acknowledge, or -1."""
        part = self._part_of.pop(batch, None)
        if part is None:
            return -1
        part.batches_open -= 1
        return self._advance()

    def _advance(self) -> int:
        position = -1
        while self._parts and self._parts[0].batches_open == 0 and self._parts[0].is_whole:
            part = self._parts.popleft()
            position = part.position
            self._missed += part.missed
        return position
