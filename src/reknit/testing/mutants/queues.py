"""Faults in queues: events that two members get, that none gets, or that overtake those of their key."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

QUEUE: Final = "reknit.protocol.queues.shared_queue"
PUMP: Final = "reknit.protocol.dispatch.delivery_pump"
REDELIVERY: Final = "reknit.protocol.dispatch.redelivery"
SUBSCRIBERS: Final = "reknit.protocol.dispatch.subscribers"
SETTLEMENT: Final = "reknit.protocol.dispatch.settlement"
MEMBER: Final = "reknit.protocol.subscribe.shared_subscriber"

MUTANTS: Final = (
    Mutant(
        name="members-get-the-same-retry",
        module=REDELIVERY,
        old="                at += count\n",
        new="",
        breaks="an event of a queue is with one member at a time",
        simulation="fabric",
    ),
    Mutant(
        name="run-is-missed-while-members-are-full",
        module=PUMP,
        old="        if not is_served:",
        new="        if not is_served and not queue.is_live:",
        breaks="events of a queue wait while no member has room",
        simulation="fabric",
    ),
    Mutant(
        name="member-keeps-what-it-gave-back",
        module=QUEUE,
        old="        self._drop(series, start, stop)\n        super().give_back(series, start, stop, due)",
        new="        super().give_back(series, start, stop, due)",
        breaks="an event that a member gave back is with nobody",
        simulation="fabric",
    ),
    Mutant(
        name="member-settles-for-others",
        module=QUEUE,
        old="        return self.member.held.within(series, start, stop)",
        new="        return self.unsettled.in_flight_within(series, start, stop)",
        breaks="a member settles only what it has",
        simulation="fabric",
    ),
    Mutant(
        name="lost-member-keeps-its-events",
        module=SETTLEMENT,
        old="        for series, *bounds in queue.member.held.ranges():",
        new="        for series, *bounds in queue.member.held.ranges()[1:]:",
        breaks="what a member had goes to others when it leaves",
        simulation="fabric",
    ),
    Mutant(
        name="members-do-not-hear-of-events-that-came-back",
        module=SUBSCRIBERS,
        old="        if queue.members:\n            self._settlement.deliver_rest(queue)",
        new="        if queue.members:\n            queue.retries = type(queue.retries)()",
        breaks="what a member had goes to others when it leaves",
        simulation="fabric",
    ),
    Mutant(
        name="lease-is-taken-from-another-member",
        module=QUEUE,
        old="            for bounds in member.held.within(series, start, stop):\n                self._serve(member)\n",
        new="            for bounds in member.held.within(series, start, stop):\n",
        breaks="the member that hangs loses its lease, and is told so",
        simulation="fabric",
    ),
    Mutant(
        name="rest-of-a-key-is-not-given-back",
        module=MEMBER,
        old="        self.settle(series, start, stop, Outcome.RELEASED)\n        arriving",
        new="        arriving",
        breaks="events of a key wait for the one that is redelivered",
        simulation="fabric",
    ),
)
