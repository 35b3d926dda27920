"""Delivers from the journal: from its tail or by a scan, as far as credit goes, then what waits beside the cursor.

The plain way is per batch: slices of a run, as stored bytes. Only events that are paused, ordered, expired, leased or
were delivered before are looked at one by one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from reknit.batch import Head
from reknit.entries import Run
from reknit.ledger import Series
from reknit.outcome import Reason
from reknit.protocol.dispatch.expiry import EXPIRED_BEFORE_DELIVERY, Expiry
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.redelivery import TURN_BYTES, Redelivery
from reknit.protocol.dispatch.run_share import RunShare, share_of
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.effects import DeliverRuns, Fail, RunSlice, Scan
from reknit.protocol.queues.queue import Queue, QueueKey
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.seqset import Range, SeqSet

TAIL_BYTES_MAX: Final = 8 << 20
"""This much of the journal's newest runs is in memory; queues that are further behind scan the journal."""
SCAN_BYTES: Final = 1 << 20


class DeliveryPump:
    """Moves queues forward."""

    def __init__(
        self, state: DispatchState, recorder: OutcomeRecorder, expiry: Expiry, redelivery: Redelivery
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._expiry = expiry
        self._redelivery = redelivery
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
            self._wake(run)
        while self._tail_bytes > TAIL_BYTES_MAX and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.popleft().data)
        self._state.journal_ends_at(end)

    def _wake(self, run: Run) -> None:
        """Deliver a new run to all queues that match. Those with one pattern have one share of it."""
        topics = dict.fromkeys([entry.head.topic for entry in run.entries])
        woken: dict[Queue, None] = {}
        for topic in topics:
            woken.update(dict.fromkeys(self._state.queues.matching(topic)))
        shares: dict[str, RunShare] = {}
        is_plain = self._are_rules_plain
        for queue in woken:
            pattern = queue.pattern
            text = pattern.own + pattern.text
            if text not in shares:
                matches = pattern.matches
                matching = topics if len(topics) == 1 else {*filter(matches, topics)}
                shares[text] = share_of(run, matching, is_plain)
            try:
                self._grow_queue(queue, run, shares[text])
            except Exception as error:  # the other queues get the run all the same
                self._state.emit(Fail(queue.peer, error))

    def _grow_queue(self, queue: Queue, run: Run, share: RunShare) -> None:
        if not queue.is_live:
            self._look_ahead(queue, run)
        elif share.is_plain and queue.room >= share.room_min and queue.is_plain(run.position):
            queue.deliver_all(share.batches, share.size)
            whole = DeliverRuns(queue.peer, queue.sub, share.pieces, share.size, run.next_position)
            self._state.emit(whole)
            return
        else:
            self._deliver(queue, run, 0, queue.room)
        if queue.is_shared or (queue.lanes and queue.lanes.is_ready):
            self.pump(queue)

    def trim(self, start: int) -> None:
        """The journal begins at `start` now."""
        while self._tail and self._tail[0].next_position <= start:
            self._tail_bytes -= len(self._tail.popleft().data)

    def _look_ahead(self, queue: Queue, run: Run) -> None:
        """The queue is behind. A batch of another priority than the one at its cursor does not wait behind that."""
        rules, published = self._state.rules, self._state.ledger.published
        for entry in run.entries:
            head = entry.head
            series = (head.topic, head.source)
            if head.priority == queue.cursor.priority and queue.lanes.get(series) is None:
                continue
            if not queue.pattern.matches(head.topic):
                continue
            if not queue.cursor.is_next(series, head, published.get(series)):
                continue
            if queue.lanes.parts >= rules.lanes_max or queue.order or rules.of(head.topic).order != "none":
                continue
            lane = queue.lanes.lane(series, head.topic, head.priority, is_ordered=False)
            queue.set_aside_early(entry.position, series, head.first, head.stop, head.length / head.count)
            queue.lanes.add(lane, series, head.first, head.stop, head.length / head.count)

    # -- pumping

    def pump(self, queue: Queue) -> None:
        """Deliver as much as there is room for: from the cursor and from the lanes, by their priorities."""
        cursor, lanes = queue.cursor, queue.lanes
        while queue.next_turn():
            waiting = lanes.priorities
            can_read = cursor.can_read
            if not waiting:
                if not can_read or not self._pump_cursor(queue, queue.room):
                    return
                continue
            if can_read and cursor.priority not in waiting:
                waiting.append(cursor.priority)
            turn = queue.shares.next(waiting)
            used = queue.used
            is_cursors = can_read and cursor.takes_turn(turn, is_shared=turn in lanes.priorities)
            if not (is_cursors and self._pump_cursor(queue, min(TURN_BYTES, queue.room))):
                ready = lanes.priorities
                if not ready or not queue.next_turn():
                    return
                self._redelivery.deliver_from_lane(queue, lanes.first(turn if turn in ready else ready[0]))
            queue.shares.had(turn, queue.used - used)

    def _pump_cursor(self, queue: Queue, room: int) -> bool:
        """Move a queue that is behind forward: from the tail, or by a scan. False if nothing more can be done."""
        cursor = queue.cursor
        run = self._tail_run(cursor.position)  # while that is on its way to all queues, the end is before it
        if run is None and (self._tail or cursor.position >= self._state.end):
            cursor.go_live()
            return False
        if run is None or cursor.position < self._tail[0].position:
            run = queue.backlog_at(cursor.position)
        if run is None:
            cursor.scan_began()
            self._state.emit(Scan(queue.key, cursor.position, SCAN_BYTES))
            return False
        before = (cursor.position, queue.used, queue.unsettled.in_flight)
        self._deliver(queue, run, cursor.position, room)
        return before != (cursor.position, queue.used, queue.unsettled.in_flight)

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

    def scanned(self, key: QueueKey, run: Run) -> None:
        """Deliver the result of a scan."""
        queue = self._state.queues.get(key)
        if queue is None or not queue.cursor.is_scanning:
            return  # it left, or retention overtook the scan
        queue.cursor.scan_ended()
        queue.keep_backlog(run)
        self._deliver(queue, run, queue.cursor.position, queue.room)
        self.pump(queue)

    # -- from the cursor

    def _deliver(self, queue: Queue, run: Run, position: int, room: int) -> None:
        """Deliver from a run to the subscriber, or share its events among the members of the queue."""
        if not isinstance(queue, SharedQueue):
            self._deliver_run(queue, run, position, room)
            return
        matches, is_served = queue.pattern.matches, False
        heads = [entry.head for entry in run.entries if entry.position >= position]
        for _ in queue.turns(sum(head.count for head in heads if matches(head.topic))):
            is_served = True
            self._deliver_run(queue, run, position, queue.room)
            position = queue.cursor.position
            if queue.is_live or position >= run.next_position:
                return
        if not is_served:  # nothing matches, or nobody has room: it stops at the first event that does
            self._deliver_run(queue, run, position, 0)

    def _deliver_run(self, queue: Queue, run: Run, position: int, room: int) -> None:
        """Deliver the matching events of a run from `position` on, while there is room; remember where that ended."""
        pieces: list[RunSlice] = []
        size = 0
        matches, deliver, leases = queue.pattern.matches, queue.deliver, queue.leases
        plain = self._is_plain(queue, max(position, run.position))
        for index, entry in enumerate(run.entries):
            head = entry.head
            if entry.position < position or not matches(head.topic):
                continue
            if size >= room:
                stopped_at = entry.position
                queue.cursor.stop_at(stopped_at, head.priority)
                break
            if (not plain or head.ttl_ms or head.flags) and not self._is_whole(queue, run, index):
                self._send_slices(queue, pieces, size, entry.position)
                pieces, size, room = [], 0, room - size
                if self._deliver_in_part(queue, run, index):
                    continue
                stopped_at = entry.position
                queue.cursor.stop_at(stopped_at, head.priority)
                break
            event_bytes = head.length / head.count
            deliver(entry.position, (head.topic, head.source), head.first, head.stop, event_bytes)
            if leases is not None:
                leases.begin(self._state.now, (head.topic, head.source), head.first, head.stop, 1)
            if pieces and pieces[-1].high == index:
                pieces[-1] = RunSlice(run, pieces[-1].low, index + 1)
            else:
                pieces.append(RunSlice(run, index, index + 1))
            size += head.length
        else:
            stopped_at = run.next_position
            queue.cursor.read_to(stopped_at)
        self._send_slices(queue, pieces, size, stopped_at)

    def _is_plain(self, queue: Queue, position: int) -> bool:
        """Whether every batch without a ttl or flags can be delivered unchanged."""
        return self._are_rules_plain and queue.is_plain(position)

    @property
    def _are_rules_plain(self) -> bool:
        """Whether no topic is ordered, has a ttl or is paused."""
        rules = self._state.rules
        return not (rules.has_order or rules.has_ttl or self._state.pauses)

    def _send_slices(self, queue: Queue, pieces: list[RunSlice], size: int, position: int) -> None:
        """Send batches to the subscriber with the position after them: -1 while something before it waits."""
        if pieces:
            queue.credit.use(size)
            position = -1 if queue.lanes else position
            self._state.emit(DeliverRuns(queue.peer, queue.sub, pieces, size, position))
            if queue.leases is not None:
                self._state.queues.schedule(queue)

    def _is_whole(self, queue: Queue, run: Run, index: int) -> bool:
        """Whether a batch can be delivered unchanged after all."""
        entry = run.entries[index]
        head, series = entry.head, (entry.head.topic, entry.head.source)
        return (
            queue.wants_all(entry.position, head)
            and not queue.cursor.is_early(series)
            and queue.lanes.get(series) is None
            and not (series in queue.attempts and queue.attempts.tried_within(series, head.first, head.stop))
            and not self._state.pauses.is_paused(head.topic)
            and not self._is_ordered(queue, head.topic)
            and head.count <= queue.events_room
            and not (queue.is_durable and self._expiry.has_ttl(head) and self._expiry.expired(run, index))
        )

    def _is_ordered(self, queue: Queue, topic: str) -> bool:
        return self._state.order(queue, topic) != "none"

    def _deliver_in_part(self, queue: Queue, run: Run, index: int) -> bool:
        """A batch of which only parts are wanted, or not now. False if the cursor can't pass it yet."""
        entry = run.entries[index]
        head, series = entry.head, (entry.head.topic, entry.head.source)
        wanted = queue.cursor.not_early(series, queue.wanted(entry.position, head))
        if wanted and queue.is_durable and self._expiry.has_ttl(head):
            expired = self._expiry.expired(run, index)
            wanted = self._end_expired(queue, entry.position, series, wanted, expired)
        is_ordered = self._is_ordered(queue, head.topic)
        has_lane = queue.lanes.get(series) is not None
        if is_ordered or has_lane or self._state.pauses.is_paused(head.topic):
            if queue.lanes.parts >= self._state.rules.lanes_max:
                return False
            self._redelivery.set_aside(queue, run, index, wanted, is_ordered)
            if wanted and queue.is_durable and self._expiry.has_ttl(head):
                self._expiry.note(run, index)  # they may be older than the first durable subscriber
        else:
            for low, high in wanted:
                while low < high and (room := queue.events_room):  # those that back off use none
                    stop = min(high, low + room)
                    self._deliver_range(queue, entry.position, series, (low, stop), head)
                    low = stop
                if low < high:
                    queue.cursor.stop_within(entry.position, low)
                    return False
        queue.pass_batch(series, head.stop)
        return True

    def _end_expired(
        self, queue: Queue, position: int, series: Series, wanted: list[Range], expired: list[Range]
    ) -> list[Range]:
        """Make dead letters of expired events; returns the rest."""
        dead = SeqSet.from_ranges(expired)
        rows = []
        for low, high in [part for one in wanted for part in dead.overlap(*one)]:
            queue.set_aside(position, series, low, high)
            rows += self._recorder.dead_letter(
                queue, series, (low, high), 0, Reason.EXPIRED, EXPIRED_BEFORE_DELIVERY
            )
        self._recorder.record_ended(queue, rows)
        return [part for one in wanted for part in dead.missing(*one)]

    def _deliver_range(self, queue: Queue, position: int, series: Series, bounds: Range, head: Head) -> None:
        """Events that failed before wait for their back-off; others are sent, each piece with its attempt."""
        state = self._state
        for low, high, count in queue.attempts.pieces(series, *bounds):
            rest_s = 0.0
            if count is not None and (bad := count.failed + count.crashed):
                since_s = (state.time_us - count.tries[-1].time_us) / 1e6 if count.tries else 0.0
                rest_s = state.rules.retry.delay_s(bad, state.rng) - since_s
            if rest_s > 0:
                queue.set_aside(position, series, low, high, head.length / head.count)
                queue.retry_at(series, low, high, state.now + rest_s)
                state.queues.schedule(queue)
            else:
                queue.deliver(position, series, low, high, head.length / head.count)
                self._redelivery.send(queue, series, low, high, head.length / head.count)
