"""Routes: every node agrees with a plain model, whatever the network does."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.protocol.routing.known_node import RememberedNode
from reknit.protocol.routing.routes import Interests, LinkUp, Rerouted, Routes, SendToNeighbour
from reknit.protocol.routing.shortest_paths import shortest
from reknit.wire.links import Announce, AskWhole, Beat, LinkState
from tests.protocol.routing.network import BEAT_S, TIMEOUT_S, Fabric

NAMES = [f"n{number:02}" for number in range(12)]
TOPOLOGIES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(1, 5)), min_size=1, max_size=30
)


def line(*names: str) -> Fabric:
    fabric = Fabric()
    fabric.add(*names)
    for one, two in pairwise(names):
        fabric.link(one, two)
    fabric.settle()
    return fabric


def plain_costs(fabric: Fabric, start: str) -> dict[str, int]:
    """Bellman-Ford, which shares no code with the machine; a route ends at an edge node."""
    graph, costs = fabric.graph(), {start: 0}
    for _ in graph:
        for name, links in graph.items():
            if name in costs and (name == start or name not in fabric.edges):
                for other, cost in links.items():
                    costs[other] = min(costs.get(other, costs[name] + cost), costs[name] + cost)
    return costs


def test_a_restarted_node_knows_the_subscriptions_of_nodes_that_are_away() -> None:
    fabric = line("a", "b", "c")
    fabric.subscribe("c", "plant/**", "journal")
    fabric.subscribe("c", "jobs/**", "any")
    fabric.settle()
    remembered = {name: node for name, node in fabric.nodes["a"].take_changed().items() if node is not None}
    restarted = Routes("a", instance=99, remembered=remembered)
    assert restarted.destinations("plant/1", "journal") == ("c",)
    assert restarted.destinations("jobs/1", "any") == (), "such events wait where they were published"
    assert restarted.reachable() == {}
    restarted.receive(LinkUp(1), "b", 0.0)
    restarted.receive(LinkState("b", 99, 1, {"a": 1}), "b", 0.0)
    assert restarted.children("a", ["c"], with_lost=True) == {"b": ["c"]}, "as far as possible"


def test_what_a_restarted_node_remembers_is_replaced_by_what_it_hears() -> None:
    known = RememberedNode(LinkState("c", 5, 3, {"b": 1}), 5, ["plant/**"])
    restarted = Routes("a", instance=99, remembered={"c": known, "a": known})
    assert restarted.known["a"].interests == set(), "it knows itself best"
    restarted.receive(LinkUp(1), "b", 0.0)
    restarted.take_effects()
    restarted.receive(Announce("c", 5, 2, [("car/*", "journal")], is_whole=True), "b", 0.0)
    assert [one.met for one in restarted.take_effects() if isinstance(one, Rerouted)] == ["c"]
    assert restarted.destinations("plant/1", "journal") == ()
    assert restarted.destinations("car/1", "journal") == ("c",)


@settings(max_examples=60, deadline=None)
@given(TOPOLOGIES, st.sets(st.sampled_from(NAMES), max_size=2))
def test_routes_cost_what_a_plain_model_says(links: list[tuple[str, str, int]], edges: set[str]) -> None:
    fabric = Fabric(edges=edges)
    fabric.add(*NAMES)
    for one, two, cost in links:
        if one != two and frozenset((one, two)) not in fabric.links:
            fabric.link(one, two, cost)
    fabric.settle()
    fabric.check()
    for name, node in fabric.nodes.items():
        costs = {other: way.cost for other, way in node.reachable().items()}
        assert {name: 0, **costs} == plain_costs(fabric, name)


@settings(max_examples=25, deadline=None)
@given(TOPOLOGIES, st.integers(0, 1 << 30))
def test_nodes_agree_after_partitions_restarts_losses_and_reordering(
    links: list[tuple[str, str, int]], seed: int
) -> None:
    rng = Random(seed)
    fabric = Fabric(rng=rng, loss=0.2, jitter_s=0.5)
    fabric.add(*NAMES)
    for one, two, cost in links:
        if one != two and frozenset((one, two)) not in fabric.links:
            fabric.link(one, two, cost)
        fabric.subscribe(one, f"topic/{two}")
        if rng.random() < 0.3:
            fabric.subscribe(one, f"topic/{two}", is_on=False)
        fabric.run(rng.random())
        if rng.random() < 0.2 and fabric.links:
            fabric.cut(*rng.choice(sorted(map(sorted, fabric.links))))
        if rng.random() < 0.1:
            name = rng.choice(NAMES)
            fabric.kill(name, is_noticed=rng.random() < 0.5)
            fabric.add(name)
    fabric.loss = fabric.jitter_s = 0.0
    fabric.run(len(NAMES) * 2 + TIMEOUT_S)
    fabric.check()


def test_fifty_nodes_settle_and_the_messages_are_few() -> None:
    rng = Random(5)
    fabric = Fabric(rng=rng)
    names = [f"n{number:02}" for number in range(50)]
    fabric.add(*names)
    for at, name in enumerate(names[1:], 1):
        fabric.link(name, rng.choice(names[:at]), rng.randint(1, 3))
        fabric.settle()
    for _ in range(50):
        one, two = rng.sample(names, 2)
        if frozenset((one, two)) not in fabric.links:
            fabric.link(one, two, rng.randint(1, 3))
    fabric.settle()
    fabric.check()
    edges = len(fabric.links)
    fabric.sent = 0
    fabric.subscribe("n07", "orders/**")
    fabric.settle()
    fabric.check()
    assert fabric.sent <= 2 * edges, "one announcement crosses every link once, or from both ends at most"
    fabric.sent = 0
    fabric.cut(*sorted(map(sorted, fabric.links))[0])
    fabric.settle()
    fabric.check()
    assert fabric.sent <= 4 * edges, "two nodes tell of the link that they lost"


def test_a_subscription_is_announced_at_once_without_a_beat() -> None:
    fabric = line("a", "b", "c")
    before = fabric.now
    fabric.subscribe("c", "orders/*")
    fabric.settle()
    assert fabric.nodes["a"].destinations("orders/1", "any") == ("c",)
    assert fabric.now - before < 0.1
    fabric.subscribe("c", "orders/*", is_on=False)
    fabric.settle()
    assert fabric.nodes["a"].destinations("orders/1", "any") == ()


def test_neighbours_that_know_the_same_exchange_a_digest_until_one_knows_more() -> None:
    fabric = line("a", "b", "c")
    fabric.run(3 * BEAT_S)
    assert [len(beat.rows) for beat in beats(fabric, "b")] == [0, 0]
    fabric.loss = 1.0
    fabric.subscribe("c", "orders/*")
    fabric.settle()
    fabric.loss = 0.0
    assert [len(beat.rows) for beat in beats(fabric, "c")] == [3], "what b knows is older"
    fabric.run(4 * BEAT_S)
    fabric.check()
    assert [len(beat.rows) for beat in beats(fabric, "b")] == [0, 0]


def test_a_new_link_to_the_same_neighbour_begins_with_rows() -> None:
    fabric = line("a", "b")
    fabric.run(3 * BEAT_S)
    fabric.cut("a", "b")
    fabric.link("a", "b")
    assert [len(beat.rows) for beat in beats(fabric, "a")] == [2]


def test_a_node_that_always_sends_rows_gets_rows() -> None:
    node = Routes("a", 1, beat_s=BEAT_S)
    node.receive(LinkUp(1), "b", 0.0)
    node.receive(Beat([]), "b", 0.5)
    node.take_effects()
    node.tick(BEAT_S)
    (effect,) = node.take_effects()
    assert isinstance(effect, SendToNeighbour)
    assert isinstance(effect.message, Beat)
    assert len(effect.message.rows) == 1


def beats(fabric: Fabric, name: str) -> list[Beat]:
    """The heartbeats that a node sends next, which are lost."""
    node = fabric.nodes[name]
    node.tick(fabric.now + BEAT_S)
    effects = node.take_effects()
    return [
        one.message for one in effects if isinstance(one, SendToNeighbour) and isinstance(one.message, Beat)
    ]


def test_the_same_subscription_twice_is_announced_once_and_withdrawn_with_the_last() -> None:
    fabric = line("a", "b")
    fabric.by_type.clear()
    fabric.subscribe("b", "orders/*")
    fabric.subscribe("b", "orders/*")
    fabric.subscribe("b", "orders/*", is_on=False)
    fabric.settle()
    assert fabric.by_type == {"Announce": 1}
    assert fabric.nodes["a"].destinations("orders/1", "any") == ("b",)


def test_a_gap_in_announcements_requests_the_full_state() -> None:
    node = Routes("a", 1)
    node.receive(LinkUp(1), "b", 0.0)
    node.receive(LinkState("b", 1, 2, {"a": 1}), "b", 0.0)
    node.receive(Announce("b", 1, 1, [], is_whole=True), "b", 0.0)
    node.take_effects()
    node.receive(Announce("b", 1, 3, [("late", "any")]), "b", 0.0)
    assert node.take_effects() == [SendToNeighbour("b", AskWhole("b"))]
    assert node.destinations("late", "any") == ()
    node.receive(Announce("b", 1, 3, [("early", "any"), ("late", "any")], is_whole=True), "b", 0.0)
    assert node.destinations("late", "any") == node.destinations("early", "any") == ("b",)
    node.receive(Announce("b", 1, 2, [], [("early", "any")]), "b", 0.0)
    assert node.destinations("early", "any") == ("b",), "old news"


def test_a_node_that_falls_silent_is_noticed_by_its_beats() -> None:
    fabric = line("a", "b", "c")
    fabric.kill("b", is_noticed=False)
    assert "b" in fabric.nodes["a"].reachable()
    fabric.run(TIMEOUT_S + 1.5)
    assert fabric.nodes["a"].reachable() == {}
    fabric.check()


def test_a_restarted_node_is_known_with_its_present_subscriptions() -> None:
    fabric = line("a", "b", "c")
    fabric.subscribe("c", "old")
    fabric.settle()
    fabric.kill("c")
    fabric.add("c")
    fabric.link("b", "c")
    fabric.subscribe("c", "new")
    fabric.settle()
    assert fabric.nodes["a"].destinations("old", "any") == ()
    assert fabric.nodes["a"].destinations("new", "any") == ("c",)


def test_subscriptions_that_were_unknown_or_come_back_make_a_node_look_back() -> None:
    node = Routes("a", 1)
    node.receive(LinkUp(1), "b", 0.0)
    node.receive(LinkState("b", 1, 1, {"a": 1}), "b", 0.0)
    node.take_effects()
    node.receive(Announce("b", 1, 1, [("old", "journal")], is_whole=True), "b", 0.0)
    assert node.take_effects() == [Rerouted(True, met="b")], "it was not known what b wants"
    node.receive(Announce("b", 2, 1, [], is_whole=True), "b", 0.0)
    assert node.take_effects() == [Rerouted(False)]
    node.receive(Announce("b", 2, 2, [("new", "journal")]), "b", 0.0)
    assert node.take_effects() == [Rerouted(False)]
    node.receive(Announce("b", 2, 3, [("old", "journal")]), "b", 0.0)
    assert node.take_effects() == [Rerouted(True)]
    node.receive(Announce("b", 2, 4, [], [("old", "journal")]), "b", 0.0)
    node.receive(Announce("b", 2, 5, [("old", "journal")]), "b", 0.0)
    assert node.take_effects() == [Rerouted(False), Rerouted(False)]


def test_a_node_whose_clock_went_back_is_still_heard() -> None:
    fabric = line("a", "b")
    fabric.kill("b")
    fabric.nodes["b"] = Routes("b", 0)
    fabric.link("a", "b")
    fabric.subscribe("b", "new")
    fabric.settle()
    assert fabric.nodes["a"].destinations("new", "any") == ("b",)
    fabric.check()


def test_no_way_leads_through_an_edge() -> None:
    fabric = Fabric(edges={"e"})
    fabric.add("a", "b", "e")
    fabric.link("a", "e")
    fabric.link("e", "b")
    fabric.settle()
    assert fabric.nodes["a"].reachable().keys() == {"e"}
    assert fabric.nodes["e"].reachable().keys() == {"a", "b"}


def test_equal_ways_are_chosen_alike_everywhere() -> None:
    fabric = Fabric()
    fabric.add(*"abcd")
    for pair in ("ac", "ab", "cd", "bd"):
        fabric.link(*pair)
    fabric.settle()
    assert fabric.nodes["a"].reachable()["d"].first == "b"
    assert fabric.nodes["b"].children("a", "d") == {"d": ["d"]}
    assert fabric.nodes["c"].children("a", "d") == {}
    assert fabric.nodes["a"].children("a", "bcd") == {"b": ["b", "d"], "c": ["c"]}


def test_interests_that_were_never_there_can_not_be_removed() -> None:
    with pytest.raises(KeyError):
        Routes("a", 1).receive(Interests([], [("x", "any")]), "a", 0.0)


def test_the_way_without_some_nodes_goes_around_them() -> None:
    graph = {"a": {"b": 1, "c": 5}, "b": {"a": 1, "d": 1}, "c": {"a": 5, "d": 1}, "d": {"b": 1, "c": 1}}
    assert shortest(graph, "a")["d"].cost == 2
    assert shortest(graph, "a", without={"b"})["d"].cost == 6
    assert "d" not in shortest(graph, "a", without={"b", "c"})
