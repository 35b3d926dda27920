"""Faults in dispatch: deliveries, attempts, leases, expiry, pauses, order, losses and outcomes."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

ROOM: Final = "reknit.protocol.dispatch"
QUEUES: Final = "reknit.protocol.queues"
DISPATCHER: Final = f"{ROOM}.dispatcher"
PUMP: Final = f"{ROOM}.delivery_pump"
SETTLEMENT: Final = f"{ROOM}.settlement"
RECORDER: Final = f"{ROOM}.outcome_recorder"
UNSETTLED: Final = f"{QUEUES}.unsettled"
RESUMPTION: Final = f"{ROOM}.resumption"
SUBSCRIBERS: Final = f"{ROOM}.subscribers"
STATE: Final = f"{ROOM}.state"
LEASES: Final = f"{QUEUES}.leases"
LANES: Final = f"{QUEUES}.lanes"
EXPIRY: Final = f"{ROOM}.expiry"
LOSSES: Final = f"{ROOM}.losses"
OVERFLOW: Final = f"{ROOM}.overflow"
CRASHES: Final = f"{ROOM}.crashes"

MUTANTS: Final = (
    Mutant(
        name="floor-passes-open-events",
        module=UNSETTLED,
        old="                    lowest = min(lowest, position)\n",
        new="",
        breaks="a durable subscriber resumes at its oldest open event",
    ),
    Mutant(
        name="outcome-confirmed-early",
        module=SETTLEMENT,
        old="        if recorded > state.durable_number:",
        new="        if recorded > state.durable_number + 1_000_000:",
        breaks="an outcome is durable before it is confirmed",
    ),
    Mutant(
        name="outcome-never-confirmed",
        module=SETTLEMENT,
        old="            settled[recipient] = settle_number",
        new="            settled.setdefault(recipient, settle_number)",
        breaks="a subscriber is told that its outcomes are stored",
    ),
    Mutant(
        name="promise-forgotten",
        module=STATE,
        old="            self.effects.append(self._promises.popleft()[1])",
        new="            self._promises.popleft()",
        breaks="an answer that waits for the journal is sent",
    ),
    Mutant(
        name="retry-never-scheduled",
        module=SETTLEMENT,
        old="            queue.give_back(series, start, reached, due)\n            self._state.queues.schedule(queue)",
        new="            queue.give_back(series, start, reached, due)",
        breaks="a released or failed event is delivered again",
    ),
    Mutant(
        name="retry-limit-off-by-one",
        module=f"{ROOM}.retry",
        old="        return 0 < limit <= failed",
        new="        return 0 < limit < failed",
        breaks="an event is tried as often as configured, and not once more",
    ),
    Mutant(
        name="retry-limit-too-low",
        module=f"{ROOM}.retry",
        old="        return 0 < limit <= failed",
        new="        return 0 < limit <= failed + 1",
        breaks="an event is tried as often as configured",
    ),
    Mutant(
        name="neighbours-blamed-for-a-crash",
        module=CRASHES,
        old="if left.events == 1 and not left.has_strays else",
        new="if not left.has_strays else",
        breaks="only an event that was alone with a process that died is blamed for it",
    ),
    Mutant(
        name="lost-connection-is-a-crash",
        module=CRASHES,
        old="        others = [left for left in lost if left.process != process]",
        new="        others = lost",
        breaks="no event is dead-lettered because the network failed",
    ),
    Mutant(
        name="crash-limit-off-by-one",
        module=CRASHES,
        old="        if count.crashed < state.rules.crash_attempts_max:",
        new="        if count.crashed <= state.rules.crash_attempts_max:",
        breaks="an event that kills its subscriber is dead-lettered after as many crashes as configured",
    ),
    Mutant(
        name="crash-never-counted",
        module=CRASHES,
        old="            self._count(account, *event, left.time_us)",
        new="            pass",
        breaks="an event that kills its subscriber becomes a dead letter",
    ),
    Mutant(
        name="suspects-not-isolated",
        module="reknit.protocol.queues.queue",
        old="            window = min(window, self.isolation.window)",
        new="            pass",
        breaks="an event that kills its subscriber is found among its neighbours",
    ),
    Mutant(
        name="isolation-never-ends",
        module="reknit.protocol.queues.isolation",
        old="        return not self._suspects\n",
        new="        return False\n",
        breaks="a subscriber gets its events at full speed again, once those that it may have died of have ended",
    ),
    Mutant(
        name="lease-lost-and-the-next-event-blamed",
        module="reknit.protocol.queues.queue",
        old="        self.leases.lost(now)\n        self.unsettled.stray()\n",
        new="        self.leases.lost(now)\n",
        breaks="a process that still works on an event that was taken from it may have died of that one",
    ),
    Mutant(
        name="attempts-forgotten",
        module=RESUMPTION,
        old="queue.resume(state.end, ended_of(account), account.tallies)",
        new="queue.resume(state.end, ended_of(account), {})",
        breaks="attempts are counted across connections and restarts",
    ),
    Mutant(
        name="ended-events-come-again",
        module=RESUMPTION,
        old="        seqs = account.ended(series)",
        new="        seqs = SeqSet()",
        breaks="an event does not come again after its outcome was stored",
    ),
    Mutant(
        name="rejected-events-come-again",
        module=RECORDER,
        old="        queue.end(series, *bounds)\n        return rows",
        new="        return rows",
        breaks="a dead letter ends its event",
    ),
    Mutant(
        name="dead-letter-not-written",
        module=RECORDER,
        old="        self._state.emit_dead_letter(",
        new="        del path\n        (",
        breaks="a dead-lettered event has a dead letter",
    ),
    Mutant(
        name="dead-letter-with-a-false-reason",
        module=SETTLEMENT,
        old="            reason = Reason.ATTEMPTS_EXHAUSTED",
        new="            reason = Reason.REJECTED",
        breaks="a dead letter has the reason for which its event ended",
    ),
    Mutant(
        name="dead-letters-merged-wrongly",
        module=STATE,
        old="        last.stop == letter.start\n        and",
        new="        last.stop <= letter.start\n        and",
        breaks="a dead letter is about events that ended, and about no other",
    ),
    Mutant(
        name="outcomes-merged-wrongly",
        module=RECORDER,
        old="            and last.stop == row.start\n",
        new="            and last.source == row.source\n",
        breaks="an outcome covers the events that ended, and no other",
    ),
    Mutant(
        name="outcome-without-its-neighbour",
        module=RECORDER,
        old="            merged[-1] = msgspec.structs.replace(last, stop=row.stop)",
        new="            merged[-1] = last",
        breaks="every outcome is recorded",
    ),
    Mutant(
        name="lease-never-ended",
        module=LEASES,
        old="        while self._line and self._line[0].until <= now:",
        new="        while self._line and self._line[0].until <= now - 1e6:",
        breaks="an event that a subscriber holds past its lease is delivered again",
    ),
    Mutant(
        name="lease-not-revoked",
        module=SETTLEMENT,
        old="                    self._state.send(queue.peer, Revoked(queue.sub, *lease.series, *part))\n",
        new="",
        breaks="a subscriber is told that its lease ran out",
    ),
    Mutant(
        name="lease-ends-early",
        module=LEASES,
        old='        """Events go to the subscriber."""\n        self._line.append(Lease(now + self.lease_s,',
        new='        """Events go to the subscriber."""\n        self._line.append(Lease(now + self.lease_s / 4,',
        breaks="a subscriber has its whole lease",
    ),
    Mutant(
        name="rest-of-a-batch-repeated",
        module=PUMP,
        old="                    queue.cursor.stop_within(entry.position, low)\n",
        new="",
        breaks="a batch that is delivered in parts is delivered once",
    ),
    Mutant(
        name="ttl-ignored",
        module=EXPIRY,
        old="        while self._due and self._due[0] * STEP_US <= self._state.time_us:",
        new="        while self._due and self._due[0] * STEP_US <= self._state.time_us - 10**12:",
        breaks="an event that waits past its ttl becomes a dead letter",
    ),
    Mutant(
        name="ttl-too-short",
        module=EXPIRY,
        old="if due_us < now_us]",
        new="if due_us < now_us + 250_000]",
        breaks="an event does not expire before its ttl",
    ),
    Mutant(
        name="ttl-forgotten-at-start",
        module=DISPATCHER,
        old="            if entry.position < self._sweep_to:\n                self._note_ttl(run, index)",
        new="            if entry.position < self._sweep_to:",
        breaks="a node that restarts knows the ttl of its events",
    ),
    Mutant(
        name="pause-ignored",
        module=f"{ROOM}.pauses",
        old="any(one.matches(public) for one in self._patterns.values())",
        new="not any(one.matches(public) for one in self._patterns.values())",
        breaks="events of a paused topic are not delivered",
    ),
    Mutant(
        name="pause-never-ends",
        module=DISPATCHER,
        old="            queue.lanes.look_at_all()\n",
        new="",
        breaks="events that waited for a paused topic are delivered when it is resumed",
    ),
    Mutant(
        name="pause-remembered-too-long",
        module=f"{ROOM}.pauses",
        old='        """Resume a pattern; returns whether exactly this pattern was paused."""\n'
        "        self._known.clear()\n",
        new='        """Resume a pattern; returns whether exactly this pattern was paused."""\n',
        breaks="events of a resumed topic are delivered",
    ),
    Mutant(
        name="order-lost-while-one-is-out",
        module=LANES,
        old="        elif not lane.parts or lane.out or lane.due or",
        new="        elif not lane.parts or lane.due or",
        breaks="an event of an ordered topic waits until those before it have ended",
    ),
    Mutant(
        name="order-lost-while-one-backs-off",
        module=LANES,
        old="        lane.back.append((series, seq))",
        new="        lane.back.insert(0, (series, seq + 1) if False else (series, seq))\n"
        "        lane.parts.append(LanePart(*lane.back.pop(0), seq + 1, 0.0))",
        breaks="an event of an ordered topic that is retried comes before those behind it",
    ),
    Mutant(
        name="ordered-lane-stuck",
        module=LANES,
        old="                lane.out -= 1\n                self._look(lane)",
        new="                lane.out -= 1",
        breaks="events of an ordered topic continue when the one before them has ended",
    ),
    Mutant(
        name="credit-wakes-nobody",
        module=DISPATCHER,
        old="        if queue.credit.grant(message.total) or goes_on:\n            self._deliver(queue)",
        new="        if queue.credit.grant(message.total) or goes_on:\n            pass",
        breaks="events that waited for credit are delivered when there is some",
    ),
    Mutant(
        name="credit-ignored",
        module=f"{QUEUES}.credit",
        old="        self.used += size",
        new="        self.used += size // 4",
        breaks="a subscriber gets no more than its credit",
    ),
    Mutant(
        name="unblocked-peer-not-woken",
        module=DISPATCHER,
        old="            queue.credit.block(is_blocked)\n            self._deliver(queue)",
        new="            queue.credit.block(is_blocked)",
        breaks="events that waited for a full connection are delivered when it has room",
    ),
    Mutant(
        name="queue-behind-goes-live",
        module=PUMP,
        old="        if run is None and (self._tail or cursor.position >= self._state.end):",
        new="        if run is None:",
        breaks="a queue that is behind reads the journal",
    ),
    Mutant(
        name="live-queue-not-woken",
        module=PUMP,
        old="        topics = dict.fromkeys([entry.head.topic for entry in run.entries])",
        new="        topics = dict.fromkeys([entry.head.topic for entry in run.entries[:1]])",
        breaks="every subscriber of a topic in a commit gets its events",
    ),
    Mutant(
        name="losses-of-the-absent-are-not-told",
        module=LOSSES,
        old="                    self._state.send(queue.peer, Lost(queue.sub, *series, start, stop, reason))",
        new="                    pass",
        breaks="a durable subscriber learns what was lost to it while it was away",
    ),
    Mutant(
        name="loss-not-recorded",
        module=LOSSES,
        old="                self._lose(name, rows, max(start, account.floor))",
        new="                pass",
        breaks="an event that retention removed is recorded as lost",
    ),
    Mutant(
        name="loss-not-reported",
        module=LOSSES,
        old="            self._send_lost(queue, [self._lost(series, one, reason) for one in ended])",
        new="            del ended",
        breaks="a subscriber is told which events it will never get",
    ),
    Mutant(
        name="left-queue-stays",
        module=SUBSCRIBERS,
        old="        for key in keys:\n            if is_abrupt:",
        new="        for key in keys[1:]:\n            if is_abrupt:",
        breaks="a node forgets the queues of a connection that is gone",
    ),
    Mutant(
        name="forgotten-subscriber-kept",
        module=SUBSCRIBERS,
        old="        state.send_when_durable(number, key[0], Unsubscribed(key[1], is_forgotten=True))",
        new="        state.send(key[0], Unsubscribed(key[1], is_forgotten=True))",
        breaks="a subscriber is told that it is forgotten when that is durable",
    ),
    Mutant(
        name="account-used-before-it-is-durable",
        module=SUBSCRIBERS,
        old="        if name in self._new:\n            self._opening[key] = message",
        new="        if name in self._new and not self._new:\n            self._opening[key] = message",
        breaks="a subscription is confirmed when its account is durable",
    ),
    Mutant(
        name="shared-run-ignores-credit",
        module=PUMP,
        old="share.is_plain and queue.room >= share.room_min and queue.is_plain",
        new="share.is_plain and queue.is_plain",
        breaks="a subscriber gets no more than its credit, also of what many get at once",
    ),
    Mutant(
        name="run-shared-with-another-pattern",
        module=PUMP,
        old="            text = pattern.own + pattern.text\n",
        new='            text = ""\n',
        breaks="a subscriber gets the events of its own topics",
    ),
    Mutant(
        name="ttl-in-a-shared-run-ignored",
        module=f"{ROOM}.run_share",
        old="        is_plain = is_plain and not head.ttl_ms and not head.flags",
        new="        is_plain = is_plain and not head.flags",
        breaks="an event that waits past its ttl becomes a dead letter, also where many get a run at once",
    ),
    Mutant(
        name="end-of-a-shared-run-left-out",
        module=f"{ROOM}.run_share",
        old="    if low >= 0:\n        pieces.append(RunSlice(run, low, len(run.entries)))\n    return",
        new="    if low >= 0 and not pieces:\n        pieces.append(RunSlice(run, low, len(run.entries)))\n    return",
        breaks="every subscriber of a topic gets all its events of a commit",
    ),
)
