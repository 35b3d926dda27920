"""Workers of different speed, in virtual time: each gets what it can do, and nobody waits for ever."""

from __future__ import annotations

import heapq
import statistics
from collections import Counter, deque
from random import Random

import pytest

from reknit.batch import Batch
from reknit.outcome import Outcome
from reknit.protocol.anycast.delivery import HERE
from reknit.protocol.anycast.inputs import Attach, DeliverLocally, OfferEvents, SubscriberOutcomes
from reknit.protocol.anycast.machine import AnycastMachine
from reknit.protocol.anycast.window import FIRST, LEAST, Window
from reknit.protocol.routing.routes import Routes
from reknit.topic import Pattern
from reknit.wire.messages import DispositionRow

TOPIC, SOURCE = "jobs", b"s" * 16


class Workers:
    """Subscribers of one node. Each takes some seconds for an event, or gathers so many before it settles them."""

    def __init__(self, **takes_s: float) -> None:
        self.now = 0.0
        self.machine = AnycastMachine("a", Routes("a", 1), Random(1))
        self.done: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._takes_s = takes_s
        self._gathers: dict[str, int] = {}
        self._held: dict[str, deque[int]] = {}
        self._due: list[tuple[float, str]] = []
        for name in takes_s:
            self._attach(name)

    def gathers(self, name: str, count: int) -> None:
        self._gathers[name] = count
        self._attach(name)

    def _attach(self, name: str) -> None:
        self._held[name] = deque()
        self.machine.receive(Attach(Pattern(TOPIC), "bytes", 1 << 30, name), name, self.now)

    def offer(self, first: int, count: int) -> None:
        batch = Batch.build(SOURCE, TOPIC, first, [b"x"] * count, time_us=0)
        self.machine.receive(OfferEvents(batch, "balanced", resend=True), HERE, self.now)
        self._perform()

    def run(self, until_s: float = 3600.0) -> None:
        """Run until nothing happens any more."""
        while True:
            deadline = self.machine.next_deadline()
            times = [at for at in (self._due[0][0] if self._due else None, deadline) if at is not None]
            if not times or min(times) > until_s:
                return
            self.now = max(self.now, min(times))
            if self._due and self._due[0][0] <= self.now:
                name = heapq.heappop(self._due)[1]
                self._settle(name, 1)
                if self._held[name]:
                    heapq.heappush(self._due, (self.now + self._takes_s[name], name))
            else:
                self.machine.tick(self.now)
            self._perform()

    def _settle(self, name: str, count: int) -> None:
        seqs = [self._held[name].popleft() for _ in range(count)]
        self.done[name] += count
        rows = [DispositionRow(TOPIC, SOURCE, seq, seq + 1, Outcome.ACCEPTED) for seq in seqs]
        self.machine.receive(SubscriberOutcomes(rows), name, self.now)

    def _perform(self) -> None:
        for effect in self.machine.take_effects():
            if isinstance(effect, DeliverLocally):
                name = str(effect.key)
                was_idle = not self._held[name]
                self._held[name].extend(range(effect.start, effect.stop))
                self.most[name] = max(self.most[name], len(self._held[name]))
                if was_idle and name in self._takes_s:
                    heapq.heappush(self._due, (self.now + self._takes_s[name], name))
        for name, count in self._gathers.items():
            if len(self._held[name]) >= count:
                self._settle(name, count)
                self._perform()


def test_two_equal_workers_take_half_of_the_time() -> None:
    workers = Workers(one=0.02, two=0.02)
    workers.offer(1, 200)
    workers.run()
    assert workers.done == {"one": 100, "two": 100}
    assert workers.now == pytest.approx(2.0)


def test_a_fast_and_a_slow_worker_get_what_they_can_do() -> None:
    workers = Workers(slow=0.1, fast=0.01)
    workers.offer(1, 1100)
    workers.run()
    assert workers.now < 10.0 * 1.2, "together they can do 110 events a second"
    assert workers.most["slow"] <= FIRST
    assert sum(workers.done.values()) == 1100


def test_a_worker_that_gathers_more_than_its_window_gets_them_and_is_not_kept_waiting_again() -> None:
    workers = Workers()
    workers.gathers("patient", 100)
    workers.offer(1, 100)
    workers.run()
    assert workers.done == {"patient": 100}
    waited_s = workers.now
    for first in range(101, 1101, 100):
        workers.offer(first, 100)
        workers.run()
    assert workers.done == {"patient": 1100}
    assert workers.now == waited_s


def test_a_worker_that_hangs_gets_no_more_while_another_works() -> None:
    workers = Workers(works=0.01)
    workers.gathers("hangs", 1 << 30)
    workers.offer(1, 5000)
    workers.run(until_s=45.0)
    assert workers.done["works"] > 4400
    assert workers.most["hangs"] == FIRST


def test_a_window_follows_the_speed_of_its_path() -> None:
    window, now = Window(), 0.0
    window.sent(now)
    for takes_s, at_most in ((1.0, LEAST), (0.001, 204), (0.1, LEAST)):
        for _ in range(2000):
            now += takes_s
            window.settled(1, now, left=1)
        assert LEAST <= window.size <= at_most + 1


def test_a_path_that_settles_at_once_gets_as_much_as_there_is() -> None:
    window = Window()
    window.sent(5.0)
    window.settled(FIRST, 5.0, left=0)
    assert window.size > 1_000_000


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("takes_s", [0.000_01, 0.001, 0.02])
def test_equal_workers_get_equally_many_of_a_burst(count: int, takes_s: float) -> None:
    rng = Random(1)
    workers = Workers(**{f"w{number}": takes_s * rng.uniform(0.97, 1.03) for number in range(count)})
    workers.offer(1, 1000)
    workers.run()
    done = list(workers.done.values())
    assert sum(done) == 1000
    assert statistics.pstdev(done) / statistics.mean(done) < 0.1


def flow(trip_s: float, takes_s: float, events: int) -> tuple[int, float]:
    """A subscriber that settles its events one by one, far away: its window in the end, and its last rate."""
    window, now, in_hand = Window(), 0.0, deque[float]()
    began, last = 0.0, 0.0
    for number in range(events):
        while len(in_hand) < window.size:
            window.sent(now)
            last = max(now + trip_s, last) + takes_s
            in_hand.append(last)
        now = in_hand.popleft()
        window.settled(1, now, len(in_hand))
        if number == events // 2:
            began = now
    return window.size, (events - events // 2 - 1) / (now - began)


@pytest.mark.parametrize("trip_s", [0.0, 0.02, 0.15, 0.3, 0.6])
def test_long_way_does_not_make_a_path_slow(trip_s: float) -> None:
    """A fifth of a second of work is too little for a path whose way alone takes longer."""
    size, rate = flow(trip_s, takes_s=0.002, events=6000)
    assert rate > 450, "it could settle 500 a second"
    assert size <= 1.5 * 500 * (0.2 + trip_s) + 2, "and it holds no more than that takes"
