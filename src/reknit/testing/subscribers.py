"""Programs that subscribe: applications with moods, over the production machines."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

from reknit.batch import Batch
from reknit.client.subscribe.subscription import is_behind
from reknit.ledger import Stream
from reknit.outcome import Outcome
from reknit.protocol.machine import Peer
from reknit.protocol.recovery import recovery as recovering
from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.recovery.search import AskCache, SearchSettings
from reknit.protocol.subscribe import subscriber as subscribing
from reknit.seqset import Range, SeqSet
from reknit.testing.clock import START_US
from reknit.testing.observed import ObservedSubscriber, name_of
from reknit.testing.programs import Program
from reknit.testing.world import World
from reknit.wire.codec import encode
from reknit.wire.messages import (
    Lost,
    Message,
    Revoked,
    Settled,
    Start,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from reknit.wire.recovery import Span

CALM_THINK_S = 0.02
"""When all is calm nobody thinks for longer: there may be much to catch up with."""
LEAVE_S = 0.3
"""How long a program that leaves stays to hear the node's answer."""


class SubscriberProgram(Program):
    """Takes events at its own pace, and accepts, releases, fails and rejects them as its mood is."""

    def __init__(
        self, name: str, node: str, world: World, rng: Random, pattern: str, durable: bool, history: bool
    ) -> None:
        super().__init__(name, node, world, rng)
        self.pattern = pattern
        self.durable = durable
        self.history = history
        self._recovers = Random(f"recovers {name} {world.plan.seed}").random() < world.plan.recover_share
        self.is_retired = False
        self.machine: subscribing.Subscriber
        self._recovery: recovering.Recovery | None = None
        self.seen: ObservedSubscriber

    def begin(self) -> None:
        plan = self.world.plan
        start = Start(history=self.history)
        name = self.name if self.durable else ""
        self._recovery = self._make_recovery() if not self.durable and self._recovers else None
        self.machine = self.world.parts.subscriber(
            1, self.pattern, name, start, plan.credit_bytes, recovery=self._recovery, zero_us=START_US
        )
        identity = self.name if self.durable else f"{self.name}.{self.life}"
        self.seen = self.world.witness.subscriber(
            identity, self.node, self.pattern, self.durable, self.history
        )
        self._leaves = ""
        self._inbox: deque[Batch] = deque()
        self._gone: dict[int, SeqSet] = {}
        """What leases ran out of while it waited there."""
        self._is_thinking = False
        self._tick_at = float("inf")
        self._said: deque[tuple[int, Stream, int, int, Outcome]] = deque()

    def _make_recovery(self) -> recovering.Recovery:
        asking = SearchSettings(timeout_s=0.5, patience_s=3.0, bytes_max=2048)
        return recovering.Recovery((subscribing.NODE,), asking, HoldLimits(200, 1 << 14))

    def end(self) -> None:
        self.seen.crashed()

    def linked(self, epoch: str) -> None:
        self._receive(subscribing.Connected(epoch))

    def unlinked(self) -> None:
        self._receive(subscribing.Disconnected())

    def take(self, item: object) -> None:
        match item:
            case subscribing.Delivered() | Settled() | Subscribed() | Unsubscribed() | Lost():
                self._receive(item)
            case Revoked():
                self._revoked((item.topic, item.source), item.start, item.stop)
                self._receive(item)

    def _receive(self, item: subscribing.Input, peer: Peer = subscribing.NODE) -> None:
        self.machine.receive(item, peer, self.world.clock.now)
        self._perform()

    def _perform(self) -> None:
        self._perform_all()
        due = self.machine.next_deadline()
        if due is not None and due < self._tick_at:
            self._tick_at = due
            self.after(max(due - self.world.clock.now, 0.0), self._tick)

    def _tick(self) -> None:
        self._tick_at = float("inf")
        self.machine.tick(self.world.clock.now)
        self._perform()

    def _perform_all(self) -> None:
        out: list[Message] = []
        for effect in self.machine.take_effects():
            match effect:
                case subscribing.Hand(batches=batches):
                    for batch in batches:
                        self.seen.handed(batch)
                    self._inbox += batches
                    self._think()
                case subscribing.SendMessage(message=message):
                    out.append(message)
                case subscribing.Booked(number=number):
                    self._booked(number)
                case subscribing.Opened():
                    self.seen.opened()
                case subscribing.Report():
                    self.world.tell(self.name, effect)
                    self.seen.reported_lost(effect)
                case AskCache(cache=cache, number=number, series=stream, ranges=ranges, bytes_max=bytes_max):
                    asked = (cache, number, stream, ranges, bytes_max)
                    out.append(self.inquiries.recover(self, *asked, deep=True))
                case recovering.SurveyCache():
                    raise AssertionError("a node sees to history itself")
                case subscribing.Ended(text=text):
                    self._ended(text)
        if out:
            self.say(*map(encode, out))

    def _revoked(self, stream: Stream, start: int, stop: int) -> None:
        """A lease ran out: the application lets go of what it had not come to."""
        self.seen.revoked(stream, start, stop)
        for batch in self._inbox:
            if (batch.topic, batch.source) == stream:
                self._gone.setdefault(id(batch), SeqSet()).add(start, stop)

    # -- taking leave

    def leave(self, forget: bool) -> None:
        """Say what there is to say, unsubscribe, and be gone a little later; once."""
        if self._leaves:
            return
        self._flush()
        self._leaves = "for good" if forget and self.durable else "for now"
        self.world.tell(self.name, "leaves", self._leaves)
        if self._leaves == "for good" and self.is_connected:
            self.is_retired = self.seen.is_forgotten = True  # until the node has said that it is forgotten
        self.say(encode(Unsubscribe(1, forget=self._leaves == "for good")))
        self.after(LEAVE_S, self.crash)

    def _ended(self, text: str) -> None:
        if not self._leaves:
            self.world.witness.blame(f"{self.name} was ended: {text}")
        elif self._leaves == "for good":
            self.is_retired = False
            self.world.witness.forget(self.name)

    # -- answers about what is missing

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        self.world.tell(self.name, "recovered", *batches)
        self._receive(recovering.BatchesRecovered(batches), cache)

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        self._receive(recovering.CacheAnswered(number, covered, is_last), cache)

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        self._receive(recovering.CacheSurveyed(number, spans, is_last), cache)

    def unreachable(self, cache: Peer) -> None:
        self._receive(recovering.CacheUnreachable(), cache)

    # -- the application

    def _think(self) -> None:
        if self._inbox and not self._is_thinking:
            self._is_thinking = True
            think_s = self.rng.uniform(0.0, self.world.plan.think_s_max)
            self.after(min(think_s, CALM_THINK_S) if self.world.is_calm else think_s, self._decide)

    def _decide(self) -> None:
        self._is_thinking = False
        if not self._inbox:
            return  # it was given back with what it stood behind
        batch = self._inbox.popleft()
        if batch.counted:
            self.machine.taken(batch.head.length)
        else:
            self.machine.taken_recovered(batch.head.length, self.world.clock.now)
        if not self._hangs():
            self._settle_all(batch)
        self._perform()
        self.after(self.rng.choice((0.0, 0.0, 0.05)), self._flush)
        self._think()

    def _hangs(self) -> bool:
        """Whether the application never says a word about what it has taken: its lease will run out."""
        plan = self.world.plan
        can_hang = bool(plan.lease_s) and self.durable and not self.world.is_calm
        return can_hang and self.rng.random() < plan.hang

    def _settle_all(self, batch: Batch) -> None:
        gone = self._gone.pop(id(batch), SeqSet())
        for low, high in gone.missing(batch.first, batch.stop):
            start = low
            while start < high:
                stop = high if self.rng.random() < 0.7 else self.rng.randint(start + 1, high)
                outcome = self._settle(batch, start, stop)
                start = stop
                if start < batch.ordered_to and not outcome.is_final:
                    self._give_back_rest(batch, start)
                    return

    def _give_back_rest(self, batch: Batch, start: int) -> None:
        """What is behind an event that comes again has to wait for it."""
        if start < batch.stop:
            self._say(batch, start, batch.stop, Outcome.RELEASED)
        for one in [one for one in self._inbox if is_behind(one, batch)]:
            self._inbox.remove(one)
            self._gone.pop(id(one), None)
            if one.counted:
                self.machine.taken(one.head.length)
            self._say(one, one.first, one.stop, Outcome.RELEASED)

    def _settle(self, batch: Batch, start: int, stop: int) -> Outcome:
        outcome = Outcome.ACCEPTED
        if not self.world.is_calm:
            plan = self.world.plan
            moods = (Outcome.ACCEPTED, Outcome.RELEASED, Outcome.FAILED, Outcome.REJECTED)
            outcome = self.rng.choices(moods, (plan.accept, plan.release, plan.fail, plan.reject))[0]
        self._say(batch, start, stop, outcome)
        return outcome

    def _say(self, batch: Batch, start: int, stop: int, outcome: Outcome) -> None:
        stream = (batch.topic, batch.source)
        self.seen.settled(stream, start, stop, outcome)
        self._said.append((-1, stream, start, stop, outcome))
        delay_s = self.rng.choice((0.0, 0.3)) if outcome is Outcome.FAILED else 0.0
        self.world.tell(self.name, outcome.name, name_of(stream), start, stop)
        self.machine.settle(stream, start, stop, outcome, delay_s=delay_s, attempt=batch.attempt)

    def _flush(self) -> None:
        number = self.machine.flush()
        self._said = deque((at if at >= 0 else number, *rest) for at, *rest in self._said)  # type: ignore[misc]
        self._perform()

    def _booked(self, number: int) -> None:
        while self._said and 0 <= self._said[0][0] <= number:
            _, stream, start, stop, outcome = self._said.popleft()
            if outcome.is_final:
                self.seen.booked(stream, start, stop)

    @property
    def is_done(self) -> bool:
        is_searching = self._recovery is not None and self._recovery.is_searching
        has_all = not self._inbox and not is_searching and self.machine.is_settled
        return self.is_retired or (self.is_connected and has_all)
