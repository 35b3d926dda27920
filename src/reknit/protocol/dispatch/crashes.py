"""Counts the crashes of durable subscribers against the events that they died of, and against no other.

how a subscription ended                              what happens
it unsubscribed, or its session said goodbye          nothing is counted
its connection was lost; the same process is back     nothing: the network failed, or the node
its connection was lost; another process is back      its process crashed:
    with several events unsettled                     none is counted: they are delivered a few at a time (isolation)
    with one event unsettled                          counted; a dead letter at `dispatch.crash_attempts_max`
another process took the name over                    isolation; counted once its connection is lost without a goodbye
it was a member of a queue                            isolation at once, as others get its events; its process crashed if
                                                      one that was not a member before joins, and it is not back by then

A process that lost a lease, or whose events ended while it was away, may have died of those: nothing is counted.
Only a process that says which one it is can crash: gateways, relays and bridges hold events for others. The counts are
durable. The events that were with a lost connection are not: if the node restarts before the subscriber is back, nobody
knows what it died of.
"""

from __future__ import annotations

from typing import NamedTuple

from reknit.attempts import Attempt, AttemptCount
from reknit.ledger import ANYCAST, COPIES, OF_GATEWAYS, Account, Series
from reknit.outcome import Outcome, Reason
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.state import DispatchState
from reknit.protocol.machine import Peer
from reknit.protocol.queues.isolation import Isolation, window_after
from reknit.protocol.queues.members import Member
from reknit.protocol.queues.queue import Queue, QueueKey
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.records import AttemptRow
from reknit.seqset import SeqSet
from reknit.wire.messages import Subscribe

_HOLD_FOR_OTHERS = (ANYCAST, OF_GATEWAYS, *COPIES)


class Left(NamedTuple):
    """A process whose connection was lost, and the events that were with it."""

    process: bytes
    in_flight: dict[Series, SeqSet]
    events: int
    has_strays: bool
    """Whether it may have had others, which were taken from it before."""
    time_us: int


class Crashes:
    """Knows which process each durable subscriber is, and what those had whose connection was lost.

    A crash of a member is counted while nobody has its event: until then it is in `_blamed`.
    """

    def __init__(self, state: DispatchState, recorder: OutcomeRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._processes: dict[QueueKey, bytes] = {}
        self._overtaken: dict[QueueKey, tuple[str, Left]] = {}
        """Subscriptions that another process took over, while their connection seemed to be up."""
        self._lost: dict[str, list[Left]] = {}
        """By name: processes whose connection was lost without a word."""
        self._blamed: dict[str, list[Left]] = {}
        """By queue: members that crashed with one event that somebody has now."""

    # -- connections

    def opened(self, key: QueueKey, request: Subscribe) -> Isolation | None:
        """A process subscribes under a name, or opens a queue: others that lost their connection have crashed.

        Returns how its events are delivered, if some are suspected.
        """
        name = request.account
        gone = self._gone(request)
        if not self._follows(request):
            return None
        self._processes[key] = request.process
        for left in [*self._blamed.pop(name, []), *gone]:
            self._crashed(name, left)
        alive = [
            left for of, left in self._overtaken.values() if of == name and left.process != request.process
        ]
        return self._isolation(name, [*gone, *alive])

    def joined(self, key: QueueKey, request: Subscribe, queue: SharedQueue) -> None:
        """A process becomes a member of a queue that has others."""
        gone = self._gone(request)
        if self._follows(request):
            self._processes[key] = request.process
            self._blamed.setdefault(queue.name, []).extend(gone)
            self.given_back(queue)

    def _follows(self, request: Subscribe) -> bool:
        """Whether crashes of this process are counted."""
        is_for_others = (
            request.is_cache or not request.account or request.account.startswith(_HOLD_FOR_OTHERS)
        )
        return bool(self._state.rules.crash_attempts_max and request.process) and not is_for_others

    def _gone(self, request: Subscribe) -> list[Left]:
        """The processes that have crashed, now that this one is here. If a member of a queue is back, others may still
        come: the network had failed, or the node."""
        name, process = request.account, request.process
        lost = self._lost.pop(name, [])
        others = [left for left in lost if left.process != process]
        if not request.queue or len(others) == len(lost):
            return others
        if others:
            self._lost[name] = others
        return []

    def lost(self, key: QueueKey, queue: Queue) -> None:
        """The connection of a subscriber is gone without a word."""
        process = self._processes.pop(key, b"")
        if not process:
            return
        if isinstance(queue, SharedQueue):
            left = self._member_left(queue.members[key], process)
            self._isolate(queue, left)
        else:
            left = self._left(queue, process)
        self._lost.setdefault(queue.name, []).append(left)

    def _isolate(self, queue: SharedQueue, left: Left) -> None:
        """The other members get what this one had, and nobody knows yet whether it died of that."""
        account = self._state.account(queue.name)
        suspects = {} if account is None else _still_owed(account, left.in_flight)
        if suspects:
            queue.isolate(suspects, window_after(left.events))

    def taken_over(self, queue: Queue) -> None:
        """Another connection subscribes under the name of this subscriber, whose connection seems to be up."""
        process = self._processes.pop(queue.key, b"")
        if process:
            self._overtaken[queue.key] = (queue.name, self._left(queue, process))

    def _left(self, queue: Queue, process: bytes) -> Left:
        had = queue.unsettled
        return Left(process, had.all_in_flight(), had.in_flight, had.has_strays, self._state.time_us)

    def _member_left(self, member: Member, process: bytes) -> Left:
        in_flight = {series: seqs.copy() for series, seqs in member.held}
        return Left(process, in_flight, member.events, member.has_strays, self._state.time_us)

    def closed(self, key: QueueKey) -> None:
        """A subscription ended, and both sides know it."""
        self._processes.pop(key, None)

    def peer_left(self, peer: Peer, is_abrupt: bool) -> None:
        """A connection is gone: those that were taken over there crashed, or left."""
        for key in [key for key in self._overtaken if key[0] == peer]:
            name, left = self._overtaken.pop(key)
            if is_abrupt and name in self._state.ledger.accounts:
                self._lost.setdefault(name, []).append(left)

    def forget(self, name: str) -> None:
        """A durable subscriber was deleted."""
        self._lost.pop(name, None)
        self._blamed.pop(name, None)
        self._overtaken = {key: one for key, one in self._overtaken.items() if one[0] != name}

    # -- crashes

    def given_back(self, queue: SharedQueue) -> None:
        """Events may have come back from a member, or not: count the crashes of those that nobody has."""
        rest: list[Left] = []
        for left in self._blamed.pop(queue.name, []):
            account = self._state.account(queue.name)
            event = None if account is None else _alone(account, left)
            if account is None or event is None:
                continue  # it has ended meanwhile
            series, seq = event
            if queue.unsettled.waiting_within(series, seq, seq + 1):
                self._count(account, series, seq, left.time_us, queue)
            else:
                rest.append(left)
        if rest:
            self._blamed[queue.name] = rest

    def _crashed(self, name: str, left: Left) -> None:
        """Count a crash if only one event can have been the reason."""
        account = self._state.account(name)
        event = None if account is None else _alone(account, left)
        if account is not None and event is not None:
            self._count(account, *event, left.time_us)

    def _count(
        self, account: Account, series: Series, seq: int, time_us: int, queue: SharedQueue | None = None
    ) -> None:
        """Count a crash against the event that was alone with the subscriber. `queue` is its queue if that is open."""
        state, bounds = self._state, (seq, seq + 1)
        attempt = Attempt(time_us, Outcome.CRASHED)
        count = account.tallies.get(series, {}).get(seq, AttemptCount()).tried(attempt)
        if count.crashed < state.rules.crash_attempts_max:
            counts, outcome = (count.acquired, count.failed), attempt.outcome
            row = AttemptRow(*series, *bounds, *counts, outcome, 0, attempt.time_us, count.crashed)
            self._recorder.record_attempts(account.name, [row])
            if queue is not None:
                queue.count_attempt(series, *bounds, attempt)
            return
        text = f"the process of its subscriber ended {count.crashed} times while it had only this event"
        if queue is not None:
            rows = self._recorder.dead_letter(queue, series, bounds, 0, Reason.CRASHED, text, attempt)
            self._recorder.record_ended(queue, rows)
            return
        letter = self._recorder.letter(account.name, series, bounds, 0, Reason.CRASHED, text, count)
        self._recorder.record(account.name, [letter], account.floor)

    def _isolation(self, name: str, gone: list[Left]) -> Isolation | None:
        """Isolate what the last process had, and alone those that were alone at a crash and have not ended since."""
        account = self._state.account(name)
        if account is None:
            return None
        suspects: dict[Series, SeqSet] = {}
        window = 1
        if gone:
            last = max(gone, key=lambda left: left.time_us)
            suspects, window = _still_owed(account, last.in_flight), window_after(last.events)
        for series, by_seq in account.tallies.items():
            alone = [(seq, seq + 1) for seq, count in by_seq.items() if count.crashed]
            if alone:
                window = 1
                suspects[series] = suspects.get(series, SeqSet()).union(SeqSet.from_ranges(alone))
        return Isolation(suspects, window) if suspects else None


def _alone(account: Account, left: Left) -> tuple[Series, int] | None:
    """The event that was alone with a process, if it was and is still owed."""
    owed = _still_owed(account, left.in_flight) if left.events == 1 and not left.has_strays else {}
    return next(((series, seqs.first) for series, seqs in owed.items()), None)


def _still_owed(account: Account, in_flight: dict[Series, SeqSet]) -> dict[Series, SeqSet]:
    """Those of these events that have not ended since."""
    owed: dict[Series, SeqSet] = {}
    for series, seqs in in_flight.items():
        ranges = [part for bounds in seqs.ranges() for part in account.open_within(series, *bounds)]
        if ranges:
            owed[series] = SeqSet.from_ranges(ranges)
    return owed
