"""To find where a subscription begins takes steps, and what is stored between two of them is not missed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from reknit.batch import Batch
from reknit.config import LimitSettings
from reknit.node.core.core import Core
from reknit.outcome import Code
from reknit.store.memory import MemoryJournal
from reknit.wire.codec import Frames
from reknit.wire.messages import Deliver, Start, Subscribe, Subscribed, Unsubscribe, Unsubscribed
from tests.node.core.driven import PUBLISHER, SUBSCRIBER, DrivenNode

SOURCES = [bytes([number]) * 16 for number in range(1, 6)]
OTHER = 3
NOW_US = 35_000_000
STARTS = {
    "now": (Start(), 6),
    "history": (Start(history=True), 1),
    "count": (Start(history=True, count=2), 5),
    "age": (Start(history=True, age_s=15.0), 2),
    "position": (Start(position=0, epoch="epoch"), 1),
    "checkpoint": (Start(checkpoint={source.hex(): 2 for source in SOURCES}), 3),
}
"""Where to begin, and the latest seq of a source that may be the first if events come up to seq 5 meanwhile."""


class StepNode(DrivenNode):
    """A node that looks at one series in a step. It has three events of each source, from 10, 20 and 30 s."""

    def __init__(self, **sections: Any) -> None:
        super().__init__(**sections)
        core: Core = Core("n", "epoch", MemoryJournal(), self.config, self, Random(1), now_us=lambda: NOW_US)
        self.core, self.journal = core, core.journal  # type: ignore[assignment]
        core.openings.step_cost = 1
        for peer in (PUBLISHER, SUBSCRIBER, OTHER):
            core.joined(peer, 0.0)
        for seq in (1, 2, 3):
            for source in SOURCES:
                self.store(source, seq, seq * 10_000_000)

    def give(self, item: Any, peer: int) -> None:  # type: ignore[override]
        self.core.receive(item, peer, self.now)
        self.run()

    def store(self, source: bytes, seq: int, time_us: int = NOW_US) -> None:
        batch = Batch.build(source, f"a/{source[0] % 2}", seq, [b"x"], time_us=time_us)
        self.give(Frames(bytes(batch.data), [batch.head]), PUBLISHER)
        self.settle_down()

    def turn(self) -> None:
        self.now += 0.1
        self.core.tick(self.now)
        self.settle_down()

    def is_open(self, peer: int = SUBSCRIBER) -> bool:
        return bool(self.heard(peer, Subscribed))

    def got(self) -> dict[bytes, list[int]]:
        """The seqs of each source that were delivered."""
        found: dict[bytes, list[int]] = {}
        for index, (peer, item) in enumerate(self.said):
            if peer == SUBSCRIBER and isinstance(item, Deliver):
                frames = self.said[index + 1][1]
                for head in frames.heads:
                    found.setdefault(head.source, []).extend(range(head.first, head.stop))
        return found

    def owed(self, name: str) -> dict[bytes, list[int]]:
        """The seqs of each source that a durable subscriber is owed."""
        account, published = self.journal.ledger.accounts[name], self.journal.ledger.published
        found = {}
        for series, seqs in published.items():
            ranges = account.open_within(series, 1, seqs.last + 1)
            if ranges:
                found[series[1]] = [seq for bounds in ranges for seq in range(*bounds)]
        return found


@pytest.mark.parametrize("name", ["", "durable"])
@pytest.mark.parametrize("kind", STARTS)
def test_events_that_are_stored_while_the_start_is_looked_for_come_once(kind: str, name: str) -> None:
    node = StepNode()
    start, first_max = STARTS[kind]
    node.give(Subscribe(1, "a/**", name, start, 1 << 20), SUBSCRIBER)
    node.settle_down()
    assert node.is_open() == (not name and kind not in ("count", "age"))
    stored = [(source, seq) for seq in (4, 5) for source in (*SOURCES, b"n" * 16)]
    stored += [(b"m" * 16, seq) for seq in (1, 2, 3)]
    for source, seq in stored:
        node.store(source, seq - 3 if source == b"n" * 16 else seq)
        node.turn()
    while not node.is_open():
        node.turn()
    got = node.got()
    for source in SOURCES:
        seqs = got.get(source, [])
        assert seqs == list(range(6 - len(seqs), 6)), "it gets everything from some event on, in order"
        assert 6 - len(seqs) <= first_max
    assert (got[b"m" * 16], got[b"n" * 16]) == ([1, 2, 3], [1, 2]), (
        "sources that are new come from the beginning"
    )
    if name:
        assert got == node.owed(name)


def test_a_start_is_looked_for_in_steps_and_a_turn_takes_one() -> None:
    node = StepNode()
    node.give(Subscribe(1, "a/**", "durable", Start(), 1 << 20), SUBSCRIBER)
    turns = 0
    while not node.is_open():
        assert node.core.next_deadline() == node.now, "the next step is due in the next turn"
        node.turn()
        turns += 1
    assert turns >= len(SOURCES) - 1


def test_peers_take_turns_with_their_searches() -> None:
    node = StepNode()
    for sub in range(10):
        node.give(Subscribe(sub, "a/**", "", Start(history=True, count=1), 1 << 20), SUBSCRIBER)
    node.give(Subscribe(1, "a/**", "", Start(history=True, count=1), 1 << 20), OTHER)
    while not node.is_open(OTHER):
        node.turn()
    assert len(node.heard(SUBSCRIBER, Subscribed)) <= 1


def test_a_search_ends_with_its_subscription_and_with_its_peer() -> None:
    node = StepNode()
    for sub in (1, 2, 3):
        node.give(Subscribe(sub, "a/**", f"d{sub}", Start(), 1 << 20), SUBSCRIBER)
    node.give(Unsubscribe(1), SUBSCRIBER)
    node.core.end_subscription((SUBSCRIBER, 2), Code.PERMISSION_DENIED, "no more", node.now)
    node.run()
    assert [(one.sub, one.code) for one in node.heard(SUBSCRIBER, Unsubscribed)] == [
        (1, Code.OK),
        (2, Code.PERMISSION_DENIED),
    ]
    assert [key for key, _, _ in node.core.openings.all()] == [(SUBSCRIBER, 3)]
    node.core.left(SUBSCRIBER, node.now)
    for _ in range(20):
        node.turn()
    assert node.core.next_deadline() != node.now
    assert not node.journal.ledger.accounts


def test_a_subscription_whose_start_is_looked_for_counts() -> None:
    node = StepNode(limits=LimitSettings(subscriptions_max=2))
    for sub in (1, 1, 2, 3):
        node.give(Subscribe(sub, "a/**", f"d{sub}", Start(), 1 << 20), SUBSCRIBER)
    assert [(one.sub, one.code) for one in node.heard(SUBSCRIBER, Unsubscribed)] == [
        (1, Code.ALREADY_EXISTS),
        (3, Code.RESOURCE_EXHAUSTED),
    ]


def test_a_position_is_looked_for_when_everything_before_is_durable() -> None:
    node = StepNode()
    batch = Batch.build(b"n" * 16, "a/1", 1, [b"x"], time_us=NOW_US)
    node.give(Frames(bytes(batch.data), [batch.head]), PUBLISHER)  # it is on its way to the disk
    place = Start(position=node.journal.end, epoch="epoch")
    node.give(Subscribe(1, "a/**", "durable", place, 1 << 20), SUBSCRIBER)
    for _ in range(20):
        node.now += 0.1
        node.core.tick(node.now)
        node.run()
    assert "durable" not in node.journal.ledger.accounts
    node.settle_down()
    while not node.is_open():
        node.turn()
    assert node.got() == node.owed("durable") == {b"n" * 16: [1]}
