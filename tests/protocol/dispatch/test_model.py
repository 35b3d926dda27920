"""The dispatcher against a simple model: one first-in, first-out queue per key, and every event ends once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.config import TopicSettings
from reknit.outcome import FinalOutcome, Outcome
from reknit.protocol.dispatch.inputs import SetPaused
from reknit.protocol.dispatch.state import Effect
from reknit.protocol.effects import DeliverRuns, Redeliver
from reknit.protocol.machine import PeerLeft
from reknit.seqset import SeqSet
from reknit.topic import Pattern
from reknit.wire.messages import Credit, DispositionRow, Revoked, Settle
from tests.protocol.dispatch.bench import STREAM, Bench, letters, said

ATTEMPTS_MAX = 3
Step = tuple[str, Any]
OUTCOMES = {
    "accept": Outcome.ACCEPTED,
    "fail": Outcome.FAILED,
    "release": Outcome.RELEASED,
    "reject": Outcome.REJECTED,
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.text("abc", min_size=1, max_size=4)),
        st.tuples(
            st.just("settle"),
            st.tuples(st.integers(0, 9), st.sampled_from(["accept", "fail", "release", "reject"])),
        ),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 2.0, 12.0])),
        st.tuples(st.just("grant"), st.sampled_from([100, 1000])),
        st.tuples(st.just("pause"), st.booleans()),
        st.tuples(st.just("reconnect"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=40,
)


class Model:
    """The expected behaviour in its simplest form: events by key, their attempts, and which are in flight."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.keys: dict[int, str] = {}
        self.waiting: dict[str, list[int]] = defaultdict(list)
        """By key, in order of arrival: everything that has not ended."""
        self.held: dict[int, int] = {}
        """The events that the subscriber has, and the number of each attempt."""
        self.failed: dict[int, int] = defaultdict(int)
        self.ended: dict[int, FinalOutcome] = {}

    def publish(self, seq: int, key: str) -> None:
        self.keys[seq] = key if self.order == "key" else "one"
        self.waiting[self.keys[seq]].append(seq)

    def handed(self, seq: int, attempt: int, is_paused: bool) -> None:
        assert seq in self.keys, f"{seq} was never published"
        assert seq not in self.ended, f"{seq} came after its end"
        assert seq not in self.held, f"{seq} came twice"
        assert not is_paused, f"{seq} came while its topic was paused"
        if self.order != "none":
            before = self.waiting[self.keys[seq]]
            ahead = before[: before.index(seq)]
            assert all(one in self.held for one in ahead), f"{seq} overtook {ahead}"
        self.held[seq] = attempt

    def settle(self, seq: int, outcome: Outcome) -> None:
        del self.held[seq]
        if outcome is Outcome.FAILED:
            self.failed[seq] += 1
        if outcome is Outcome.ACCEPTED:
            self.end(seq, FinalOutcome.ACCEPTED)
        elif outcome is Outcome.REJECTED or self.failed[seq] >= ATTEMPTS_MAX:
            self.end(seq, FinalOutcome.DEAD_LETTERED)

    def end(self, seq: int, end: FinalOutcome) -> None:
        assert seq not in self.ended
        self.ended[seq] = end
        self.waiting[self.keys[seq]].remove(seq)


class World:
    """A dispatcher, a subscriber and the model, side by side."""

    def __init__(self, order: Any, lease_s: float) -> None:
        rule = TopicSettings(pattern=Pattern("plant/**"), order=order, attempts_max=ATTEMPTS_MAX)
        self.fields: dict[str, Any] = {"topics": [rule], "lease_s": lease_s}
        self.bench = Bench(**self.fields)
        self.model = Model(order)
        self.now = 0.0
        self.last = 0
        self.credit = 300
        self.is_paused = False
        self._see(self.bench.subscribe("audit", credit=self.credit))

    def _see(self, effects: list[Effect]) -> None:
        """Pass everything to the model, in its order."""
        for message in said(effects):
            if isinstance(message, Revoked):
                for seq in range(message.start, message.stop):
                    self.model.settle(seq, Outcome.FAILED)
        dead = {seq for start, stop, _ in letters(effects) for seq in range(start, stop)}
        assert dead <= {seq for seq, end in self.model.ended.items() if end is FinalOutcome.DEAD_LETTERED}
        for effect in effects:
            if isinstance(effect, Redeliver):
                for seq in range(effect.start, effect.stop):
                    self.model.handed(seq, effect.attempt, self.is_paused)
            elif isinstance(effect, DeliverRuns):
                for piece in effect.pieces:
                    for entry in piece.run.entries[piece.low : piece.high]:
                        for seq in range(entry.head.first, entry.head.stop):
                            self.model.handed(seq, 1, self.is_paused)

    def step(self, what: str, how: Any) -> None:
        getattr(self, what)(how)

    def publish(self, keys: str) -> None:
        first = self.last + 1
        self.last += len(keys)
        for seq, key in enumerate(keys, first):
            self.model.publish(seq, key)
        self._see(self.bench.publish(first, len(keys), now=self.now, columns={"key": list(keys)}))

    def settle(self, how: tuple[int, str]) -> None:
        held = sorted(self.model.held)
        if not held:
            return
        seq, outcome = held[how[0] % len(held)], OUTCOMES[how[1]]
        attempt = self.model.held[seq]
        rest: list[int] = []
        if self.model.order != "none" and outcome in (Outcome.FAILED, Outcome.RELEASED):
            # as the client does: later events of the same delivery are given back with it
            key = self.model.keys[seq]
            rest = [one for one in held if one > seq and self.model.keys[one] == key]
        self.model.settle(seq, outcome)
        for one in rest:
            self.model.settle(one, Outcome.RELEASED)
        self.bench.settled += 1
        rows = [DispositionRow(*STREAM, seq, seq + 1, int(outcome), attempt=attempt)]
        rows += [
            DispositionRow(*STREAM, one, one + 1, int(Outcome.RELEASED), attempt=attempt) for one in rest
        ]
        self._see(self.bench.give(Settle(1, self.bench.settled, rows), now=self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._see(self.bench.tick(self.now))

    def grant(self, size: int) -> None:
        self.credit += size
        self._see(self.bench.give(Credit(1, self.credit), now=self.now))

    def pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused
        self._see(self.bench.give(SetPaused(1, "plant/a", is_paused), "admin", self.now))

    def reconnect(self, _: None) -> None:
        self.model.held.clear()
        self.bench.give(PeerLeft(), now=self.now)
        self._again()

    def restart(self, _: None) -> None:
        self.model.held.clear()
        self.bench = self.bench.restart(**self.fields)
        self.bench.dispatch.tick(self.now)
        self.bench.perform(self.now)
        self._again()

    def _again(self) -> None:
        self.bench.settled = 0
        self.credit = 300
        self._see(self.bench.subscribe("audit", credit=self.credit))

    def finish(self) -> None:
        """Accept everything: then everything has ended, as the model says."""
        self.pause(False)
        for _ in range(400):
            if len(self.model.ended) == self.last:
                break
            self.grant(10_000)
            for seq in sorted(self.model.held):
                if seq in self.model.held:
                    self.settle((sorted(self.model.held).index(seq), "accept"))
            self.wait(1.0)
        assert sorted(self.model.ended) == list(range(1, self.last + 1)), "some events never came"
        ends = self.bench.ends("audit")
        for end in (FinalOutcome.ACCEPTED, FinalOutcome.DEAD_LETTERED):
            wanted = SeqSet.from_ranges((seq, seq + 1) for seq, one in self.model.ended.items() if one is end)
            assert ends.get(end, SeqSet()) == wanted
        assert all(row.balanced for row in self.bench.journal.ledger.rows(self.bench.dispatch.in_hand()))


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(["none", "source", "key"]), st.sampled_from([0.0, 0.0, 10.0]))
def test_dispatcher_is_one_queue_per_key(steps: list[Step], order: str, lease_s: float) -> None:
    world = World(order, lease_s)
    for what, how in steps:
        world.step(what, how)
    world.finish()
