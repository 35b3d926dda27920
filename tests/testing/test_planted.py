"""The simulator itself: a bug that is planted in one part is found within a few seeds."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from reknit.attempts import Tally
from reknit.batch import Batch, Head
from reknit.entries import Run
from reknit.frame import Buffer
from reknit.ledger import Stream
from reknit.node.core.core import Core
from reknit.outcome import Outcome, Reason
from reknit.protocol.dispatch.expiry import Expiry
from reknit.protocol.dispatch.inputs import Open
from reknit.protocol.dispatch.lanes import Lanes
from reknit.protocol.dispatch.outcome_recorder import Endings
from reknit.protocol.dispatch.queue import Queue
from reknit.protocol.dispatch.settlement import Settling, Word
from reknit.protocol.dispatch.subscribers import Subscriptions
from reknit.protocol.effects import Send
from reknit.protocol.machine import Peer
from reknit.protocol.publish.intake import Intake
from reknit.protocol.publish.publisher import Publisher
from reknit.protocol.subscribe.subscriber import Subscriber
from reknit.records import AttemptRow, OutcomeRow
from reknit.seqset import Range
from reknit.store.memory import SimJournal
from reknit.testing.simulation import Parts, run
from reknit.wire.messages import Ack, Settle, Settled

SEEDS_MAX = 250


class ForgetfulSubscriptions(Subscriptions):
    """After a reconnection it goes on with the newest event, not with what was left."""

    def _resume(self, queue: Queue) -> None:
        super()._resume(queue)
        queue.cursor = self._desk.end


class SettlingThatPromisesTooSoon(Settling):
    """Says that outcomes are booked before they are durable."""

    def settle(self, message: Settle, peer: Peer) -> None:
        super().settle(message, peer)
        self._desk.say(peer, Settled(message.sub, message.number))


class LanesThatStayPaused(Lanes):
    """What waited while its topic was paused is not looked at again."""

    def look_at_all(self) -> None:
        pass


class SubscriptionsThatStayPaused(Subscriptions):
    """Gives queues such lanes."""

    def _queue(self, message: Open, peer: Peer, position: int) -> Queue:
        queue = super()._queue(message, peer, position)
        queue.lanes.__class__ = LanesThatStayPaused
        return queue


class SettlingThatForgetsLeases(Settling):
    """Takes back what was held for too long, and hands it out to nobody."""

    def give_back(
        self, queue: Queue, stream: Stream, bounds: Range, word: Word, tried: list[AttemptRow]
    ) -> list[OutcomeRow]:
        if word.outcome is Outcome.LEASE_LOST:
            return []
        return super().give_back(queue, stream, bounds, word, tried)


class SettlingThatFreesItsHeadTooSoon(Settling):
    """Ends an event that failed, instead of trying it again."""

    def _wait(self, queue: Queue, stream: Stream, start: int, stop: int, due: float) -> None:
        queue.end(stream, start, stop)


class SettlingThatGivesUpTooSoon(Settling):
    """Makes a dead letter of what could be tried once more."""

    def _go_on(
        self, queue: Queue, stream: Stream, bounds: Range, tally: Tally, word: Word
    ) -> list[OutcomeRow]:
        counted = msgspec.structs.replace(tally, failed=tally.failed + 1)
        return super()._go_on(queue, stream, bounds, counted, word)


class ExpiryThatHurries(Expiry):
    """Ends what has a quarter of a second to live."""

    def deadlines(self, run: Run, index: int) -> Iterator[tuple[int, int, int]]:
        for start, stop, due_us in super().deadlines(run, index):
            yield start, stop, due_us - 250_000


class EndingsWithoutALetter(Endings):
    """Books what has expired as a dead letter, and writes none."""

    def letter(self, *args: Any, **fields: Any) -> OutcomeRow:
        row = super().letter(*args, **fields)
        if row.reason == Reason.EXPIRED:
            self._desk.effects.pop()
        return row


class HastyIntake(Intake):
    """Acknowledges events when they come, not when they are durable."""

    def _append(self, peer: Peer, data: Buffer, heads: list[Head], stops: dict[bytes, int]) -> None:
        super()._append(peer, data, heads, stops)
        self._effects += [Send(peer, Ack(source, stop - 1)) for source, stop in stops.items()]


class IntakeThatTakesTwice(Intake):
    """Does not drop what comes again."""

    def _take_odd(self, head: Head, data: Buffer, peer: Peer) -> None:
        if head.stop <= self._next.get(head.source, head.first):
            self._append(peer, data, [head], {head.source: head.stop})
        else:
            super()._take_odd(head, data, peer)


class JournalThatLosesASyncedBatch(SimJournal):
    """What was synced last is not there after a crash."""

    def crash(self, survives: int | None = None) -> SimJournal:
        chunks = self.state.tail.between(self.start, self.state.synced_end)
        if chunks and chunks[-1].entries:
            self.state.synced_end = self.state.end = chunks[-1].position
        return super().crash(survives)


class PublisherThatNeverRepeats(Publisher):
    """Sends nothing again after a reconnection."""

    def _resend(self, seq: int) -> None:
        pass


class SubscriberThatForgetsOutcomes(Subscriber):
    """Drops the outcomes that were under way when the connection broke."""

    def _connect(self, epoch: str) -> None:
        self._said._unbooked.clear()
        super()._connect(epoch)


class SubscriberThatTakesAllTwice(Subscriber):
    """Neither says what it has seen, nor drops it."""

    def checkpoint(self) -> dict[str, int]:
        return {}

    def _order(self, batch: Batch) -> Batch | None:
        super()._order(batch)
        return batch


def core_with(
    subscriptions: type[Subscriptions] = Subscriptions,
    settling: type[Settling] = Settling,
    intake: type[Intake] = Intake,
    expiry: type[Expiry] = Expiry,
    endings: type[Endings] = Endings,
) -> Callable[..., Core]:
    """Cores whose machines are of these kinds."""

    def make(*args: Any, **fields: Any) -> Core:
        core = Core(*args, **fields)
        core.dispatch.subscriptions.__class__ = subscriptions
        core.dispatch.settling.__class__ = settling
        core.intake.__class__ = intake
        core.dispatch.expiry.__class__ = expiry
        core.dispatch.endings.__class__ = endings
        return core

    return make


PLANTED = {
    "dispatch leaves a resumed topic paused": Parts(
        core=core_with(subscriptions=SubscriptionsThatStayPaused)
    ),
    "dispatch forgets what a lease was lost for": Parts(core=core_with(settling=SettlingThatForgetsLeases)),
    "dispatch drops what is to be tried again": Parts(
        core=core_with(settling=SettlingThatFreesItsHeadTooSoon)
    ),
    "dispatch gives up too soon": Parts(core=core_with(settling=SettlingThatGivesUpTooSoon)),
    "dispatch lets events expire too soon": Parts(core=core_with(expiry=ExpiryThatHurries)),
    "dispatch forgets a dead letter": Parts(core=core_with(endings=EndingsWithoutALetter)),
    "dispatch forgets a range on reconnection": Parts(core=core_with(subscriptions=ForgetfulSubscriptions)),
    "dispatch promises too soon": Parts(core=core_with(settling=SettlingThatPromisesTooSoon)),
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
