"""A seeded simulation of recovery: caches anywhere, crashes, partitions, losses; in virtual time.

`python -m tests.protocol.recovery.simulation SEED` replays one seed and prints what happened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from random import Random

from reknit.batch import Batch
from reknit.protocol.recovery.cache import CacheBounds, MemoryCache, answer
from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.recovery.recovery import (
    BatchesRecovered,
    CacheAnswered,
    CacheReachable,
    CacheSurveyed,
    CacheUnreachable,
    HeldBatchesDropped,
    Recovery,
    ReleaseBatches,
    SurveyCache,
    UnrecoverableGap,
)
from reknit.protocol.recovery.search import AskCache, SearchSettings
from reknit.testing.clock import Clock
from reknit.testing.faults import FaultPlan
from reknit.testing.network import Network
from reknit.topic import Pattern
from reknit.wire.recovery import Heartbeat, Recover

TOPIC = "plant/temp"
END_S = 5.0
LATENCY_S_MAX = 0.01
ASKING = SearchSettings(timeout_s=0.2, patience_s=1e9, bytes_max=2_000, again_s=0.05)


class Latency:
    """Delays every message, and loses none."""

    def delays_s(self, rng: Random) -> list[float]:
        return [rng.uniform(0.001, LATENCY_S_MAX)]


class Place:
    """A cache and its faults."""

    def __init__(self, name: str, rng: Random) -> None:
        self.name = name
        self.bounds = CacheBounds(events_max=rng.choice((0, 0, 20, 100)))
        self.cache = MemoryCache(Pattern("**"), self.bounds)
        self.is_up = True
        self.is_fed = True
        """Whether published events reach it."""
        self.is_reachable = True
        """Whether the subscriber reaches it."""

    def holds(self, source: bytes, seq: int) -> bool:
        return self.is_up and bool(self.cache.find(TOPIC, source, seq, seq + 1, 1))


class Simulation:
    """One subscriber, some publishers, some caches."""

    def __init__(self, seed: int, tell: Callable[[str], None] = lambda text: None) -> None:
        self.rng = Random(seed)
        self._clock = Clock()
        self._network = Network(self._clock, FaultPlan(seed=seed), self.rng, datagram_faults=Latency())
        self.places = [Place(f"cache-{number}", self.rng) for number in range(self.rng.randint(1, 4))]
        names = [place.name for place in self.places]
        holding = HoldLimits(events_max=self.rng.choice((30, 1_000_000)))
        query_s = self.rng.choice((0.0, 0.3))
        self.recovery = Recovery(names, ASKING, holding, None, query_s)
        self.sources = [bytes([65 + number]) * 16 for number in range(self.rng.randint(1, 3))]
        self.last = dict.fromkeys(self.sources, 0)
        self.next: dict[bytes, int] = {}
        self.lost: list[tuple[bytes, int]] = []
        self.delivered = 0
        self.is_cut = False
        """Whether live events to the subscriber are lost."""
        self._tell = tell
        self._timer_at = float("inf")

    # -- running

    @property
    def now(self) -> float:
        return self._clock.now

    def run(self) -> None:
        """Run to the end, when all faults are healed; check every invariant on the way."""
        self.recovery.start(0.0)
        for source in self.sources:
            self._after(self.rng.uniform(0, 0.05), lambda source=source: self._publish(source))  # type: ignore[misc]
        for place in self.places:
            self._after(self.rng.uniform(0, 1.0), lambda place=place: self._harm(place))  # type: ignore[misc]
        self._after(self.rng.uniform(0, 0.5), self._cut)
        self._after(END_S, self._heal)
        self._perform()
        self._clock.run(END_S * 4, is_over=self._is_over)
        for source in self.sources:
            seen = self.next.get(source)
            assert seen is None or seen == self.last[source] + 1, (
                f"{source!r} ended before {self.last[source]}"
            )

    def _after(self, delay_s: float, action: Callable[[], None]) -> None:
        self._clock.after(delay_s, partial(self._step, action))

    def _send(self, sender: str, receiver: str, action: Callable[[], None]) -> None:
        self._network.send_datagram(sender, receiver, partial(self._step, action))

    def _step(self, action: Callable[[], None]) -> None:
        action()
        self._perform()

    def _is_over(self) -> bool:
        assert self._clock.steps < 500_000, "it does not come to an end"
        return False

    # -- faults and events

    def _publish(self, source: bytes) -> None:
        if self.now >= END_S:
            return
        first = self.last[source] + 1
        count = self.rng.randint(1, 5)
        self.last[source] += count
        data = bytes(Batch.build(source, TOPIC, first, [b"x"] * count, int(self.now * 1e6)).data)
        for place in self.places:
            if place.is_fed:
                self._send("publisher", place.name, partial(self._store, place, data))
        if not self.is_cut and self.rng.random() > 0.05:
            self._send("publisher", "subscriber", partial(self._arrive, data))
        self._after(self.rng.uniform(0.005, 0.05), lambda: self._publish(source))

    def _store(self, place: Place, data: bytes) -> None:
        if place.is_up:
            place.cache.put(Batch.parse(data), int(self.now * 1e6))

    def _arrive(self, data: bytes) -> None:
        batch = Batch.parse(data)
        if self.recovery.arrive(batch, self.now):
            self._hand([batch])

    def _harm(self, place: Place) -> None:
        """A cache has a fault for a while."""
        if self.now >= END_S - 1.0:
            return
        harm = self.rng.choice(("crash", "stop", "starve", "part", "part silently"))
        over_s = self.rng.uniform(0.05, 0.8)
        self._tell(f"{self.now:.3f} {place.name}: {harm} for {over_s:.3f} s")
        if harm == "crash":
            place.cache = MemoryCache(Pattern("**"), place.bounds)
        place.is_up = harm not in ("crash", "stop")
        place.is_fed = harm != "starve"
        place.is_reachable = harm not in ("part", "part silently")
        if harm in ("crash", "stop", "part"):
            self.recovery.receive(CacheUnreachable(), place.name, self.now)
        self._after(over_s, lambda: self._mend(place))

    def _mend(self, place: Place) -> None:
        place.is_up = place.is_fed = place.is_reachable = True
        if self.rng.random() < 0.5:
            self.recovery.receive(CacheReachable(), place.name, self.now)
        self._after(self.rng.uniform(0.1, 1.0), lambda: self._harm(place))

    def _cut(self) -> None:
        self.is_cut = not self.is_cut and self.now < END_S - 1.0
        self._after(self.rng.uniform(0.05, 0.5), self._cut) if self.now < END_S else None

    def _heal(self) -> None:
        """Heal all faults; heartbeats announce the last seqs of the sources."""
        self.is_cut = False
        for source in self.sources:
            self._after(0.1, lambda source=source: self._beat(source))  # type: ignore[misc]

    def _beat(self, source: bytes) -> None:
        self.recovery.receive(Heartbeat(TOPIC, source, self.last[source]), "publisher", self.now)

    # -- effects

    def _perform(self) -> None:
        while effects := self.recovery.take_effects():
            for effect in effects:
                match effect:
                    case ReleaseBatches(batches=batches):
                        self._hand(batches)
                    case UnrecoverableGap(series=(_, source), start=start, stop=stop):
                        self._lose(source, start, stop)
                    case AskCache():
                        self._send("subscriber", str(effect.cache), partial(self._ask, effect))
                    case SurveyCache():
                        self._send("subscriber", str(effect.cache), partial(self._survey, effect))
                    case HeldBatchesDropped():
                        pass
        due = self.recovery.next_deadline()
        if due is not None and (due < self._timer_at or self._timer_at <= self.now):
            self._timer_at = max(due, self.now)
            self._after(self._timer_at - self.now, self._tick)

    def _tick(self) -> None:
        self._timer_at = float("inf")
        self.recovery.tick(self.now)

    def _place(self, name: object) -> Place | None:
        place = next(place for place in self.places if place.name == name)
        return place if place.is_up and place.is_reachable else None

    def _ask(self, ask: AskCache) -> None:
        place = self._place(ask.cache)
        if place is None:
            return
        batches, covered = answer(place.cache, Recover(ask.number, *ask.series, ask.ranges, ask.bytes_max))
        copies = [Batch.parse(bytes(batch.data)) for batch in batches]
        self._send(place.name, "subscriber", partial(self._answer, ask, copies, covered))

    def _answer(self, ask: AskCache, batches: list[Batch], covered: list[tuple[int, int]]) -> None:
        if self._place(ask.cache) is not None:
            self.recovery.receive(BatchesRecovered(batches), ask.cache, self.now)
            self.recovery.receive(CacheAnswered(ask.number, covered), ask.cache, self.now)

    def _survey(self, survey: SurveyCache) -> None:
        place = self._place(survey.cache)
        if place is not None:
            spans = place.cache.survey(Pattern("**"))
            told = CacheSurveyed(survey.number, spans)
            self._send(place.name, "subscriber", lambda: self.recovery.receive(told, survey.cache, self.now))

    # -- invariants

    def _hand(self, batches: list[Batch]) -> None:
        for batch in batches:
            expected = self.next.get(batch.source, batch.first)
            assert batch.first == expected, f"{batch.first} came where {expected} was due"
            self.next[batch.source] = batch.stop
            self.delivered += batch.count

    def _lose(self, source: bytes, start: int, stop: int) -> None:
        expected = self.next.get(source, start)
        assert start == expected, f"[{start}, {stop}) is reported as lost where {expected} was due"
        for seq in range(start, stop):
            holder = next((place.name for place in self.places if place.holds(source, seq)), None)
            assert holder is None, f"{seq} is reported as lost, and {holder} holds it"
            self.lost.append((source, seq))
        self.next[source] = stop


if __name__ == "__main__":
    simulation = Simulation(int(sys.argv[1]), print)
    simulation.run()
    print(
        f"delivered {simulation.delivered}, lost {len(simulation.lost)}, asked {simulation.recovery.questions}"
    )
