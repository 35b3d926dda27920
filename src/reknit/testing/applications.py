"""The application of a simulated subscriber: takes batches at its own pace, and settles them at random.

It accepts, releases, fails and rejects as the plan's weights say. It may never settle a batch, if there are leases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from reknit.batch import Batch
from reknit.client.subscribe.delivery_queue import is_behind
from reknit.ledger import Series
from reknit.outcome import Outcome
from reknit.protocol.subscribe.shared_subscriber import SharedSubscriber
from reknit.protocol.subscribe.subscriber import Subscriber
from reknit.seqset import SeqSet
from reknit.testing.checks.deliveries import credit_is_kept, name_of
from reknit.testing.observed import ObservedSubscriber
from reknit.testing.world import World
from reknit.topic import is_reserved

CALM_THINK_S = 0.02
"""The longest time that an application thinks once the faults are over: it may have a long backlog."""


class Application:
    """The application in one run of a subscriber's program.

    It calls the machine, then `perform`, which performs the machine's effects. `after` runs an action later, unless the
    program has crashed by then. `die` crashes it.
    """

    def __init__(
        self,
        name: str,
        machine: Subscriber | SharedSubscriber,
        seen: ObservedSubscriber,
        world: World,
        rng: Random,
        *,
        after: Callable[[float, Callable[[], None]], None],
        perform: Callable[[], None],
        die: Callable[[], None],
    ) -> None:
        self._name = name
        self._machine = machine
        self._seen = seen
        self._world = world
        self._rng = rng
        self._after = after
        self._perform = perform
        self._die = die
        self._inbox: deque[Batch] = deque()
        self._revoked: dict[int, SeqSet] = {}
        """Events that were revoked while they waited in the inbox, by the id of their batch."""
        self._is_thinking = False
        self._unconfirmed: deque[tuple[int, Series, int, int, Outcome]] = deque()
        """Outcomes that the node has not confirmed, each with the number of its message; -1: not sent yet."""

    @property
    def is_idle(self) -> bool:
        return not self._inbox

    def continue_with(self, machine: SharedSubscriber) -> None:
        """The subscription is shared with others."""
        self._machine = machine

    def drop(self) -> None:
        """The connection is lost, and with it what this member of a queue has. It does not hear what is stored of that:
        an outcome that is repeated may come too late."""
        self._inbox.clear()
        self._revoked.clear()
        self._unconfirmed.clear()

    def take(self, batches: Sequence[Batch]) -> None:
        """Batches are delivered."""
        for batch in batches:
            self._seen.delivered(batch)
        self._inbox += batches
        sizes = [batch.head.length for batch in self._inbox if batch.counted]
        problems = credit_is_kept(sizes, self._world.plan.credit_bytes_max)
        self._world.witness.blame_all(self._name, problems)
        self._think()

    def revoke(self, series: Series, start: int, stop: int) -> None:
        """Leases ran out: drop the events that are not processed yet."""
        self._seen.revoked(series, start, stop)
        for batch in self._inbox:
            if (batch.topic, batch.source) == series:
                self._revoked.setdefault(id(batch), SeqSet()).add(start, stop)

    def outcomes_stored(self, number: int) -> None:
        """The node has stored the outcomes of all messages up to this one."""
        while self._unconfirmed and 0 <= self._unconfirmed[0][0] <= number:
            _, series, start, stop, outcome = self._unconfirmed.popleft()
            self._seen.outcome_stored(series, start, stop, outcome)

    def flush(self) -> None:
        """Send all outcomes."""
        number = self._machine.flush()
        rows = ((at if at >= 0 else number, *rest) for at, *rest in self._unconfirmed)
        self._unconfirmed = deque(rows)  # type: ignore[arg-type]
        self._perform()

    # -- processing

    def _think(self) -> None:
        if self._inbox and not self._is_thinking:
            self._is_thinking = True
            think_s = self._rng.uniform(0.0, self._world.plan.think_s_max)
            self._after(min(think_s, CALM_THINK_S) if self._world.is_calm else think_s, self._decide)

    def _decide(self) -> None:
        self._is_thinking = False
        if not self._inbox:
            return  # it was returned, together with the event before it
        batch = self._inbox.popleft()
        self._taken(batch)
        lethal = self._lethal(batch)
        if lethal is not None:
            self._end_with(batch, lethal)
            return
        if not self._hangs():
            self._settle_all(batch)
        self._perform()
        self._after(self._rng.choice((0.0, 0.0, 0.05)), self.flush)
        self._think()

    def _taken(self, batch: Batch) -> None:
        """There is room for more."""
        if batch.counted:
            self._machine.taken(batch.head.length)
        else:
            self._machine.taken_recovered(batch.head.length, self._world.clock.now)

    def _lethal(self, batch: Batch) -> int | None:
        """The first event of a batch that the process dies of, if any. It does so even when all faults are over."""
        every = self._world.plan.lethal_every
        if not every or not self._seen.kind.durable or is_reserved(batch.topic):
            return None
        revoked = self._revoked.get(id(batch), SeqSet())
        return next((s for s in range(batch.first, batch.stop) if s % every == 0 and s not in revoked), None)

    def _end_with(self, batch: Batch, lethal: int) -> None:
        """The process dies of an event. Outcomes of those before it may have been sent, or not."""
        revoked = self._revoked.get(id(batch), SeqSet())
        for start, stop in revoked.missing(batch.first, lethal):
            self._settle(batch, start, stop, Outcome.ACCEPTED)
        if self._rng.random() < 0.5:
            self.flush()
        self._seen.died_of((batch.topic, batch.source), lethal)
        self._world.tell(self._name, "dies of", name_of((batch.topic, batch.source)), lethal)
        self._die()

    def _hangs(self) -> bool:
        """Whether the application never settles this batch, so that its lease runs out."""
        plan = self._world.plan
        can_hang = bool(plan.lease_s) and self._seen.kind.durable and not self._world.is_calm
        return can_hang and self._rng.random() < plan.hang

    # -- settling

    def _settle_all(self, batch: Batch) -> None:
        revoked = self._revoked.pop(id(batch), SeqSet())
        for low, high in revoked.missing(batch.first, batch.stop):
            start = low
            while start < high:
                stop = high if self._rng.random() < 0.7 else self._rng.randint(start + 1, high)
                stop, outcome = self._poisoned(start, stop, self._choose())
                self._settle(batch, start, stop, outcome)
                start = stop
                if start < batch.ordered_to and not outcome.is_final:
                    self._return_rest(batch, start)
                    return

    def _return_rest(self, batch: Batch, start: int) -> None:
        """Return the events behind one that will be redelivered: they must wait for it. Some may be on their way."""
        if start < batch.stop:
            self._said(batch, start, batch.stop, Outcome.RELEASED)
        for one in [one for one in self._inbox if is_behind(one, batch)]:
            self._inbox.remove(one)
            self._revoked.pop(id(one), None)
            self._taken(one)
            self._said(one, one.first, one.stop, Outcome.RELEASED)
        series = (batch.topic, batch.source)
        self._machine.give_back_rest(series, start, batch.ordered_to, batch.attempt)

    def _poisoned(self, start: int, stop: int, outcome: Outcome) -> tuple[int, Outcome]:
        """The application fails at some events, however often they come."""
        every = self._world.plan.poison_every
        if not every or self._world.is_calm:
            return stop, outcome
        if start % every == 0:
            return start + 1, Outcome.FAILED
        return min(stop, start - start % every + every), outcome

    def _choose(self) -> Outcome:
        if self._world.is_calm:
            return Outcome.ACCEPTED
        plan = self._world.plan
        outcomes = (Outcome.ACCEPTED, Outcome.RELEASED, Outcome.FAILED, Outcome.REJECTED)
        return self._rng.choices(outcomes, (plan.accept, plan.release, plan.fail, plan.reject))[0]

    def _said(self, batch: Batch, start: int, stop: int, outcome: Outcome) -> None:
        series = (batch.topic, batch.source)
        self._seen.settled(series, start, stop, outcome)
        self._unconfirmed.append((-1, series, start, stop, outcome))
        self._world.tell(self._name, outcome.name, name_of(series), start, stop)

    def _settle(self, batch: Batch, start: int, stop: int, outcome: Outcome) -> None:
        self._said(batch, start, stop, outcome)
        delay_s = self._rng.choice((0.0, 0.3)) if outcome is Outcome.FAILED else 0.0
        series = (batch.topic, batch.source)
        self._machine.settle(series, start, stop, outcome, delay_s=delay_s, attempt=batch.attempt)
