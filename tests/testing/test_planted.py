"""The simulator itself: a bug that is planted in one part is found within a few seeds."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from reknit.attempts import AttemptCount
from reknit.batch import Batch, Head
from reknit.entries import Run
from reknit.frame import Buffer
from reknit.ledger import Account, Series
from reknit.node.core.core import Core
from reknit.outcome import Outcome, Reason
from reknit.protocol.dispatch.expiry import Expiry
from reknit.protocol.dispatch.inputs import OpenSubscription
from reknit.protocol.dispatch.lanes import Lanes
from reknit.protocol.dispatch.outcome_recorder import OutcomeRecorder
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.settlement import DispatchSettlement
from reknit.protocol.dispatch.subscribers import Subscribers
from reknit.protocol.disposition import Disposition
from reknit.protocol.effects import DeadLetter, Send
from reknit.protocol.machine import Peer
from reknit.protocol.publish.intake import Intake
from reknit.protocol.publish.publisher import SourcePublisher
from reknit.protocol.subscribe.subscriber import Subscriber
from reknit.records import AttemptRow, OutcomeRow
from reknit.seqset import Range
from reknit.store.memory import SimJournal
from reknit.testing.simulation import Parts, run
from reknit.wire.messages import Ack, Settle, Settled

SEEDS_MAX = 250


class ForgetfulSubscribers(Subscribers):
    """Resumes with the newest event after a reconnection, not with the oldest one that is owed."""

    def _resume(self, queue: Queue, account: Account) -> None:
        super()._resume(queue, account)
        queue.cursor.read_to(self._state.end)


class SettlementThatConfirmsTooSoon(DispatchSettlement):
    """Confirms outcomes before they are durable."""

    def settle(self, message: Settle, peer: Peer) -> None:
        super().settle(message, peer)
        self._state.send(peer, Settled(message.sub, message.number))


class LanesThatStayPaused(Lanes):
    """Forgets events that waited while their topic was paused."""

    def look_at_all(self) -> None:
        pass


class SubscribersThatStayPaused(Subscribers):
    """Gives queues such lanes."""

    def _queue(self, message: OpenSubscription, peer: Peer, position: int) -> Queue:
        queue = super()._queue(message, peer, position)
        queue.lanes.__class__ = LanesThatStayPaused
        return queue


class SettlementThatForgetsLeases(DispatchSettlement):
    """Takes back events that were held for too long, and delivers them to nobody."""

    def give_back(
        self, queue: Queue, series: Series, bounds: Range, said: Disposition, tried: list[AttemptRow]
    ) -> list[OutcomeRow]:
        if said.outcome is Outcome.LEASE_LOST:
            return []
        return super().give_back(queue, series, bounds, said, tried)


class SettlementThatFreesItsHeadTooSoon(DispatchSettlement):
    """Ends an event that failed, instead of retrying it."""

    def _retry(self, queue: Queue, series: Series, bounds: Range, due: float) -> None:
        queue.end(series, *bounds)


class SettlementThatGivesUpTooSoon(DispatchSettlement):
    """Makes a dead letter of an event that could be tried once more."""

    def _retry_or_end(
        self, queue: Queue, series: Series, bounds: Range, count: AttemptCount, said: Disposition
    ) -> list[OutcomeRow]:
        counted = msgspec.structs.replace(count, failed=count.failed + 1)
        return super()._retry_or_end(queue, series, bounds, counted, said)


class ExpiryThatHurries(Expiry):
    """Ends events that have a quarter of a second to live."""

    def deadlines(self, run: Run, index: int) -> Iterator[tuple[int, int, int]]:
        for start, stop, due_us in super().deadlines(run, index):
            yield start, stop, due_us - 250_000


class RecorderWithoutADeadLetter(OutcomeRecorder):
    """Records an expired event as a dead letter, and writes none."""

    def letter(self, *args: Any, **fields: Any) -> OutcomeRow:
        row = super().letter(*args, **fields)
        if row.reason == Reason.EXPIRED:
            effects = self._state.take_effects()
            assert isinstance(effects.pop(), DeadLetter)
            self._state.put_back_effects(effects)
        return row


class HastyIntake(Intake):
    """Acknowledges events when they arrive, not when they are durable."""

    def _append(self, peer: Peer, data: Buffer, heads: list[Head], stops: dict[bytes, int]) -> None:
        super()._append(peer, data, heads, stops)
        self._effects += [Send(peer, Ack(source, stop - 1)) for source, stop in stops.items()]


class IntakeThatTakesTwice(Intake):
    """Does not drop repeated events."""

    def _take_other(self, head: Head, data: Buffer, peer: Peer) -> None:
        if head.stop <= self._positions.next_seqs.get(head.source, head.first):
            self._append(peer, data, [head], {head.source: head.stop})
        else:
            super()._take_other(head, data, peer)


class JournalThatLosesASyncedBatch(SimJournal):
    """Loses the batch that was synced last in a crash."""

    def crash(self, survives: int | None = None) -> SimJournal:
        chunks = self.state.tail.between(self.start, self.state.synced_end)
        if chunks and chunks[-1].entries:
            self.state.synced_end = self.state.end = chunks[-1].position
        return super().crash(survives)


class PublisherThatNeverRepeats(SourcePublisher):
    """Resends nothing after a reconnection."""

    def _resend(self, seq: int) -> None:
        pass


class SubscriberThatForgetsOutcomes(Subscriber):
    """Drops the outcomes that were not confirmed when the connection broke."""

    def _connect(self, epoch: str) -> None:
        self.node.outcomes.clear()
        super()._connect(epoch)


class SubscriberThatTakesAllTwice(Subscriber):
    """Neither reports which events it has seen, nor drops them."""

    def checkpoint(self) -> dict[str, int]:
        return {}

    def _order(self, batch: Batch) -> Batch | None:
        super()._order(batch)
        return batch


def core_with(
    subscribers: type[Subscribers] = Subscribers,
    settlement: type[DispatchSettlement] = DispatchSettlement,
    intake: type[Intake] = Intake,
    expiry: type[Expiry] = Expiry,
    recorder: type[OutcomeRecorder] = OutcomeRecorder,
) -> Callable[..., Core]:
    """Cores with machines of these classes."""

    def make(*args: Any, **fields: Any) -> Core:
        core = Core(*args, **fields)
        core.dispatch.subscribers.__class__ = subscribers
        core.dispatch.settlement.__class__ = settlement
        core.intake.__class__ = intake
        core.dispatch.expiry.__class__ = expiry
        core.dispatch.recorder.__class__ = recorder
        return core

    return make


PLANTED = {
    "dispatch leaves a resumed topic paused": Parts(core=core_with(subscribers=SubscribersThatStayPaused)),
    "dispatch forgets what a lease was lost for": Parts(
        core=core_with(settlement=SettlementThatForgetsLeases)
    ),
    "dispatch drops what is to be tried again": Parts(
        core=core_with(settlement=SettlementThatFreesItsHeadTooSoon)
    ),
    "dispatch gives up too soon": Parts(core=core_with(settlement=SettlementThatGivesUpTooSoon)),
    "dispatch lets events expire too soon": Parts(core=core_with(expiry=ExpiryThatHurries)),
    "dispatch forgets a dead letter": Parts(core=core_with(recorder=RecorderWithoutADeadLetter)),
    "dispatch forgets a range on reconnection": Parts(core=core_with(subscribers=ForgetfulSubscribers)),
    "dispatch promises too soon": Parts(core=core_with(settlement=SettlementThatConfirmsTooSoon)),
    "intake acknowledges before the journal has kept": Parts(core=core_with(intake=HastyIntake)),
    "intake takes duplicates": Parts(core=core_with(intake=IntakeThatTakesTwice)),
    "journal loses a synced batch": Parts(journal=JournalThatLosesASyncedBatch),
    "publisher never repeats": Parts(publisher=PublisherThatNeverRepeats),
    "subscriber forgets outcomes": Parts(subscriber=SubscriberThatForgetsOutcomes),
    "subscriber takes all twice": Parts(subscriber=SubscriberThatTakesAllTwice),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(bug: str) -> None:
    found = next((seed for seed in range(SEEDS_MAX) if not run(seed, PLANTED[bug]).is_good), None)
    assert found is not None, f"{bug}: not found in {SEEDS_MAX} seeds"
