"""Programs that publish, and record the node's confirmations."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from reknit.batch import Batch
from reknit.protocol.publish import publisher as publishing
from reknit.testing.checks.rest import publishers_forget
from reknit.testing.programs import Program
from reknit.testing.world import World
from reknit.topic import schedule_topic
from reknit.wire.codec import encode
from reknit.wire.messages import Ack, Expect, Go, Hold, Refuse

OPENING_RATE = 100.0
"""How many batches a second a publisher sends that begins with several."""
LAST_CUT_S_MAX = 0.3
"""How long after its last batch a publisher loses its connection."""
REPEATS = (publishing.Connected, Expect, Go)
"""After these a publisher repeats what is not acknowledged."""


class PublisherProgram(Program):
    """Publishes at random times until the faults are over, and reports confirmed events to the witness.

    A lasting publisher is superseded when another program starts under its name. It may publish for a while, until
    the node refuses that; what was not confirmed to it is lost with it.
    """

    def __init__(
        self, name: str, node: str, world: World, rng: Random, topic: str, lasting: bool, source: str = ""
    ) -> None:
        super().__init__(name, node, world, rng)
        schedules = world.rng(f"schedule {source or name}")
        self._is_scheduled = schedules.random() < world.plan.schedule_share
        self._times = schedules
        self.topic = schedule_topic(topic) if self._is_scheduled else topic
        self.lasting = lasting
        self.source = source or name
        """The name of a lasting source: that of the program, unless it takes over another one's."""
        self.is_superseded = False
        self.machine: publishing.SourcePublisher
        self._cuts = world.rng(f"cuts {name}")
        priorities = world.rng(f"priority {self.source}")
        self._priority = priorities.choice((0, 1, 3, 6)) if world.plan.priorities else 1

    def begin(self) -> None:
        source = self.source if self.lasting else f"{self.name}.{self.life}"
        self.machine = self.world.parts.publisher(source.encode().ljust(16, b"_"), self.topic, self.lasting)
        self._confirmed: dict[int, bytes] = {}
        self._recent: deque[Batch] = deque(maxlen=50)
        self._puts = 0
        self._is_unsent = False
        """Whether a batch did not reach the node: that shows when the next one does."""
        self._put_later()

    def end(self) -> None:
        self.is_retired = self.is_superseded

    def supersede(self) -> None:
        """Another program takes over: this one ends with its connection."""
        self.is_superseded = True

    # -- publishing

    def _put_later(self) -> None:
        is_opening = self._puts < self.world.plan.opening_puts
        rate = OPENING_RATE if is_opening else self.world.plan.put_rate
        self.after(self.rng.expovariate(rate), self._put)

    def _put(self) -> None:
        puts_max = self.world.plan.puts_max
        if self.world.is_calm and not self._is_unsent:
            return
        if 0 < puts_max <= self._puts and not self._is_unsent:
            self.after(self.rng.uniform(0.0, LAST_CUT_S_MAX), self._cut)
            return
        if self.machine.numbered and self.machine.state is not publishing.PublisherState.REFUSED:
            plan, machine = self.world.plan, self.machine
            count = self.rng.randint(1, plan.burst_max)
            first, life = machine.next_seq, self.life
            marks = [f"{self.name} {life} {seq} ".encode() for seq in range(first, first + count)]
            payloads = [mark + bytes(self.rng.randint(0, plan.payload_bytes_max)) for mark in marks]
            self.world.witness.published.put((self.topic, machine.source), first, payloads, self.node)
            self._confirmed.update(zip(range(first, first + count), payloads, strict=True))
            fields: dict[str, Any] = {"ttl_ms": plan.ttl_ms, "priority": self._priority}
            if self._is_scheduled:
                fields["columns"] = {"time": self._due_times(payloads)}
            batch = machine.put(payloads, self.world.clock.now_us(), **fields)
            self._recent.append(batch)
            self._puts += 1
            self.world.tell(self.name, "publishes", batch)
            self._perform(is_new=True)
            if self.world.is_calm:
                self._is_unsent = False  # one batch is enough, also if it waits for the node's `Go`
        self._put_later()

    def _due_times(self, payloads: list[bytes]) -> list[int]:
        """When these are to be published: now, some later, or a little earlier."""
        now_us, latest_s = self.world.clock.now_us(), self.world.plan.schedule_s_max
        times_us = [now_us + round(self._times.uniform(-0.1, latest_s) * 1e6) for _ in payloads]
        self.world.witness.scheduled.put(payloads, times_us)
        return times_us

    def _cut(self) -> None:
        """Lose the connection, maybe before the last events are durable."""
        if self._end is not None and not self.world.is_calm:
            self.world.network.cut(self._end)

    def linked(self, epoch: str) -> None:
        self._receive(publishing.Connected())

    def unlinked(self) -> None:
        self._receive(publishing.Disconnected())
        if self.is_superseded:
            self.crash()

    def take(self, item: object) -> None:
        match item:
            case Ack(source=source) | Expect(source=source) | Refuse(source=source):
                if source == self.machine.source:
                    self._receive(item)
            case Hold() | Go():
                self._receive(item)

    def _receive(self, item: publishing.Input) -> None:
        self.machine.receive(item, self.node, self.world.clock.now)
        self._perform(is_repeated=isinstance(item, REPEATS))

    def _perform(self, is_repeated: bool = False, is_new: bool = False) -> None:
        out: list[bytes] = []
        batches: list[Batch] = []
        for effect in self.machine.take_effects():
            match effect:
                case publishing.SendBytes(data=data):
                    batches.append(Batch.parse(data))
                case publishing.SendToNode(message=message):
                    out.append(encode(message))
                case publishing.Confirm(stop=stop):
                    self._confirm(stop)
                case publishing.Numbered():
                    pass
                case publishing.PublishRefused(text=text):
                    self._refused(text)
        if (
            batches
            and is_repeated
            and not self._is_scheduled
            and self._cuts.random() < self.world.plan.recut_share
        ):
            batches = self._recut(batches)
        if batches and is_new and self._gets_lost():
            self.world.tell(self.name, "did not reach the node with", *batches)
            batches = []
        if out or batches:
            self.say(*out, *(bytes(batch.data) for batch in batches))

    def _gets_lost(self) -> bool:
        """Whether new batches get lost. Nobody can miss the first ones of a source: the node begins with what comes."""
        is_known = min(self._confirmed) > 1 and not self.is_superseded
        self._is_unsent = (
            is_known and not self.world.is_calm and self._cuts.random() < self.world.plan.unsent_share
        )
        return self._is_unsent

    def _recut(self, batches: list[Batch]) -> list[Batch]:
        """The same events in other batches, after some that the node may have acknowledged."""
        before = [batch for batch in self._recent if batch.stop <= batches[0].first]
        batches = before[-self._cuts.randint(0, 2) or len(before) :] + batches
        payloads = [bytes(payload) for batch in batches for payload in batch.payloads()]
        times_us = [batch.time_us for batch in batches for _ in range(batch.count)]
        first, one = batches[0].first, batches[0]
        count, start, parts = len(payloads), 0, []
        while start < count:
            stop = min(count, start + self._cuts.randint(1, 2 * self.world.plan.burst_max))
            some, at = payloads[start:stop], first + start
            parts.append(
                Batch.build(
                    one.source,
                    one.topic,
                    at,
                    some,
                    times_us[start],
                    ttl_ms=one.head.ttl_ms,
                    priority=one.head.priority,
                    columns=_ttl_column(one.head.ttl_ms, times_us[start:stop]),
                )
            )
            start = stop
        self.world.tell(self.name, "repeats in other batches", *parts)
        return parts

    def _refused(self, text: str) -> None:
        if not self.is_superseded:
            self.world.witness.blame(f"{self.name} was refused: {text}")

    def _confirm(self, stop: int) -> None:
        for seq in [seq for seq in self._confirmed if seq < stop]:
            self.world.witness.confirm((self.topic, self.machine.source), seq, self._confirmed.pop(seq))

    # -- rest

    def judge_rest(self) -> None:
        """Check that the machine is back at its resting size."""
        self.world.witness.blame_all(self.name, publishers_forget(self.name, self.machine))

    @property
    def is_done(self) -> bool:
        return self.is_retired or (self.is_connected and not self.machine.unacked)


def _ttl_column(ttl_ms: int, times_us: list[int]) -> dict[str, list[Any]] | None:
    """The ttl of events of different times in one batch, which has the time of the first: each expires as before."""
    if not ttl_ms or times_us[0] == times_us[-1]:
        return None
    return {"ttl": [ttl_ms - (times_us[0] - time_us) // 1000 for time_us in times_us]}
