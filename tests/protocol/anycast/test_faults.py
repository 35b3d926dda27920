"""Anycast while links break, nodes die and subscribers come and go: what an outcome promises holds."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.outcome import Outcome
from tests.protocol.anycast.mesh import ACC, REL, Mesh

NAMES = "abcdef"


class Storm:
    """A fabric in which anything may happen next."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        links = {f"{NAMES[at]}{NAMES[at + 1]}" for at in range(len(NAMES) - 1)}
        links |= {"".join(sorted(self.rng.sample(NAMES, 2))) for _ in range(self.rng.randint(1, 5))}
        self.mesh = Mesh(*sorted(links))
        self.held: list[tuple[str, int, int]] = []
        self.accepted: Counter[int] = Counter()
        self.handed: Counter[tuple[str, int]] = Counter()
        self.offered = 0
        self.count = 0
        self.present: list[str] = []
        self.origin = "a"

    def subscribe(self) -> None:
        node = self.rng.choice(sorted(self.mesh.nodes))
        self.count += 1
        name = f"{node}{self.count}"
        self.present.append(name)

        def answer(start: int, stop: int) -> list[Outcome]:
            for seq in range(start, stop):
                self.handed[name, seq] += 1
            self.held.append((name, start, stop))
            return []

        self.mesh.subscribe(name, answer, credit=self.rng.choice([2, 5, 1000]))

    def leave(self) -> None:
        if self.present:
            name = self.present.pop(self.rng.randrange(len(self.present)))
            if name[0] in self.mesh.nodes:
                self.held = [item for item in self.held if item[0] != name]
                self.mesh.leave(name, is_clean=self.rng.random() < 0.5)

    def settle(self) -> None:
        if self.held:
            name, start, stop = self.held.pop(self.rng.randrange(len(self.held)))
            if name[0] not in self.mesh.nodes:
                return
            at = self.rng.randint(start, stop)
            for low, high in ((start, at), (at, stop)):
                if low < high:
                    self._say(name, self.rng.choice([ACC, REL]), low, high)
            self.mesh.credit(name, stop - start)

    def _say(self, name: str, outcome: Outcome, start: int, stop: int) -> None:
        if outcome is ACC:
            self.accepted.update(range(start, stop))
        self.mesh.say(name, outcome, start, stop)

    def offer(self) -> None:
        count = self.rng.randint(1, 6)
        self.offered += count
        mode = self.rng.choice(["closest", "balanced"])
        self.mesh.offer(self.origin, count, mode, resend=self.rng.random() < 0.8)

    def cut(self) -> None:
        if self.mesh.lines:
            self.mesh.cut(*self.rng.choice(sorted(self.mesh.lines)))

    def link(self) -> None:
        one, two = self.rng.sample(sorted(self.mesh.nodes), 2)
        if (one, two) not in self.mesh.lines:
            self.mesh.link(one, two)

    def kill(self) -> None:
        victims = [name for name in self.mesh.nodes if name != self.origin]
        if len(victims) > 2:
            name = self.rng.choice(victims)
            self.present = [one for one in self.present if one[0] != name]
            self.held = [item for item in self.held if item[0][0] != name]
            self.mesh.kill(name)

    def step(self) -> None:
        """One message arrives somewhere."""
        lines = [line for line, items in self.mesh.lines.items() if items]
        if lines:
            self.mesh.deliver_next(*self.rng.choice(lines))

    def rage(self, steps: int) -> None:
        actions = [self.step] * 20 + [self.settle] * 6 + [self.offer] * 4
        actions += (
            [self.subscribe] * 2 + [self.leave, self.cut, self.link] + [self.kill] * (self.rng.random() < 0.3)
        )
        for _ in range(steps):
            self.rng.choice(actions)()

    def calm(self) -> None:
        """Let everything come to rest, with subscribers that settle all."""
        while self.held or any(self.mesh.lines.values()):
            self.mesh.run()
            while self.held:
                self.settle()
        for name in self.present:
            self.mesh.leave(name, is_clean=True)
        self.mesh.run()


def check(seed: int) -> None:
    storm = Storm(seed)
    storm.rage(300)
    storm.calm()
    fates = [fate for fate in storm.mesh.fates if fate.outcome != Outcome.RECEIVED]
    ends = Counter(seq for fate in fates for seq in range(fate.start, fate.stop))
    replay = f"check({seed})"
    assert set(ends) == set(range(1, storm.offered + 1)), f"every event has an outcome: {replay}"
    assert set(ends.values()) <= {1}, f"and one only: {replay}"
    for fate in fates:
        for seq in range(fate.start, fate.stop):
            times = storm.accepted[seq]
            if fate.outcome == ACC:
                assert times == 1, f"accepted once: {replay}"
            elif fate.outcome == REL:
                assert times == 0, f"released is a promise that nobody processed it: {replay}"
            else:
                assert times <= 1, f"in doubt, and not sent again: {replay}"
    assert set(storm.handed.values()) <= {1}, f"nobody gets an event twice: {replay}"
    assert storm.mesh.records() == 0, f"nothing stays behind: {replay}"


@pytest.mark.parametrize("seed", range(60))
def test_what_an_outcome_promises_holds_in_a_storm(seed: int) -> None:
    check(seed)


@settings(max_examples=60, deadline=None)
@given(st.integers(1000, 1 << 30))
def test_what_an_outcome_promises_holds_in_any_storm(seed: int) -> None:
    check(seed)
