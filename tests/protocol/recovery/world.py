"""One subscriber's recovery machine and its caches, in virtual time. There is no network: a cache answers at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reknit.batch import Batch
from reknit.protocol.recovery.cache import CacheBounds, MemoryCache, answer
from reknit.protocol.recovery.held_series import HoldLimits
from reknit.protocol.recovery.history import History
from reknit.protocol.recovery.recovery import (
    BatchesRecovered,
    CacheAnswered,
    CacheReachable,
    CacheSurveyed,
    HeldBatchesDropped,
    Recovery,
    ReleaseBatches,
    SurveyCache,
    UnrecoverableGap,
)
from reknit.protocol.recovery.search import AskCache, SearchSettings
from reknit.topic import Pattern
from reknit.wire.recovery import Heartbeat, Recover

ALL = Pattern("**")
TOPIC = "plant/temp"
ANN, BOB = b"a" * 16, b"b" * 16


def batch(first: int, stop: int | None = None, source: bytes = ANN, topic: str = TOPIC, us: int = 0) -> Batch:
    """Events `[first, stop)`, one if no stop is given. A payload is the event's seq."""
    payloads = [str(seq).encode() for seq in range(first, first + 1 if stop is None else stop)]
    return Batch.build(source, topic, first, payloads, us)


class World:
    """Runs one subscriber's recovery against caches, in virtual time."""

    def __init__(
        self,
        caches: dict[str, MemoryCache] | None = None,
        history: History | None = None,
        query_s: float = 0.0,
        asking: SearchSettings | None = None,
        holding: HoldLimits | None = None,
    ) -> None:
        self.caches = caches if caches is not None else {"cache": MemoryCache(ALL)}
        self.now = 0.0
        self.hung: set[str] = set()
        self.recovery = Recovery(list(self.caches), asking, holding, history, query_s)
        self.out: list[object] = []
        """The application's deliveries: seqs (with the source's first letter, except for ann), and losses."""
        self.asked: list[tuple[str, list[tuple[int, int]]]] = []
        self.surveyed: list[str] = []
        self.dropped = 0

    # -- publishing

    def put(self, *batches: Batch, is_lost: bool = False, into: Iterable[str] | None = None) -> None:
        """Publish to caches, and to the subscriber unless that is lost."""
        for one in batches:
            for name in self.caches if into is None else into:
                self.caches[name].put(one, self.now_us)
            if not is_lost:
                self.arrive(one)

    def arrive(self, one: Batch) -> None:
        """A batch reaches the subscriber."""
        if self.recovery.arrive(one, self.now):
            self._hand([one])
        self.pump()

    def beat(self, seq: int, source: bytes = ANN) -> None:
        """A heartbeat reaches the subscriber."""
        self.recovery.receive(Heartbeat(TOPIC, source, seq), "publisher", self.now)
        self.pump()

    def start(self) -> None:
        """The subscription is confirmed."""
        self.recovery.start(self.now)
        self.pump()

    # -- time

    @property
    def now_us(self) -> int:
        return int(self.now * 1e6)

    def wait(self, seconds: float) -> None:
        """Let time pass, from one deadline to the next."""
        until = self.now + seconds
        for _ in range(10_000):
            due = self.recovery.next_deadline()
            if due is None or due > until:
                break
            assert due > self.now - 1e-9, "a deadline in the past"
            self.now = max(due, self.now)
            self.recovery.tick(self.now)
            self.pump()
        else:
            raise AssertionError("the machine wants to be called for ever")
        self.now = until

    def wake(self, cache: str) -> None:
        """A cache that hung answers again."""
        self.hung.discard(cache)
        self.recovery.receive(CacheReachable(), cache, self.now)
        self.pump()

    # -- effects

    def pump(self) -> None:
        """Perform the effects; caches answer at once."""
        while effects := self.recovery.take_effects():
            for effect in effects:
                self._perform(effect)

    def _perform(self, effect: object) -> None:
        match effect:
            case ReleaseBatches(batches=batches):
                self._hand(batches)
            case UnrecoverableGap(series=(_, source), start=start, stop=stop):
                self.out.append(("lost", *self._name(source), start, stop))
            case HeldBatchesDropped(size=size):
                self.dropped += size
            case AskCache(cache=str(cache)):
                self.asked.append((cache, effect.ranges))
                if cache not in self.hung:
                    self._answer(cache, effect)
            case SurveyCache(cache=str(cache), number=number, age_s=age_s):
                self.surveyed.append(cache)
                if cache not in self.hung:
                    self.caches[cache].now_us = self.now_us
                    spans = self.caches[cache].survey(ALL, age_s)
                    self.recovery.receive(CacheSurveyed(number, spans), cache, self.now)

    def _answer(self, cache: str, ask: AskCache) -> None:
        request = Recover(ask.number, *ask.series, ask.ranges, ask.bytes_max)
        batches, covered = answer(self.caches[cache], request)
        copies = [Batch.parse(bytes(one.data)) for one in batches]
        self.recovery.receive(BatchesRecovered(copies), cache, self.now)
        self.recovery.receive(CacheAnswered(ask.number, covered), cache, self.now)

    def _hand(self, batches: Sequence[Batch]) -> None:
        for one in batches:
            name = self._name(one.source)
            self.out += [(*name, seq) if name else seq for seq in range(one.first, one.stop)]

    def _name(self, source: bytes) -> tuple[str, ...]:
        return () if source == ANN else (chr(source[0]),)


def cache(events_max: int = 0, age_s_max: float = 0.0, pattern: str = "**") -> MemoryCache:
    """A cache with these bounds."""
    return MemoryCache(Pattern(pattern), CacheBounds(events_max=events_max, age_s_max=age_s_max))
