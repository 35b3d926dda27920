"""The forwarding table decides by subscriptions, and by the node on which a source is published."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from reknit.config import Config
from reknit.frame import Buffer
from reknit.node.core.core import Core
from reknit.protocol.links import forwarding_table
from reknit.protocol.links.forwarding_table import ForwardingTable, Origins
from reknit.protocol.machine import Peer
from reknit.protocol.routing.routes import Interests
from reknit.store.memory import SimJournal
from reknit.wire.messages import Start, Subscribe, Unsubscribe
from tests.protocol.routing.network import Fabric

TOPIC = "plant/temp"
ONE, TWO, THREE = b"1" * 16, b"2" * 16, b"3" * 16


class Middle:
    """The node b between its neighbours a and c. Both have subscribers for the events of all nodes."""

    def __init__(self) -> None:
        self.fabric = Fabric()
        self.fabric.add("a", "b", "c")
        self.fabric.link("a", "b")
        self.fabric.link("b", "c")
        for name in "ac":
            self.fabric.subscribe(name, "plant/**", "journal")
        self.fabric.settle()
        self.core = Core(
            "b", "epoch", SimJournal(now_us=lambda: 0), Config(), self, Random(1), now_us=lambda: 0
        )
        self.saved: dict[str, str] = {}
        self.distributions = {"orders/new": "closest"}
        self.table = ForwardingTable(
            routes=self.fabric.nodes["b"],
            queues=self.core.dispatch.queues,
            ledger=self.core.journal.ledger,
            origins=Origins(self.saved, "b"),
            distribution=lambda topic: self.distributions.get(topic, "journal"),
            linger_s=30.0,
        )

    def send(self, peer: Peer, buffers: Sequence[Buffer]) -> None:
        """Nobody is connected."""

    def commit(self, number: int, sync: bool) -> None:
        """Nothing is stored."""

    def forwards(self, source: bytes, topic: str = TOPIC) -> str:
        """The neighbours that get a series from here."""
        return "".join(name for name in "ac" if self.table.is_wanted(name, (topic, source)))


def test_events_are_forwarded_away_from_the_node_on_which_they_are_published() -> None:
    middle = Middle()
    middle.table.origins.learn(TWO, "a")
    middle.table.origins.learn(THREE, "c")
    assert middle.forwards(ONE) == "ac", "published here"
    assert (middle.forwards(TWO), middle.forwards(THREE)) == ("c", "a")


def test_events_of_a_node_that_is_not_known_go_everywhere_from_here() -> None:
    """A node that was restarted knows its sources before it hears of their nodes; it passed their events over."""
    middle = Middle()
    middle.table.origins.learn(TWO, "d")
    assert middle.forwards(TWO) == "ac"


def test_only_series_that_somebody_subscribed_to_are_forwarded() -> None:
    middle = Middle()
    assert middle.forwards(ONE, "office/temp") == ""
    middle.fabric.subscribe("c", "office/*", "journal")
    middle.fabric.settle()
    middle.table.forget()
    assert middle.forwards(ONE, "office/temp") == "c"


def test_topics_with_outcomes_are_not_replicated() -> None:
    middle = Middle()
    middle.fabric.subscribe("c", "orders/*", "journal")
    middle.fabric.settle()
    assert middle.forwards(ONE, "orders/new") == ""
    assert middle.forwards(ONE, "orders/old") == "c"


def test_publisher_that_moves_here_is_forwarded_everywhere_again() -> None:
    middle = Middle()
    middle.table.origins.learn(ONE, "a")
    assert middle.forwards(ONE) == "c"
    assert middle.table.declared(ONE)
    assert middle.forwards(ONE) == "ac"
    assert not middle.table.declared(ONE), "it is here already"


def test_past_the_limit_sources_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their events also go back to the neighbour that sent them, which drops the duplicates."""
    monkeypatch.setattr(forwarding_table, "ORIGINS_MAX", 1)
    middle = Middle()
    assert [middle.table.origins.learn(source, "a") for source in (ONE, TWO, THREE)] == [True, False, False]
    assert [middle.forwards(source) for source in (ONE, TWO, THREE)] == ["c", "ac", "ac"]
    assert middle.saved == {ONE.hex(): "a"}
    assert middle.table.origins.is_full


def test_source_that_is_known_moves_even_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding_table, "ORIGINS_MAX", 1)
    middle = Middle()
    middle.table.origins.learn(ONE, "a")
    middle.table.origins.learn(ONE, "c")
    assert middle.forwards(ONE) == "a"
    assert middle.saved == {ONE.hex(): "c"}


def test_subscriptions_are_announced_when_they_come_and_withdrawn_when_they_go() -> None:
    middle = Middle()
    middle.core.joined(1, 0.0)
    middle.core.receive(Subscribe(1, "office/*", "", Start(), 1 << 20), 1, 0.0)
    middle.core.run(0.0)
    middle.table.subscriptions_changed()
    interest = ("office/*", "journal")
    assert middle.table.changes(0.0) == Interests([interest], [])
    assert middle.table.changes(0.0) is None
    middle.core.receive(Unsubscribe(1), 1, 0.0)
    middle.core.run(0.0)
    middle.table.subscriptions_changed()
    assert middle.table.changes(0.0) == Interests([], [interest])


def test_subscriptions_of_a_broken_connection_stay_for_a_while() -> None:
    """A subscriber without a name resumes where it was: nothing from other nodes may be missing there."""
    middle = Middle()
    subscribe, interest = Subscribe(1, "office/*", "", Start(), 1 << 20), ("office/*", "journal")
    for peer, came_at, left_at in ((1, 0.0, 5.0), (2, 10.0, 20.0)):
        middle.core.joined(peer, came_at)
        middle.core.receive(subscribe, peer, came_at)
        middle.core.run(came_at)
        assert middle.table.changes(came_at) == (Interests([interest], []) if peer == 1 else None)
        middle.core.left(peer, left_at)
        middle.table.peer_left()
        assert middle.table.changes(left_at) is None
    middle.table.expire(49.9)
    assert middle.table.changes(49.9) is None
    middle.table.expire(50.0)
    assert middle.table.changes(50.0) == Interests([], [interest])


def test_an_origin_that_a_crash_may_have_undone_is_not_told_to_others() -> None:
    origins = Origins({ONE.hex(): "a"}, "b", old=(ONE, TWO))
    assert [origins.told(source) for source in (ONE, TWO, THREE)] == ["a", None, "b"]
    assert origins.of(TWO) == "b", "events of it go everywhere until it is known again"
    origins.learn(TWO, "c")
    assert origins.told(TWO) == "c"


def test_an_old_source_that_is_declared_here_is_this_nodes() -> None:
    origins = Origins({}, "b", old=(ONE,))
    origins.forget(ONE)
    assert origins.told(ONE) == "b"


def test_a_source_that_a_bridge_brings_back_is_not_claimed() -> None:
    linked: set[str] = set()
    origins = Origins({}, "b", linked=linked)
    origins.entered(ONE, ("c", "outpost"))
    assert origins.told(ONE) == "b", "it came from elsewhere, and enters here"
    linked.add("c")
    assert origins.told(ONE) is None
    origins.learn(ONE, "a")
    assert origins.told(ONE) == "a"


def test_a_source_that_comes_over_a_link_without_its_origin_is_not_told_as_published_here() -> None:
    table = Middle().table
    table.came((TOPIC, ONE), told=())
    table.came((TOPIC, TWO), told=(TWO,))
    assert [table.origins.told(source) for source in (ONE, TWO)] == [None, "b"]
    assert table.origins.of(ONE) == "b", "events of it go everywhere until it is known"
    table.origins.learn(ONE, "a")
    table.came((TOPIC, ONE), told=())
    assert table.origins.told(ONE) == "a"
