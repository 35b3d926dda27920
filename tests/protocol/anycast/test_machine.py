"""Anycast on the machines, case by case: every event has exactly one outcome."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reknit.batch import Batch
from reknit.outcome import Outcome
from reknit.protocol.anycast.deliveries import LocalReason
from reknit.protocol.anycast.delivery import HERE
from reknit.protocol.anycast.inputs import OfferEvents
from tests.protocol.anycast.mesh import ACC, MOD, REC, REJ, REL, SOURCE, TOPIC, Answer, Mesh


def alone(*answers: Answer, credit: int = 1 << 40) -> Mesh:
    """One node `a` with subscribers a1, a2 …"""
    mesh = Mesh()
    mesh.start("a")
    for number, answer in enumerate(answers, 1):
        mesh.subscribe(f"a{number}", answer, credit)
    return mesh


# -- 1, 2: one node


def test_a_released_event_tries_the_next_path() -> None:
    mesh = alone(REL, REL, ACC)
    assert mesh.send("a") == "ACCEPTED"
    assert mesh.tried == ["a1", "a2", "a3"]
    assert mesh.fates[0].attempts == 3


def test_without_the_flag_a_release_goes_to_the_sender_after_one_try() -> None:
    mesh = alone(REL, REL, ACC)
    assert mesh.send("a", resend=False) == "RELEASED"
    assert mesh.tried == ["a1"]


@pytest.mark.parametrize("mode", ["closest", "balanced"])
def test_when_all_release_each_was_tried_once_and_the_sender_still_has_a_path(mode: str) -> None:
    mesh = alone(REL, REL, REL)
    assert mesh.send("a", mode=mode) == "RELEASED"
    assert sorted(mesh.tried) == ["a1", "a2", "a3"]
    assert mesh.nodes["a"].anycast.has_path(TOPIC)
    assert mesh.records() == 0


def test_nobody_there_is_a_release_at_once() -> None:
    mesh = alone()
    assert not mesh.nodes["a"].anycast.has_path(TOPIC)
    assert mesh.send("a") == "RELEASED"
    assert mesh.fates[0].text


# -- 3, 4: several nodes


def test_a_line_is_searched_to_its_end() -> None:
    mesh = Mesh("ab", "bc")
    for name, answer in (("a1", REL), ("b1", REL), ("c1", ACC)):
        mesh.subscribe(name, answer)
    mesh.run()
    assert mesh.send("a") == "ACCEPTED"
    assert mesh.tried == ["a1", "b1", "c1"]
    assert (mesh.fates[0].node, mesh.fates[0].path, mesh.fates[0].attempts) == ("c", "c1", 3)
    assert mesh.attempts == [1, 2, 3], "a subscriber sees which attempt it is, wherever the others were"


@pytest.mark.parametrize("name", ["here", "gone"])
def test_a_node_may_have_any_name_and_still_hears_outcomes(name: str) -> None:
    mesh = Mesh()
    mesh.start(name)
    mesh.start("b")
    mesh.link(name, "b")
    mesh.subscribe("b1", ACC)
    mesh.run()
    assert mesh.send(name) == "ACCEPTED"
    assert mesh.records() == 0


def test_the_search_tracks_back_to_the_other_side() -> None:
    mesh = Mesh("ab", "bc")
    mesh.subscribe("a1", REL)
    mesh.subscribe("c1", ACC)
    mesh.run()
    assert mesh.send("b") == "ACCEPTED"
    assert mesh.tried == ["a1", "c1"]


def test_in_a_diamond_the_far_end_is_tried_once() -> None:
    mesh = Mesh("ab", "ac", "bd", "cd")
    mesh.subscribe("d1", REL)
    mesh.run()
    assert mesh.send("a") == "RELEASED"
    assert mesh.tried == ["d1"]
    assert mesh.records() == 0


def test_a_stale_route_leads_to_another_subscriber() -> None:
    """The subscriber on c is gone, and a does not know it yet."""
    mesh = Mesh("ab", "bc")
    mesh.subscribe("b1", ACC)
    mesh.subscribe("c1", ACC)
    mesh.run()
    mesh.answers["b1"] = REL
    mesh.leave("c1", is_clean=True)  # its announcement is still under way
    mesh.subscribe("a1", REL)
    mesh.answers["b1"] = ACC
    assert mesh.send("a") == "ACCEPTED"
    assert mesh.tried == ["a1", "b1"]


# -- 5: pinned, rejected, modified


def test_received_and_then_released_is_not_resent() -> None:
    mesh = alone([REC, REL], ACC)
    mesh.fates.clear()
    mesh.offer("a")
    mesh.run()
    assert [Outcome(fate.outcome) for fate in mesh.fates] == [REC, REL]
    assert mesh.tried == ["a1"]


def test_received_pins_on_every_node_of_the_way() -> None:
    mesh = Mesh("ab", "bc")
    mesh.subscribe("b1", ACC)
    mesh.subscribe("c1", [REC, REL])
    mesh.answers["b1"] = REL
    mesh.run()
    mesh.offer("a")
    mesh.run()
    assert [Outcome(fate.outcome) for fate in mesh.fates] == [REC, REL]
    assert mesh.tried == ["b1", "c1"]


@pytest.mark.parametrize("outcome", [REJ, MOD])
def test_rejected_and_modified_get_no_second_copy(outcome: Outcome) -> None:
    mesh = alone(outcome, ACC)
    assert mesh.send("a") == outcome.name
    assert mesh.tried == ["a1"]


# -- 6: to all


@pytest.mark.parametrize(
    ("answers", "joined"),
    [
        ([REL, ACC], "ACCEPTED"),
        ([REL, REL], "RELEASED"),
        ([REL, MOD], "MODIFIED"),
        ([ACC, REJ], "REJECTED"),
        ([ACC, MOD], "ACCEPTED"),
        ([ACC, ACC], "ACCEPTED"),
    ],
)
@pytest.mark.parametrize("places", ["aa", "ab", "bc", "bb"])
def test_outcomes_of_copies_join(answers: list[Outcome], joined: str, places: str) -> None:
    mesh = Mesh("ab", "bc", "ac")
    for number, (place, answer) in enumerate(zip(places, answers, strict=True), 1):
        mesh.subscribe(f"{place}{number}", answer)
    mesh.run()
    assert mesh.send("a", mode="multicast") == joined
    assert len(mesh.tries) == 2
    assert mesh.records() == 0
    if len(set(answers)) > 1:
        assert "by" in mesh.fates[0].text, "partial failure is visible"


def test_copies_join_range_by_range() -> None:
    mesh = alone(None, ACC)
    mesh.offer("a", 10, mode="multicast")
    mesh.say("a1", REL, 1, 4)
    mesh.say("a1", REJ, 4, 6)
    assert mesh.fates == []
    mesh.say("a1", ACC, 6, 11)
    got = [(fate.start, fate.stop, Outcome(fate.outcome)) for fate in mesh.fates]
    assert got == [(1, 4, ACC), (4, 6, REJ), (6, 11, ACC)]


def test_one_copy_crosses_each_link() -> None:
    mesh = Mesh("ab", "bc", "bd", "cd")
    for name in ("c1", "c2", "d1", "b1"):
        mesh.subscribe(name, ACC)
    mesh.run()
    assert mesh.send("a", mode="multicast") == "ACCEPTED"
    assert sorted(mesh.tried) == ["b1", "c1", "c2", "d1"]


def test_a_slow_subscriber_holds_up_only_its_own_copy() -> None:
    mesh = alone(ACC, ACC)
    mesh.subscribe("a3", ACC, credit=0)
    mesh.offer("a", 5, mode="multicast")
    assert mesh.tried == ["a1", "a2"]
    assert mesh.fates == []
    mesh.credit("a3", 3)
    mesh.credit("a3", 3)
    assert mesh.tries[2:] == [("a3", 1, 4), ("a3", 4, 6)]
    assert {fate.outcome for fate in mesh.fates} == {ACC}


# -- 7, 8, 9: who leaves


def test_a_subscriber_goes_away_under_load_and_everything_is_accepted() -> None:
    mesh = Mesh("ab", "bc")
    mesh.subscribe("c1", None)
    mesh.run()
    for _ in range(20):
        mesh.offer("a", 5)
    mesh.run()
    mesh.say("c1", ACC, 1, 21)
    mesh.subscribe("b1", ACC)
    mesh.leave("c1", is_clean=True)
    for _ in range(20):
        mesh.offer("a", 5)
    mesh.run()
    assert {fate.outcome for fate in mesh.fates} == {ACC}
    assert sum(fate.stop - fate.start for fate in mesh.fates) == 200
    assert mesh.records() == 0


def test_releasing_and_leaving_in_one_turn_still_finds_the_other() -> None:
    for _ in range(100):
        mesh = alone(None, ACC)
        mesh.offer("a")
        mesh.say("a1", REL, 1, 2)
        mesh.leave("a1", is_clean=True)
        mesh.run()
        assert [fate.outcome for fate in mesh.fates] == [ACC]


def test_events_not_sent_to_a_departing_subscriber_go_to_another() -> None:
    mesh = alone(None, credit=1)
    mesh.offer("a", 10, resend=False)
    mesh.subscribe("a2", ACC, credit=0)
    assert mesh.tries == [("a1", 1, 2)]
    mesh.leave("a1", is_clean=False)
    mesh.credit("a2", 100)
    assert mesh.tries[1:] == [("a2", 2, 11)]
    assert [(fate.start, fate.stop, Outcome(fate.outcome)) for fate in mesh.fates] == [
        (1, 2, MOD),
        (2, 11, ACC),
    ]


def test_events_of_a_lost_subscriber_are_in_doubt_and_never_released() -> None:
    mesh = alone(None, ACC)
    mesh.offer("a")
    mesh.leave("a1", is_clean=False)
    assert [Outcome(fate.outcome) for fate in mesh.fates] == [MOD]
    assert mesh.fates[0].text == LocalReason.IN_DOUBT
    assert mesh.tried == ["a1"]


# -- 10: nothing stays behind


def test_ten_thousand_re_forwards_leave_nothing_behind() -> None:
    mesh = alone(REL, ACC)
    anycast = mesh.nodes["a"].anycast
    for _ in range(10_000):
        assert mesh.send("a", mode="balanced") == "ACCEPTED"
        mesh.tries.clear()
        mesh.trail.clear()
    assert anycast.unsettled("a1") == anycast.unsettled("a2") == mesh.records() == anycast.held_bytes == 0


# -- 12: a node is lost


def test_a_lost_next_hop_leaves_one_in_doubt_and_the_rest_goes_around() -> None:
    mesh = Mesh("ab", "ac", "bd", "cd", link_events=3)
    mesh.subscribe("d1", ACC)
    mesh.run()
    mesh.lines["b", "a"].clear()
    for _ in range(10):
        mesh.offer("a")  # three go to b, three to c, the others wait
    mesh.kill("b")
    mesh.run()
    outcomes = [Outcome(fate.outcome) for fate in mesh.fates]
    assert REL not in outcomes
    assert (outcomes.count(MOD), outcomes.count(ACC)) == (3, 7)
    assert mesh.records() == 0


def test_events_of_a_lost_upstream_are_not_sent_on() -> None:
    mesh = Mesh("ab", "bc")
    mesh.subscribe("b1", None, credit=1)
    mesh.run()
    mesh.offer("a", 3)
    mesh.run()
    assert mesh.tries == [("b1", 1, 2)]
    mesh.cut("a", "b")
    mesh.credit("b1", 10)
    mesh.say("b1", REL, 1, 2)
    assert mesh.tries == [("b1", 1, 2)]
    assert [Outcome(fate.outcome) for fate in mesh.fates] == [MOD]
    assert mesh.records() == 0


# -- ranges


def test_one_released_event_does_not_drag_its_batch_along() -> None:
    mesh = alone(None, ACC)
    mesh.offer("a", 100)
    mesh.say("a1", REL, 50, 51)
    assert mesh.tries == [("a1", 1, 51), ("a2", 51, 101), ("a2", 50, 51)]
    mesh.say("a1", ACC, 1, 51)
    assert [(fate.start, fate.stop) for fate in mesh.fates] == [(51, 101), (50, 51), (1, 50)]
    assert mesh.records() == 0


def test_an_outcome_that_comes_twice_counts_once() -> None:
    mesh = alone([ACC, ACC, REL], ACC)
    assert mesh.send("a", 10) == "ACCEPTED"
    assert mesh.tries == [("a1", 1, 6), ("a2", 6, 11)]


@pytest.mark.parametrize("mode", ["balanced", "closest"])
def test_a_burst_is_shared_in_one_range_for_each(mode: str) -> None:
    mesh = alone(None, None, None)
    mesh.offer("a", 100, mode)
    assert mesh.tries == [("a1", 1, 35), ("a2", 35, 68), ("a3", 68, 101)]


def test_a_burst_goes_first_to_those_who_have_less_in_hand() -> None:
    mesh = alone(None, None)
    mesh.offer("a", 60, "balanced")
    mesh.say("a1", ACC, 1, 31)
    mesh.tries.clear()
    mesh.offer("a", 50, "balanced")
    assert mesh.tries == [("a1", 61, 101), ("a2", 101, 111)]


def test_a_burst_is_shared_with_other_nodes() -> None:
    mesh = Mesh("ab")
    mesh.subscribe("a1", None)
    mesh.subscribe("b1", None)
    mesh.run()
    mesh.offer("a", 101, "balanced")
    mesh.run()
    assert sorted(mesh.tries) == [("a1", 1, 52), ("b1", 52, 102)], "the cost of the link counts as one event"


def test_closest_shares_a_burst_with_nobody_farther_away() -> None:
    mesh = Mesh("ab")
    mesh.subscribe("a1", None)
    mesh.subscribe("b1", None)
    mesh.run()
    mesh.offer("a", 100, "closest")
    assert mesh.tries == [("a1", 1, 101)]


def test_a_batch_is_cut_to_the_credit_of_each() -> None:
    mesh = alone(ACC, ACC, credit=3)
    mesh.offer("a", 10)
    assert mesh.tries == [("a1", 1, 4), ("a2", 4, 7)]
    assert mesh.nodes["a"].anycast.waiting() == 4
    mesh.credit("a2", 9)
    assert mesh.tries[2:] == [("a2", 7, 11)]
    assert mesh.records() == 0


# -- distributions


def test_closest_takes_turns_here_before_it_goes_anywhere_else() -> None:
    mesh = Mesh("ab")
    for name in ("a1", "a2", "b1"):
        mesh.subscribe(name, None)
    mesh.run()
    for _ in range(4):
        mesh.offer("a", mode="closest")
    mesh.run()
    assert mesh.tried == ["a1", "a2", "a1", "a2"]


def test_closest_goes_to_the_nearest_of_the_others() -> None:
    mesh = Mesh("ab", "bc", "ad")
    for name in ("c1", "d1"):
        mesh.subscribe(name, ACC)
    mesh.run()
    assert mesh.send("a") == "ACCEPTED"
    assert mesh.tried == ["d1"]


def test_balanced_goes_to_the_least_loaded_path_and_counts_its_cost() -> None:
    mesh = Mesh("ab")
    mesh.subscribe("a1", None)
    mesh.subscribe("b1", None)
    mesh.run()
    for _ in range(6):
        mesh.offer("a", mode="balanced")
    mesh.run()
    assert (mesh.tried.count("a1"), mesh.tried.count("b1")) in ((3, 3), (4, 2))
    assert mesh.tried[0] == "a1"


def test_one_without_room_gets_something_only_when_it_has_some() -> None:
    mesh = alone(ACC)
    mesh.subscribe("a2", ACC, credit=0)
    for _ in range(5):
        assert mesh.send("a", mode="balanced") == "ACCEPTED"
    assert set(mesh.tried) == {"a1"}


# -- nobody waits for the outcome


def test_a_node_that_has_promised_delivery_waits_for_a_subscriber() -> None:
    mesh = alone()
    mesh.offer("a", 10, keeps=True)
    assert mesh.fates == []
    assert mesh.nodes["a"].anycast.held_bytes == 0, "the journal has it"
    mesh.subscribe("a1", ACC)
    assert mesh.tries == [("a1", 1, 11)]
    assert [fate.outcome for fate in mesh.fates] == [ACC]


def test_a_node_that_keeps_events_retries_those_that_all_released() -> None:
    said: list[int] = []

    def reluctant(start: int, stop: int) -> list[Outcome]:
        said.append(start)
        return [ACC if len(said) > 4 else REL]

    mesh = alone(reluctant)
    mesh.offer("a", keeps=True)
    assert len(said) == 1
    for _ in range(40):
        mesh.tick(1.0)
    assert [fate.outcome for fate in mesh.fates] == [ACC]
    assert mesh.records() == 0


@pytest.mark.parametrize("where", ["a1", "b1"])
def test_an_event_that_fails_as_often_as_it_may_ends(where: str) -> None:
    mesh = Mesh("ab")
    mesh.subscribe(where, MOD)
    mesh.run()
    mesh.offer("a", 5, keeps=True, attempts_max=3)
    for _ in range(40):
        mesh.run()
        mesh.tick(1.0)
    assert mesh.tries == [(where, 1, 6)] * 3
    assert [(fate.start, fate.stop, fate.outcome, fate.attempts) for fate in mesh.fates] == [(1, 6, MOD, 3)]
    assert mesh.records() == 0


def test_a_release_is_no_failed_attempt() -> None:
    answers = iter([MOD, REL, REL, REL, ACC])
    mesh = alone(lambda start, stop: [next(answers)])
    mesh.offer("a", keeps=True, attempts_max=2)
    for _ in range(60):
        mesh.tick(1.0)
    assert [fate.outcome for fate in mesh.fates] == [ACC]


def test_a_node_that_keeps_events_retries_those_that_all_behind_a_neighbour_released() -> None:
    """There is a path, and nothing changes about it: the events must not wait for a change of paths."""
    said: list[int] = []

    def reluctant(start: int, stop: int) -> list[Outcome]:
        said.append(start)
        return [ACC if len(said) > 2 else REL]

    mesh = Mesh("ab")
    mesh.subscribe("b1", reluctant)
    mesh.run()
    mesh.offer("a", keeps=True)
    mesh.run()
    assert len(said) == 1
    for _ in range(40):
        mesh.tick(1.0)
    assert [fate.outcome for fate in mesh.fates] == [ACC]
    assert mesh.records() == 0


def test_a_worker_does_not_get_events_again_that_it_has_from_before_the_link_broke() -> None:
    mesh = Mesh("ab")
    mesh.subscribe("b1", lambda start, stop: [])
    mesh.run()
    mesh.offer("a", 5, keeps=True)
    mesh.run()
    assert mesh.tries == [("b1", 1, 6)]
    mesh.cut("a", "b")
    mesh.say("b1", ACC, 1, 3)
    mesh.link("a", "b")
    for _ in range(40):
        mesh.tick(1.0)
    assert mesh.tries == [("b1", 1, 6), ("b1", 1, 3)], "it had ended two of them, and nobody heard of it"
    mesh.say("b1", REJ, 1, 6)
    mesh.run()
    assert [(fate.start, fate.stop, fate.outcome) for fate in mesh.fates] == [(1, 3, REJ), (3, 6, REJ)]
    assert mesh.records() == 0


def test_waiting_events_expire_by_their_ttl() -> None:
    mesh = alone()
    for keeps in (True, False):
        mesh.subscribe("a1", None, credit=0)
        batch = Batch.build(SOURCE, TOPIC, 1 + keeps, [b"x"], time_us=0)
        offered = OfferEvents(batch, "balanced", keeps=keeps, deadline=mesh.now + 5.0)
        mesh.nodes["a"].anycast.receive(offered, HERE, mesh.now)
        mesh.leave("a1", is_clean=True) if keeps else None
        mesh.tick(5.0)
        assert [(Outcome(fate.outcome), fate.code) for fate in mesh.fates] == [(REJ, 4)]
        mesh.fates.clear()
    assert mesh.records() == 0


# -- the scenarios of the router's own tests: a mesh a, b, c, one further node d, and edges

TABLE = [
    ("a", [], "a1", ["a1"]),
    ("a", ["a1"], "a2", ["a1", "a2"]),
    ("a", ["a1", "a2", "a3"], "", ["a1", "a2", "a3"]),
    ("a", ["a1"], "b1", ["a1", "b1"]),
    ("a", ["b1"], "c1", ["b1", "c1"]),
    ("a", ["b1", "c1"], "", ["b1", "c1"]),
    ("a", ["b1", "c1"], "d1", ["b1", "c1", "d1"]),
    ("a", ["a1", "b1", "c1"], "d1", ["a1", "b1", "c1", "d1"]),
    ("a", ["a1", "b1", "c1", "d1"], "", ["a1", "b1", "c1", "d1"]),
    ("d", ["d1"], "a1", ["d1", "a1"]),
    ("d", ["c1"], "a1", ["c1", "a1"]),
    ("d", ["a1", "b1"], "c1", ["c1"]),
    ("d", ["a1", "b1", "c1", "d1"], "", ["d1", "c1", "a1", "b1"]),
    ("e", [], "e1", ["e1"]),
    ("e", ["e1"], "a1", ["e1", "a1"]),
    ("e", ["e1", "a1"], "f1", ["e1", "a1", "f1"]),
    ("e", ["e1"], "", ["e1"]),
    ("e", ["a1"], "d1", ["a1", "d1"]),
    ("e", ["f1"], "b1", ["b1"]),
    ("e", ["f1", "b1"], "d1", ["b1", "f1", "d1"]),
    ("f", ["e1", "a1", "b1"], "d1", ["b1", "a1", "e1", "d1"]),
    ("a", ["e1"], "f1", ["e1", "f1"]),
    ("a", ["e1", "f1"], "", ["e1", "f1"]),
    ("b", ["e1", "f1", "d1"], "", ["f1", "e1", "d1"]),
]  # fmt: skip


@pytest.mark.parametrize(("sender", "releasers", "acceptor", "tried"), TABLE)
def test_which_subscribers_are_tried(
    sender: str, releasers: list[str], acceptor: str, tried: list[str]
) -> None:
    mesh = Mesh("ab", "bc", "ac", "cd", "ea", "fb", edges="ef")
    for name in releasers:
        mesh.subscribe(name, REL)
    if acceptor:
        mesh.subscribe(acceptor, ACC)
    mesh.run()
    assert mesh.send(sender) == ("ACCEPTED" if acceptor else "RELEASED")
    assert mesh.tried == tried
    assert mesh.fates[0].attempts == len(tried)
    assert mesh.records() == 0


# -- any fabric, any behaviour


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 30))
def test_every_event_ends_once_and_is_accepted_whenever_someone_accepts(seed: int) -> None:
    rng = Random(seed)
    names = "abcdef"
    links = {f"{one}{two}" for one, two in pairwise(names)}
    links |= {"".join(sorted(rng.sample(names, 2))) for _ in range(rng.randint(0, 5))}
    mesh = Mesh(*sorted(links))
    answers: list[Outcome] = []
    for number in range(rng.randint(0, 8)):
        answers.append(rng.choice([REL, REL, REL, ACC]))
        mesh.subscribe(f"{rng.choice(names)}{number}", answers[-1])
    mesh.run()
    for mode in ("closest", "balanced"):
        mesh.tries.clear()
        outcome = mesh.send(rng.choice(names), rng.randint(1, 5), mode)
        assert outcome == ("ACCEPTED" if ACC in answers else "RELEASED")
        tries = [(name, seq) for name, start, stop in mesh.tries for seq in range(start, stop)]
        assert len(set(tries)) == len(tries), "nobody is tried twice"
        if outcome == "RELEASED":
            events = {seq for _, seq in tries}
            assert len(tries) == len(answers) * len(events), "everybody is tried"
    assert mesh.records() == 0
