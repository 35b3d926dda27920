"""Handing out: from the journal's tail or by a scan as far as credit goes, then what waits beside the cursor.

The plain way is per batch: pieces of a run, as the bytes that they are. Only what is paused, ordered, expired, leased
or handed out before is looked at more closely.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from reknit.batch import Head
from reknit.entries import Run
from reknit.ledger import Stream
from reknit.outcome import Reason
from reknit.protocol.dispatch.expiry import TEXT, Expiry
from reknit.protocol.dispatch.inputs import Key
from reknit.protocol.dispatch.outcome_recorder import Endings
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.redelivery import TURN_BYTES, Asides
from reknit.protocol.dispatch.state import Desk
from reknit.protocol.effects import Deliver, Piece, Scan
from reknit.seqset import Range, SeqSet

TAIL_BYTES_MAX: Final = 8 << 20
"""So much of the journal's newest runs is at hand; who is further behind reads from the journal."""
SCAN_BYTES: Final = 1 << 20


class Handing:
    """Brings queues forward."""

    def __init__(self, desk: Desk, endings: Endings, expiry: Expiry, asides: Asides) -> None:
        self._desk = desk
        self._endings = endings
        self._expiry = expiry
        self._asides = asides
        self._tail: deque[Run] = deque()
        self._tail_bytes = 0

    # -- the journal grows, and shrinks

    def grow(self, runs: list[Run], end: int) -> None:
        """There is more in the journal."""
        for run in runs:
            if not run.entries:
                continue
            self._tail.append(run)
            self._tail_bytes += len(run.data)
            woken: dict[Queue, None] = {}
            for topic in dict.fromkeys([entry.head.topic for entry in run.entries]):
                woken.update(dict.fromkeys(self._desk.index.match(topic)))
            for queue in woken:
                if queue.cursor < 0:
                    self._hand_out(queue, run, 0, queue.room)
                else:
                    self._look_ahead(queue, run)
                if queue.lanes and queue.lanes.is_ready:
                    self.pump(queue)
        while self._tail_bytes > TAIL_BYTES_MAX and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.popleft().data)
        self._desk.end = end

    def trim(self, start: int) -> None:
        """The journal begins at `start` now."""
        while self._tail and self._tail[0].next_position <= start:
            self._tail_bytes -= len(self._tail.popleft().data)

    def _look_ahead(self, queue: Queue, run: Run) -> None:
        """The queue is behind. What comes with another priority than waits at its cursor does not wait behind that."""
        for entry in run.entries:
            head = entry.head
            stream = (head.topic, head.source)
            if head.priority == queue.cursor_priority and queue.lanes.get(stream) is None:
                continue
            if not queue.pattern.matches(head.topic) or not self._is_next(queue, stream, head):
                continue
            if (
                queue.lanes.parts >= self._desk.rules.lanes_max
                or self._desk.rules.of(head.topic).order != "none"
            ):
                continue
            lane = queue.lanes.lane(stream, head.topic, head.priority, is_ordered=False)
            queue.set_aside(entry.position, stream, head.first, head.stop, early=True)
            queue.lanes.add(lane, stream, head.first, head.stop, head.length / head.count)

    def _is_next(self, queue: Queue, stream: Stream, head: Head) -> bool:
        """Whether everything of its stream before it was passed: then it overtakes nothing of its own source."""
        if stream in queue.passed:
            return queue.passed[stream] == head.first
        published = self._desk.ledger.published.get(stream)
        return published is not None and published.first == head.first and not queue.after

    # -- pumping

    def pump(self, queue: Queue) -> None:
        """Hand out as much as there is room for: from the cursor and from the lanes, by their priorities."""
        while queue.room > 0:
            classes = queue.lanes.priorities
            has_cursor = not queue.is_live and not queue.scanning
            if not classes:
                if not has_cursor or not self._pump_cursor(queue, queue.room):
                    return
                continue
            if has_cursor and queue.cursor_priority not in classes:
                classes.append(queue.cursor_priority)
            turn = queue.shares.next(classes)
            before = queue.sent
            if not (has_cursor and self._is_cursors(queue, turn) and self._pump_cursor(queue, TURN_BYTES)):
                ready = queue.lanes.priorities
                if not ready or queue.room <= 0:
                    return
                self._asides.hand_out_lane(queue, queue.lanes.first(turn if turn in ready else ready[0]))
            queue.shares.had(turn, queue.sent - before)

    def _is_cursors(self, queue: Queue, turn: int) -> bool:
        """Whether it is the cursor's turn: it shares that with lanes of its priority."""
        queue.is_cursors_turn = not queue.is_cursors_turn
        return turn == queue.cursor_priority and (queue.is_cursors_turn or turn not in queue.lanes.priorities)

    def _pump_cursor(self, queue: Queue, room: int) -> bool:
        """Bring a queue that is behind forward: from the tail, or by a scan. False where nothing more can be done."""
        run = self._tail_run(queue.cursor)
        if queue.cursor >= self._desk.end or (run is None and self._tail):
            queue.cursor = -1
            return False
        if run is None or queue.cursor < self._tail[0].position:
            queue.scanning = True
            self._desk.effects.append(Scan((queue.peer, queue.sub), queue.cursor, SCAN_BYTES))
            return False
        before = (queue.cursor, queue.sent, queue.in_flight)
        self._hand_out(queue, run, queue.cursor, room)
        return before != (queue.cursor, queue.sent, queue.in_flight)

    def _tail_run(self, position: int) -> Run | None:
        """The first run of the tail that reaches beyond the position. Between runs there are only records."""
        low, high = 0, len(self._tail)
        while low < high:
            middle = (low + high) // 2
            if self._tail[middle].next_position <= position:
                low = middle + 1
            else:
                high = middle
        return self._tail[low] if low < len(self._tail) else None

    def scanned(self, key: Key, run: Run) -> None:
        """What a scan found."""
        queue = self._desk.queues.get(key)
        if queue is None or not queue.scanning:
            return
        queue.scanning = False
        self._hand_out(queue, run, queue.cursor, queue.room)
        self.pump(queue)

    # -- from the cursor

    def _hand_out(self, queue: Queue, run: Run, position: int, room: int) -> None:
        """Hand out what matches of a run from `position` on, while there is room; remember where that ended."""
        pieces: list[Piece] = []
        size = 0
        matches = queue.pattern.matches
        plain = self._is_plain(queue, max(position, run.position))
        stopped_at = run.next_position
        for index, entry in enumerate(run.entries):
            head = entry.head
            if entry.position < position or not matches(head.topic):
                continue
            if size >= room:
                stopped_at, queue.cursor_priority = entry.position, head.priority
                break
            if (not plain or head.ttl_ms or head.flags) and not self._is_whole(queue, run, index):
                self._deliver(queue, pieces, size, entry.position)
                pieces, size, room = [], 0, room - size
                if self._hand_out_odd(queue, run, index):
                    continue
                stopped_at, queue.cursor_priority = entry.position, head.priority
                break
            queue.hand_out(entry.position, head)
            if queue.leases is not None:
                queue.leases.note(self._desk.now, (head.topic, head.source), head.first, head.stop, 1)
            if pieces and pieces[-1].high == index:
                pieces[-1] = Piece(run, pieces[-1].low, index + 1)
            else:
                pieces.append(Piece(run, index, index + 1))
            size += head.length
        was_live = queue.is_live
        queue.cursor = -1 if was_live and stopped_at == run.next_position else stopped_at
        self._deliver(queue, pieces, size, stopped_at)

    def _is_plain(self, queue: Queue, position: int) -> bool:
        """Whether nothing has to be looked at more closely."""
        desk = self._desk
        is_fresh = position >= queue.resumed_to and not queue.after and queue.part[0] < position
        return (
            is_fresh
            and not desk.pauses
            and not desk.rules.has_order
            and not desk.rules.has_ttl
            and queue.leases is None
            and not queue.lanes
            and not queue.early_seqs
        )

    def _deliver(self, queue: Queue, pieces: list[Piece], size: int, position: int) -> None:
        """Batches go to the subscriber, and the place after them: none while something before it waits in a lane."""
        if pieces:
            queue.sent += size
            place = -1 if queue.lanes else position
            self._desk.effects.append(Deliver(queue.peer, queue.sub, pieces, size, place))
            if queue.leases is not None:
                self._desk.backing_off[queue] = None

    def _is_whole(self, queue: Queue, run: Run, index: int) -> bool:
        """Whether a batch is handed out as it is after all."""
        entry = run.entries[index]
        head, stream = entry.head, (entry.head.topic, entry.head.source)
        return (
            queue.wants_all(entry.position, head)
            and stream not in queue.early_seqs
            and queue.lanes.get(stream) is None
            and not (stream in queue.tallies and queue.was_tried(stream, head.first, head.stop))
            and not self._desk.pauses.is_paused(head.topic)
            and not self._is_ordered(queue, head.topic)
            and head.count <= queue.events_room
            and not (queue.is_durable and self._expiry.has_ttl(head) and self._expired(run, index))
        )

    def _is_ordered(self, queue: Queue, topic: str) -> bool:
        rules = self._desk.rules
        return rules.has_order and queue.is_durable and rules.of(topic).order != "none"

    def _expired(self, run: Run, index: int) -> list[Range]:
        now_us = self._desk.time_us
        return [
            (start, stop) for start, stop, due_us in self._expiry.deadlines(run, index) if due_us < now_us
        ]

    def _hand_out_odd(self, queue: Queue, run: Run, index: int) -> bool:
        """A batch of which only parts are wanted, or not now; False where it can't be passed yet."""
        entry = run.entries[index]
        head, stream = entry.head, (entry.head.topic, entry.head.source)
        wanted = self._not_early(queue, stream, queue.wanted(entry.position, head))
        if wanted and queue.is_durable and self._expiry.has_ttl(head):
            wanted = self._bury(queue, entry.position, stream, wanted, self._expired(run, index))
        lane = queue.lanes.get(stream)
        is_ordered = self._is_ordered(queue, head.topic)
        if is_ordered or lane is not None or self._desk.pauses.is_paused(head.topic):
            if queue.lanes.parts >= self._desk.rules.lanes_max:
                return False
            self._asides.set_aside(queue, run, index, wanted, is_ordered)
        else:
            for low, high in wanted:
                stop = min(high, low + queue.events_room)
                if low < stop:
                    self._hand_out_part(queue, entry.position, stream, low, stop, head)
                if stop < high:
                    queue.part = (entry.position, stop)
                    return False
        queue.passed[stream] = max(head.stop, queue.passed.get(stream, 0)) if queue.early else head.stop
        return True

    def _not_early(self, queue: Queue, stream: Stream, wanted: list[Range]) -> list[Range]:
        """Without what went before the cursor came to it."""
        seqs = queue.early_seqs.get(stream)
        if seqs is None:
            return wanted
        left = [part for one in wanted for part in seqs.missing(*one)]
        for one in wanted:
            seqs.discard(*one)
        if not seqs:
            del queue.early_seqs[stream]
        return left

    def _bury(
        self, queue: Queue, position: int, stream: Stream, wanted: list[Range], expired: list[Range]
    ) -> list[Range]:
        """Make dead letters of what has expired; gives the rest."""
        dead = SeqSet.from_ranges(expired)
        rows = []
        for low, high in [part for one in wanted for part in dead.overlap(*one)]:
            queue.set_aside(position, stream, low, high)
            rows += self._endings.dead_letter(queue, stream, (low, high), 0, Reason.EXPIRED, TEXT)
        self._endings.book(queue, rows)
        return [part for one in wanted for part in dead.missing(*one)]

    def _hand_out_part(
        self, queue: Queue, position: int, stream: Stream, start: int, stop: int, head: Head
    ) -> None:
        """Events that were tried before wait for their time; others go out, each piece with its attempt."""
        for low, high, tally in queue.alike(stream, start, stop):
            rest_s = 0.0
            if tally is not None and tally.failed:
                since_s = (self._desk.time_us - tally.tries[-1].time_us) / 1e6 if tally.tries else 0.0
                rest_s = self._desk.rules.retry.delay_s(tally.failed, self._desk.rng) - since_s
            if rest_s > 0:
                queue.set_aside(position, stream, low, high)
                queue.put_again(stream, low, high, self._desk.now + rest_s)
                self._desk.backing_off[queue] = None
            else:
                queue.hand_out_range(position, stream, low, high)
                self._asides.redeliver(queue, stream, low, high, head.length / head.count)
