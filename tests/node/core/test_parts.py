"""The core runs its parts in one order, and they meet only through it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from reknit.config import Config
from reknit.frame import Buffer
from reknit.node.core.core import Core
from reknit.node.core.parts import ORDER, TAKERS, Parts
from reknit.protocol.anycast.inputs import RoutesChanged
from reknit.protocol.machine import MadeDurable, NextTurn, Peer, PeerLeft
from reknit.protocol.routing.routes import Interests, SourceDeclared, SubscriptionsChanged
from reknit.store.memory import MemoryJournal
from reknit.wire.messages import Declare, Start, Subscribe


class Part:
    """Notes what it is asked to do, in a list that it shares with others."""

    def __init__(self, name: str, notes: list[str], due_at: float | None = None) -> None:
        self.name = name
        self.notes = notes
        self.due_at = due_at
        self.received: list[tuple[Any, Peer]] = []
        self.work: list[str] = []

    @property
    def is_due(self) -> bool:
        return bool(self.work)

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        self.received.append((message, peer))

    def perform(self, now: float) -> None:
        self.notes += [f"{self.name} {one}" for one in self.work]
        self.work = []

    def tick(self, now: float) -> None:
        self.notes.append(f"{self.name} ticks")

    def next_deadline(self) -> float | None:
        return self.due_at


class Shell:
    """Sends nothing, and commits at once."""

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        """Nobody is connected."""

    def commit(self, number: int, sync: bool) -> None:
        """Nothing is stored."""


def core_with(*parts: Part) -> Core:
    core = Core("n", "e", MemoryJournal(), Config(), Shell(), Random(1), now_us=lambda: 0)
    for part in parts:
        core.parts.add(part.name, part)
    return core


def test_parts_run_in_the_order_of_the_table_however_they_were_added() -> None:
    notes: list[str] = []
    parts = {name: Part(name, notes) for name in ("caches", *reversed(ORDER))}
    core = core_with(*parts.values())
    for part in parts.values():
        part.work = ["performs"]
    core.run(0.0)
    assert notes == [f"{name} performs" for name in (*ORDER, "caches")]


def test_core_runs_until_no_part_has_effects() -> None:
    notes: list[str] = []
    links, anycast = Part("links", notes), Part("anycast", notes)

    class Passing(Part):
        def perform(self, now: float) -> None:
            super().perform(now)
            if len(self.notes) < 3:
                links.work = ["sends it"]

    anycast = Passing("anycast", notes)
    core = core_with(links, anycast)
    anycast.work = ["decides"]
    core.run(0.0)
    assert notes == ["anycast decides", "links sends it"]
    assert not core.parts.is_due


def test_message_goes_to_the_part_that_the_table_names() -> None:
    parts = {name: Part(name, []) for name in ORDER}
    core = core_with(*parts.values())
    core.parts.give(RoutesChanged(), "b", 0.0)
    core.parts.give(Interests([]), "anycast", 0.0)
    assert [peer for _, peer in parts["anycast"].received] == ["b"]
    assert [peer for _, peer in parts["links"].received] == ["anycast"]
    assert not parts["streams"].received
    assert set(TAKERS.values()) == set(ORDER)


def test_node_without_a_part_ignores_what_is_passed_to_it() -> None:
    Parts().give(RoutesChanged(), "b", 0.0)


def test_links_are_told_of_subscriptions_and_sources_by_the_core() -> None:
    links = Part("links", [])
    core = core_with(links)
    core.receive(Declare(b"s" * 16, "plant/temp"), 1, 0.0)
    core.receive(Subscribe(1, "plant/**", "", Start(), 0), 1, 0.0)
    core.left(1, 0.0)
    kinds = [type(message) for message, _ in links.received]
    assert kinds == [SourceDeclared, SubscriptionsChanged, PeerLeft, SubscriptionsChanged]


def test_every_part_hears_of_commits_and_turns() -> None:
    parts = [Part("links", []), Part("caches", [])]
    core = core_with(*parts)
    core.durable(0, 0, 0.0)
    core.next_turn(0.0)
    for part in parts:
        assert [type(message) for message, _ in part.received] == [MadeDurable, NextTurn]


def test_core_ticks_its_parts_and_is_due_with_the_first_of_them() -> None:
    notes: list[str] = []
    core = core_with(Part("links", notes, due_at=7.0), Part("anycast", notes, due_at=3.0))
    assert core.next_deadline() == 3.0
    core.tick(3.0)
    assert notes == ["links ticks", "anycast ticks"]
