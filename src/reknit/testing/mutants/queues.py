"""Faults in queues: events that two members get, that none gets, or that overtake those of their key."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

QUEUE: Final = "reknit.protocol.queues.shared_queue"
PUMP: Final = "reknit.protocol.dispatch.delivery_pump"
REDELIVERY: Final = "reknit.protocol.dispatch.redelivery"
SUBSCRIBERS: Final = "reknit.protocol.dispatch.subscribers"
CRASHES: Final = "reknit.protocol.dispatch.crashes"
STATE: Final = "reknit.protocol.dispatch.state"
MEMBERS: Final = "reknit.protocol.queues.members"
SETTLEMENT: Final = "reknit.protocol.dispatch.settlement"
MEMBER: Final = "reknit.protocol.subscribe.shared_subscriber"

MUTANTS: Final = (
    Mutant(
        name="members-get-the-same-retry",
        module=REDELIVERY,
        old="                at += count\n",
        new="",
        breaks="an event of a queue is with one member at a time",
    ),
    Mutant(
        name="run-is-missed-while-members-are-full",
        module=PUMP,
        old="        if not is_served:",
        new="        if not is_served and not queue.is_live:",
        breaks="events of a queue wait while no member has room",
    ),
    Mutant(
        name="member-keeps-what-it-gave-back",
        module=QUEUE,
        old="        self._drop(series, start, stop)\n        super().give_back(series, start, stop, due)",
        new="        super().give_back(series, start, stop, due)",
        breaks="an event that a member gave back is with nobody",
    ),
    Mutant(
        name="member-settles-for-others",
        module=QUEUE,
        old="        return self.member.held.within(series, start, stop)",
        new="        return self.unsettled.in_flight_within(series, start, stop)",
        breaks="a member settles only what it has",
    ),
    Mutant(
        name="lost-member-keeps-its-events",
        module=SETTLEMENT,
        old="        for series, *bounds in queue.member.held.ranges():",
        new="        for series, *bounds in queue.member.held.ranges()[1:]:",
        breaks="what a member had goes to others when it leaves",
    ),
    Mutant(
        name="members-do-not-hear-of-events-that-came-back",
        module=SUBSCRIBERS,
        old="        if queue.members:\n            self._settlement.deliver_rest(queue)",
        new="        if queue.members:\n            queue.retries = type(queue.retries)()",
        breaks="what a member had goes to others when it leaves",
    ),
    Mutant(
        name="lease-is-taken-from-another-member",
        module=QUEUE,
        old="            for bounds in member.held.within(series, start, stop):\n                self._serve(member)\n",
        new="            for bounds in member.held.within(series, start, stop):\n",
        breaks="the member that hangs loses its lease, and is told so",
    ),
    Mutant(
        name="rest-of-a-key-is-not-given-back",
        module=MEMBER,
        old="        self.settle(series, start, stop, Outcome.RELEASED)\n        arriving",
        new="        arriving",
        breaks="events of a key wait for the one that is redelivered",
    ),
    Mutant(
        name="crash-of-a-member-never-counted",
        module=CRASHES,
        old="                self._count(account, series, seq, left.time_us, queue)",
        new="                pass",
        breaks="an event that kills members of its queue becomes a dead letter",
    ),
    Mutant(
        name="crash-counted-while-another-member-has-the-event",
        module=CRASHES,
        old="            if queue.unsettled.waiting_within(series, seq, seq + 1):",
        new="            if seq:",
        breaks="an event that a member has does not become a dead letter for what another one did",
    ),
    Mutant(
        name="member-that-is-back-is-blamed",
        module=CRASHES,
        old="        others = [left for left in lost if left.process != process]",
        new="        others = lost if request.queue else [left for left in lost if left.process != process]",
        breaks="no event is dead-lettered because a member lost its connection",
    ),
    Mutant(
        name="suspects-of-members-not-isolated",
        module=CRASHES,
        old="            queue.isolate(suspects, window_after(left.events))",
        new="            pass",
        breaks="an event that kills members of its queue is found among its neighbours",
    ),
    Mutant(
        name="member-keeps-what-ended",
        module=QUEUE,
        old="        self._drop(series, start, stop)\n        return super().end(series, start, stop)",
        new="        return super().end(series, start, stop)",
        breaks="what a member settled makes room for more",
    ),
    Mutant(
        name="credit-of-a-member-ignored",
        module=MEMBERS,
        old="        return max(size - self.events, 0) if self.bytes_room > 0 else 0",
        new="        return max(size - self.events, 0)",
        breaks="a member gets no more than its credit",
    ),
    Mutant(
        name="order-of-a-queue-ignored",
        module=STATE,
        old="        if queue.order:",
        new='        if queue.order == "none":',
        breaks="a queue keeps the order that its members ask for",
    ),
    Mutant(
        name="ordered-events-with-nobody",
        module=QUEUE,
        old="        lane.holder = self.member.key\n        self._take(",
        new="        lane.holder = self.member.key\n        _ = (",
        breaks="a member settles the events of an ordered lane that it got",
    ),
)
