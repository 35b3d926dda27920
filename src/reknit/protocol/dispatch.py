"""Dispatching: every subscriber gets every event that matches, at least once, or there is a dead letter that says why.

Steps 7 and 8 of an event's way. A subscriber's queue is a cursor over the journal; what it does not take within its
credit stays in the journal and costs nothing here. Outcomes come back as ranges and go into the journal's ledger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from reknit.batch import Head
from reknit.ledger import Ledger, Stream
from reknit.outcome import CODE_OF, Code, End, Outcome, Reason
from reknit.protocol.effects import AppendRecord, DeadLetter, Deliver, Piece, Redeliver, Scan, Send
from reknit.protocol.intake import Kept, Left
from reknit.protocol.machine import Peer
from reknit.protocol.messages import (
    Credit,
    Lost,
    Row,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from reknit.protocol.queue import Queue
from reknit.protocol.retry import Retry
from reknit.seqset import SeqSet
from reknit.store.journal import Removed
from reknit.store.records import OutcomeRow, Outcomes, SubscriberClosed, SubscriberOpened
from reknit.topic import Pattern, TopicIndex

if TYPE_CHECKING:
    from reknit.store.journal import Run

TAIL_BYTES_MAX: Final = 8 << 20
"""So much of the journal's newest runs is at hand; who is further behind reads from the journal."""
REMOVED_MAX: Final = 4096
"""So many of the ranges that retention removed are remembered, for subscribers that were away."""
SCAN_BYTES: Final = 1 << 20
FLOOR_S: Final = 5.0
"""How often a durable subscriber's floor is written down without an outcome to go with it."""


class Open(msgspec.Struct, frozen=True):
    """A subscription, its start resolved against the journal by whoever can read it."""

    request: Subscribe
    pattern: Pattern
    position: int
    """Where to begin; -1: with what is kept from now on."""
    since: dict[Stream, int] = {}
    """For a new durable subscriber: the first owed seq of every stream that exists."""
    after: dict[bytes, int] = {}


class Grown(msgspec.Struct, frozen=True):
    """The journal's durable end moved: the runs that are new, and the end."""

    runs: list[Run]
    end: int


class Scanned(msgspec.Struct, frozen=True):
    """What a `Scan` found: a run, or None at the end."""

    key: tuple[Peer, int]
    run: Run


class Trimmed(msgspec.Struct, frozen=True):
    """Retention removed these ranges; the journal starts at `start` now."""

    start: int
    removed: list[Removed]


class Vanished(msgspec.Struct, frozen=True):
    """Events that were to be handed out again are not in the journal any more."""

    key: tuple[Peer, int]
    topic: str
    source: bytes
    start: int
    stop: int


class Blocked(msgspec.Struct, frozen=True):
    """The way to this peer is full (or free again): hand out nothing to it meanwhile."""

    is_blocked: bool


Input = Blocked | Open | Unsubscribe | Credit | Settle | Left | Grown | Scanned | Trimmed | Vanished | Kept
Effect = AppendRecord | DeadLetter | Deliver | Redeliver | Scan | Send
Key = tuple[Peer, int]


class Dispatch:
    """All subscribers of one node."""

    def __init__(
        self,
        ledger: Ledger,
        end: int,
        next_number: Callable[[], int],
        rng: Random,
        retry: Retry | None = None,
        zero_us: int = 0,
        first_held: Callable[[str, bytes], int] | None = None,
        start: int = 0,
    ) -> None:
        self.queues: dict[Key, Queue] = {}
        self._by_name: dict[str, Queue] = {}
        self._new: dict[str, int] = {}
        """Durable subscribers whose account is not durable yet, and the number of its record."""
        self._opening: dict[Key, Open] = {}
        """Subscriptions that wait for that."""
        self._closing: deque[tuple[int, Key]] = deque()
        """Who waits to hear that its account is gone for good, and the number of the record."""
        self._ledger = ledger
        self._index: TopicIndex[Queue] = TopicIndex()
        self._tail: deque[Run] = deque()
        self._tail_bytes = 0
        self._end = end
        self._next_number = next_number
        self._rng = rng
        self._retry = retry or Retry()
        self._kept = 0
        """The number up to which everything is durable."""
        self._confirming: deque[tuple[int, Queue, int]] = deque()
        self._floors: dict[str, int] = {}
        self._floor_due: float | None = None
        self._backing_off: dict[Queue, None] = {}
        """The queues that have something to hand out once more."""
        self._zero_us = zero_us
        """The time of day, in microseconds since 1970, at which `now` was 0."""
        self._time_us = zero_us
        self._first_held = first_held or (lambda topic, source: 1)
        """The seq of a stream from which on retention removed nothing."""
        self._start = self._removed_from = start
        self._removed: deque[tuple[int, Removed]] = deque()
        """What retention removed last, with the position up to which it did: all of it from `_removed_from` on."""
        self._effects: list[Effect] = []
        for name in sorted(ledger.accounts):
            self._lose_removed(name)

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a subscriber, or from the journal."""
        self._time_us = self._zero_us + int(now * 1e6)
        match message:
            case Grown(runs=runs, end=end):
                self._grow(runs, end)
            case Credit(sub=sub, total=total):
                self._credit((peer, sub), total, now)
            case Settle():
                self._settle(message, peer, now)
            case Kept(number=number):
                self._confirm(number)
                if self._new:
                    self._begin_opened(number, now)
            case Scanned(key=key, run=run):
                self._scanned(key, run)
            case Open():
                self._open(message, peer, now)
            case Unsubscribe(sub=sub, forget=forget):
                self._unsubscribe((peer, sub), forget)
            case Blocked(is_blocked=is_blocked):
                self._block(peer, is_blocked, now)
            case Left():
                self._leave(peer)
            case Trimmed(start=start, removed=removed):
                self._trim(start, removed, now)
            case Vanished():
                self._vanish(message, now)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Hand out again what is due, and write down floors that moved."""
        for queue in list(self._backing_off):
            self._hand_out_again(queue, now)
        if self._floor_due is not None and now >= self._floor_due:
            self._floor_due = now + FLOOR_S if self._by_name else None
            for name, queue in sorted(self._by_name.items()):
                floor = queue.move_floor(self._end)
                if floor > self._floors.get(name, -1):
                    self._record(queue, [], floor)

    def next_deadline(self) -> float | None:
        """The earliest repeated hand-over, or the next floor to write."""
        due = [queue.again[0].due for queue in self._backing_off if queue.again and queue.room > 0]
        if self._floor_due is not None:
            due.append(self._floor_due)
        return min(due, default=None)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    def in_hand(self) -> dict[str, dict[Stream, SeqSet]]:
        """For every connected durable subscriber the events that its queue knows to be under way."""
        return {name: queue.in_hand(self._ledger.published) for name, queue in self._by_name.items()}

    # -- subscribers come and go

    def _open(self, message: Open, peer: Peer, now: float) -> None:
        request = message.request
        key, name = (peer, request.sub), request.name
        if key in self.queues or key in self._opening:
            text = f"subscription {request.sub} is there already on this connection"
            self._refuse(key, Code.ALREADY_EXISTS, text)
            return
        if name and name not in self._ledger.accounts and name not in self._new:
            self._new[name] = self._open_account(message)
        if name in self._new:
            self._opening[key] = message
        else:
            self._begin(message, peer, now, resumed=bool(name))

    def _open_account(self, message: Open) -> int:
        """A new durable subscriber: its account is durable before it is told that it has one."""
        name, pattern = message.request.name, message.pattern.text
        floor = self._end if message.position < 0 else message.position
        number = self._next_number()
        record = SubscriberOpened.at(name, pattern, message.since, floor, self._time_us)
        self._effects.append(AppendRecord(number, record))
        return number

    def _begin_opened(self, number: int, now: float) -> None:
        """Accounts became durable: who waits for that goes on."""
        for key, message in list(self._opening.items()):
            if self._new.get(message.request.name, 0) <= number:
                del self._opening[key]
                self._lose_removed(message.request.name)
                self._begin(message, key[0], now, resumed=False)
        self._new = {name: wanted for name, wanted in self._new.items() if wanted > number}

    def _begin(self, message: Open, peer: Peer, now: float, resumed: bool) -> None:
        request = message.request
        key = (peer, request.sub)
        account = self._ledger.accounts.get(request.name) if request.name else None
        if account is not None and account.pattern != message.pattern:
            text = f"subscriber {request.name!r} was opened for {account.pattern.text!r}: use another name, or forget it"
            self._refuse(key, Code.FAILED_PRECONDITION, text)
            return
        if request.name:
            self._take_over(request.name)
        position = message.position if account is None else account.floor
        queue = Queue(peer, request.sub, request.name, message.pattern, position, request.credit)
        queue.after = dict(message.after)
        queue.floor = self._end if position < 0 else position
        if account is not None:
            self._resume(queue)
            self._by_name[queue.name] = queue
            self._floors[queue.name] = queue.floor
            self._floor_due = self._floor_due or now + FLOOR_S
        for held in request.held:
            queue.hold((held.topic, held.source), held.start, held.stop)
        if request.held:
            queue.resumed_to = self._end
        if queue.cursor >= self._end:
            queue.cursor = -1
        self.queues[key] = queue
        self._index.add(queue.pattern, queue)
        self._effects.append(Send(peer, Subscribed(request.sub, queue.floor, resumed)))
        if not queue.is_durable and 0 <= position < self._start:
            self._tell_removed(queue, position)
        self._pump(queue)

    def _resume(self, queue: Queue) -> None:
        """A durable subscriber goes on: from its floor, without what has ended since."""
        account = self._ledger.accounts[queue.name]
        queue.resumed_to = self._end
        queue.ended = {stream: account.ended(stream) for stream in account.ends}
        for stream, seq in account.since.items():
            queue.ended.setdefault(stream, SeqSet()).add(0, seq)

    def _take_over(self, name: str) -> None:
        """A second connection for the same name: the newer one goes on, the older one is told."""
        other = self._by_name.get(name)
        if other is not None:
            self._drop((other.peer, other.sub))
            text = f"subscriber {name!r} was opened by another connection, which goes on from here"
            self._effects.append(Send(other.peer, Unsubscribed(other.sub, Code.ABORTED, text)))

    def _refuse(self, key: Key, code: Code, text: str) -> None:
        self._effects.append(Send(key[0], Unsubscribed(key[1], code, text)))

    def _unsubscribe(self, key: Key, forget: bool) -> None:
        opening, queue = self._opening.pop(key, None), self.queues.get(key)
        if opening is None and queue is None:
            return
        name = opening.request.name if opening is not None else ""
        if queue is not None:
            self._drop(key)
            name = queue.name
        if forget and name:
            number = self._next_number()
            self._effects.append(AppendRecord(number, SubscriberClosed(name, self._time_us)))
            self._new.pop(name, None)
            self._closing.append((number, key))
        else:
            self._effects.append(Send(key[0], Unsubscribed(key[1])))

    def _leave(self, peer: Peer) -> None:
        for key in [key for key in self.queues if key[0] == peer]:
            self._drop(key)
        self._opening = {key: message for key, message in self._opening.items() if key[0] != peer}

    def _drop(self, key: Key) -> None:
        queue = self.queues.pop(key)
        self._backing_off.pop(queue, None)
        self._index.remove(queue.pattern, queue)
        if self._by_name.get(queue.name) is queue:
            del self._by_name[queue.name]

    # -- handing out

    def _grow(self, runs: list[Run], end: int) -> None:
        for run in runs:
            if not run.entries:
                continue
            self._tail.append(run)
            self._tail_bytes += len(run.data)
            woken: dict[Queue, None] = {}
            for topic in dict.fromkeys([entry.head.topic for entry in run.entries]):
                woken.update(dict.fromkeys(self._index.match(topic)))
            for queue in woken:
                if queue.is_live:
                    self._hand_out(queue, run, 0)
        while self._tail_bytes > TAIL_BYTES_MAX and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.popleft().data)
        self._end = end

    def _credit(self, key: Key, total: int, now: float) -> None:
        queue = self.queues.get(key)
        if queue is not None and total > queue.credit:
            queue.credit = total
            self._hand_out_again(queue, now)
            self._pump(queue)

    def _block(self, peer: Peer, is_blocked: bool, now: float) -> None:
        for queue in [queue for key, queue in self.queues.items() if key[0] == peer]:
            queue.is_blocked = is_blocked
            self._hand_out_again(queue, now)
            self._pump(queue)

    def _pump(self, queue: Queue) -> None:
        """Bring a queue that is behind forward, as far as its credit goes: from the tail, or by a scan."""
        while not queue.is_live and queue.room > 0 and not queue.scanning:
            run = self._tail_run(queue.cursor)
            if queue.cursor >= self._end or (run is None and self._tail):
                queue.cursor = -1
                return
            if run is None or queue.cursor < self._tail[0].position:
                queue.scanning = True
                self._effects.append(Scan((queue.peer, queue.sub), queue.cursor, SCAN_BYTES))
                return
            self._hand_out(queue, run, queue.cursor)

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

    def _scanned(self, key: Key, run: Run) -> None:
        queue = self.queues.get(key)
        if queue is None or not queue.scanning:
            return
        queue.scanning = False
        self._hand_out(queue, run, queue.cursor)
        self._pump(queue)

    def _hand_out(self, queue: Queue, run: Run, position: int) -> None:
        """Hand out what matches of a run from `position` on, while there is credit; remember where that ended."""
        pieces: list[Piece] = []
        size = 0
        room = queue.room
        matches = queue.pattern.matches
        plain = max(position, run.position) >= queue.resumed_to and not queue.after
        stopped_at = run.next_position
        for index, entry in enumerate(run.entries):
            head = entry.head
            if entry.position < position or not matches(head.topic):
                continue
            if size >= room:
                stopped_at = entry.position
                break
            if not plain and not queue.wants_all(entry.position, head):
                self._deliver(queue, pieces, size, entry.position)
                pieces, size, room = [], 0, room - size
                self._hand_out_parts(queue, entry.position, head)
                continue
            queue.hand_out(entry.position, head)
            if pieces and pieces[-1].high == index:
                pieces[-1] = Piece(run, pieces[-1].low, index + 1)
            else:
                pieces.append(Piece(run, index, index + 1))
            size += head.length
        was_live = queue.is_live
        queue.cursor = -1 if was_live and stopped_at == run.next_position else stopped_at
        self._deliver(queue, pieces, size, stopped_at)

    def _deliver(self, queue: Queue, pieces: list[Piece], size: int, position: int) -> None:
        if pieces:
            queue.sent += size
            self._effects.append(Deliver(queue.peer, queue.sub, pieces, size, position))

    def _hand_out_parts(self, queue: Queue, position: int, head: Head) -> None:
        """Only parts of a batch are wanted: after a resumption or a checkpoint."""
        for start, stop in queue.wanted(position, head):
            queue.hand_out_range(position, (head.topic, head.source), start, stop)
            self._effects.append(Redeliver(queue.peer, queue.sub, head.topic, head.source, start, stop, 1))
        queue.passed[head.topic, head.source] = head.stop

    def _hand_out_again(self, queue: Queue, now: float) -> None:
        if queue.room <= 0 or not queue.again:
            return
        for again in queue.take_due(now):
            seqs = queue.open.get((again.topic, again.source))
            for start, stop in seqs.overlap(again.start, again.stop) if seqs else ():
                self._effects.append(
                    Redeliver(queue.peer, queue.sub, again.topic, again.source, start, stop, again.attempt)
                )
        if not queue.again:
            self._backing_off.pop(queue, None)

    # -- outcomes

    def _settle(self, message: Settle, peer: Peer, now: float) -> None:
        queue = self.queues.get((peer, message.sub))
        if queue is None:
            return
        if message.number > queue.settled:
            queue.settled = message.number
            booked: list[OutcomeRow] = []
            for row in message.rows:
                booked += self._outcome(queue, row, now)
            floor = queue.move_floor(self._end)
            if queue.is_durable and booked:
                queue.recorded = self._record(queue, booked, floor)
        if queue.recorded > self._kept:  # `Settled` speaks for everything before it too
            self._confirming.append((queue.recorded, queue, queue.settled))
        else:
            self._effects.append(Send(peer, Settled(message.sub, queue.settled)))

    def _outcome(self, queue: Queue, row: Row, now: float) -> list[OutcomeRow]:
        """Carry out one outcome; gives what ended by it."""
        stream = (row.topic, row.source)
        match row.outcome:
            case Outcome.ACCEPTED:
                ranges = queue.end(stream, row.start, row.stop)
                return [self._row(stream, r, End.ACCEPTED, Code.OK, "", "", 1) for r in ranges]
            case Outcome.REJECTED:
                text = row.text or "rejected by the subscriber"
                return self._dead_letter(
                    queue, stream, (row.start, row.stop), row.code, Reason.REJECTED, text
                )
            case Outcome.RELEASED:
                self._try_again(queue, stream, row, now, counts=False)
            case Outcome.FAILED | Outcome.MODIFIED:
                return self._try_again(queue, stream, row, now, counts=True)
            case _:
                pass
        return []

    def _try_again(
        self, queue: Queue, stream: Stream, row: Row, now: float, counts: bool
    ) -> list[OutcomeRow]:
        """Queue open events once more, each with its own count of attempts; those that had enough are dead letters."""
        ended: list[OutcomeRow] = []
        seqs = queue.open.get(stream)
        for start, stop in seqs.overlap(row.start, row.stop) if seqs else ():
            for seq in range(start, stop):
                failures = queue.failures.get((stream, seq), 0) + counts
                if counts:
                    queue.failures[stream, seq] = failures
                if counts and self._retry.is_exhausted(failures):
                    text = f"{failures} attempts failed"
                    ended += self._dead_letter(
                        queue, stream, (seq, seq + 1), row.code, Reason.ATTEMPTS_EXHAUSTED, text, failures
                    )
                    continue
                delay_s = max(row.delay_s, self._retry.delay_s(max(failures, 1), self._rng))
                self._backing_off[queue] = None
                queue.put_again(stream, seq, seq + 1, now + delay_s, max(failures, 1) + 1)
        return ended

    def _dead_letter(
        self,
        queue: Queue,
        stream: Stream,
        bounds: tuple[int, int],
        code: int,
        reason: Reason,
        text: str,
        attempts: int = 1,
    ) -> list[OutcomeRow]:
        """End events as dead letters: the letters are appended before the outcome is."""
        code = code or int(CODE_OF[reason])
        ended: list[OutcomeRow] = []
        for start, stop in queue.end(stream, *bounds):
            letter = DeadLetter(queue.name, *stream, start, stop, code, str(reason), text, attempts)
            self._effects.append(letter)
            ended.append(self._row(stream, (start, stop), End.DEAD_LETTERED, code, reason, text, attempts))
        return ended

    def _row(
        self,
        stream: Stream,
        bounds: tuple[int, int],
        end: End,
        code: int,
        reason: str,
        text: str,
        attempts: int,
    ) -> OutcomeRow:
        return OutcomeRow(*stream, *bounds, end, int(code), str(reason), text, attempts, self._time_us)

    def _record(self, queue: Queue, rows: list[OutcomeRow], floor: int) -> int:
        number = self._next_number()
        self._floors[queue.name] = floor
        self._effects.append(AppendRecord(number, Outcomes(queue.name, rows, floor)))
        return number

    def _confirm(self, number: int) -> None:
        self._kept = max(self._kept, number)
        while self._closing and self._closing[0][0] <= number:
            peer, sub = self._closing.popleft()[1]
            self._effects.append(Send(peer, Unsubscribed(sub)))
        settled: dict[Queue, int] = {}
        while self._confirming and self._confirming[0][0] <= number:
            _, queue, settle_number = self._confirming.popleft()
            settled[queue] = settle_number
        for queue, settle_number in settled.items():
            if (queue.peer, queue.sub) in self.queues:
                self._effects.append(Send(queue.peer, Settled(queue.sub, settle_number)))

    # -- what can't be delivered any more

    def _trim(self, start: int, removed: list[Removed], now: float) -> None:
        while self._tail and self._tail[0].next_position <= start:
            self._tail_bytes -= len(self._tail.popleft().data)
        self._start = start
        self._removed.extend((start, gone) for gone in removed)
        while len(self._removed) > REMOVED_MAX:
            self._removed_from = self._removed.popleft()[0]
        for name, account in sorted(self._ledger.accounts.items()):
            rows: list[OutcomeRow] = []
            for gone in removed:
                if account.pattern.matches(gone.topic):
                    stream = (gone.topic, gone.source)
                    start_seq = min(max(gone.start, account.since.get(stream, 1)), gone.stop)
                    rows += [
                        self._lost(stream, r) for r in account.ended(stream).missing(start_seq, gone.stop)
                    ]
            if rows:
                self._lose(name, rows, max(start, account.floor))
        for queue in self.queues.values():
            if not queue.is_live and queue.cursor < start:
                if not queue.is_durable:
                    self._tell_lost(queue, removed)
                queue.cursor = start
                queue.scanning = False

    def _lose_removed(self, name: str) -> None:
        """Book what was removed while nobody could: before the node crashed, or before the account was there."""
        account = self._ledger.accounts.get(name)
        if account is None or account.floor >= self._start:
            return
        rows: list[OutcomeRow] = []
        for stream, seqs in self._ledger.published.items():
            since, held_from = account.since.get(stream, 1), self._first_held(*stream)
            if since < held_from and account.pattern.matches(stream[0]):
                gone = SeqSet.from_ranges(seqs.overlap(since, held_from)).difference(account.ended(stream))
                rows += [self._lost(stream, bounds) for bounds in gone.ranges()]
        if rows:
            self._lose(name, rows, self._start)

    def _lost(self, stream: Stream, bounds: tuple[int, int]) -> OutcomeRow:
        reason = Reason.RETENTION
        return self._row(
            stream, bounds, End.LOST, CODE_OF[reason], reason, "removed by retention before delivery", 0
        )

    def _lose(self, name: str, rows: list[OutcomeRow], floor: int) -> None:
        queue = self._by_name.get(name)
        if queue is not None:
            for row in rows:
                queue.end((row.topic, row.source), row.start, row.stop)
            self._send_lost(queue, rows)
        self._floors[name] = floor
        self._effects.append(AppendRecord(self._next_number(), Outcomes(name, rows, floor)))

    def _send_lost(self, queue: Queue, rows: list[OutcomeRow]) -> None:
        for row in rows:
            lost = Lost(queue.sub, row.topic, row.source, row.start, row.stop, row.reason)
            self._effects.append(Send(queue.peer, lost))

    def _tell_removed(self, queue: Queue, position: int) -> None:
        """A subscriber was away while retention removed what it had not got yet."""
        removed = [gone for up_to, gone in self._removed if up_to > position]
        if position < self._removed_from:  # longer ago than is remembered: it knows what of this it got
            removed = [
                Removed(*stream, seqs.first, held_from)
                for stream, seqs in self._ledger.published.items()
                if seqs.first < (held_from := self._first_held(*stream))
            ]
        self._tell_lost(queue, removed)

    def _tell_lost(self, queue: Queue, removed: list[Removed]) -> None:
        for gone in removed:
            passed = queue.passed.get((gone.topic, gone.source), 0)
            start = max(gone.start, passed, queue.after.get(gone.source, 0) + 1)
            if start < gone.stop and queue.pattern.matches(gone.topic):
                lost = Lost(queue.sub, gone.topic, gone.source, start, gone.stop, str(Reason.RETENTION))
                self._effects.append(Send(queue.peer, lost))

    def _vanish(self, message: Vanished, now: float) -> None:
        queue = self.queues.get(message.key)
        if queue is None:
            return
        stream = (message.topic, message.source)
        rows = [self._lost(stream, r) for r in queue.end(stream, message.start, message.stop)]
        if queue.is_durable and rows:
            self._lose(queue.name, rows, queue.move_floor(self._end))
        else:
            self._send_lost(queue, rows)
