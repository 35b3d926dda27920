"""A server's tunnels: promises, the live edge, slow clients, one tunnel for a journal, limits, routes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.errors import InvalidCheckpoint
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.protocol.tunnel.reconnect import (
    HeldJournal,
    ReconnectDenied,
    ReconnectGranted,
    live,
    since_age,
    since_checkpoint,
)
from reknit.protocol.tunnel.server import (
    CloseTunnel,
    LiveEdgeMoved,
    ReadJournal,
    RefuseTunnel,
    ServedTunnelState,
    TunnelBlocked,
    TunnelCaughtUp,
    TunnelClosed,
    TunnelOpened,
    TunnelServer,
)
from reknit.protocol.tunnel.topic_routes import RoutedTopic, TopicRoute, TopicRoutes

HELD = HeldJournal(
    "e1", 0, 1_000, lambda: True, float("inf"), lambda age_s: int(1_000 - age_s), lambda place: True
)
TRIMMED = msgspec.structs.replace(
    HELD, start=500, is_whole=lambda: False, position_at=lambda age_s: max(500, int(1_000 - age_s))
)


def at(position: int, index: int = 0) -> JournalPlace:
    return JournalPlace("e1", position, index)


# -- promises


def test_nothing_is_promised_across_damage() -> None:
    held = msgspec.structs.replace(HELD, is_readable=lambda position: position > 700)
    assert isinstance(since_checkpoint("e1-640-3", held), ReconnectDenied)
    assert isinstance(since_checkpoint("e1-720-3", held), ReconnectGranted)
    assert isinstance(since_age(400.0, 500.0, held), ReconnectDenied)
    assert isinstance(since_age(100.0, 500.0, held), ReconnectGranted)
    assert isinstance(since_age(float("inf"), 500.0, held), ReconnectGranted), "everything that is held"


def test_a_checkpoint_of_this_epoch_is_granted() -> None:
    assert since_checkpoint("e1-640-3", HELD) == ReconnectGranted(at(640, 3), recovered=True)


def test_a_stale_position_paired_with_a_new_epoch_is_expired() -> None:
    denied = since_checkpoint("e0-640-0", HELD)
    assert isinstance(denied, ReconnectDenied)
    assert denied.status == "404 Expired"


@pytest.mark.parametrize(
    "text", ["", "e1", "e1-1", "e1--1-0", "e1-1-x", "E1-1-0", "e1-1-0\n", "e1-99999999999999999999-0"]
)
def test_an_invalid_checkpoint_is_a_bad_request(text: str) -> None:
    with pytest.raises(InvalidCheckpoint):
        JournalPlace.parse(text)
    denied = since_checkpoint(text, HELD)
    assert isinstance(denied, ReconnectDenied)
    assert denied.status.startswith("400")


def test_a_checkpoint_behind_the_end_or_between_batches_is_not_known() -> None:
    assert isinstance(since_checkpoint("e1-1001-0", HELD), ReconnectDenied)
    inside = msgspec.structs.replace(HELD, is_boundary=lambda place: False)
    assert isinstance(since_checkpoint("e1-640-0", inside), ReconnectDenied)


def test_a_checkpoint_whose_events_were_removed_is_expired() -> None:
    denied = since_checkpoint("e1-400-0", TRIMMED)
    assert isinstance(denied, ReconnectDenied)
    assert denied.status == "404 Expired"


def test_an_idle_clients_old_checkpoint_is_good_while_nothing_of_its_topics_was_removed() -> None:
    whole = msgspec.structs.replace(TRIMMED, is_whole=lambda: True)
    assert since_checkpoint("e1-400-0", whole) == ReconnectGranted(at(500), recovered=True)


def test_the_grace_period_is_granted_while_it_is_held() -> None:
    assert since_age(60, 60, HELD) == ReconnectGranted(at(940), recovered=True)
    assert since_age(60, 60, TRIMMED) == ReconnectGranted(at(940), recovered=True)


def test_a_grace_period_cut_by_retention_is_reported() -> None:
    assert isinstance(since_age(600, 600, TRIMMED), ReconnectDenied)


def test_older_than_the_grace_period_is_given_as_far_as_it_is_held() -> None:
    assert since_age(900, 60, TRIMMED) == ReconnectGranted(at(500), recovered=True)
    assert since_age(float("inf"), 60, HELD) == ReconnectGranted(at(0), recovered=True)


def test_a_restart_that_lost_state_is_reported() -> None:
    fresh = msgspec.structs.replace(HELD, known_s=5.0)
    assert isinstance(since_age(60, 60, fresh), ReconnectDenied)
    assert isinstance(since_age(4, 60, fresh), ReconnectGranted)


def test_a_new_tunnel_begins_at_the_end() -> None:
    assert live(HELD) == ReconnectGranted(at(1_000), recovered=False)


# -- the live edge


def server(**limits: float) -> TunnelServer:
    return TunnelServer("e1", 1_000, **limits)  # type: ignore[arg-type]


EDGE = at(1_000)


def opened(
    place: JournalPlace = EDGE, group: str = "g", address: str = "a", journal: str = ""
) -> TunnelOpened:
    return TunnelOpened(group, address, place, journal)


def test_a_tunnel_without_history_is_live_at_once() -> None:
    tunnels = server()
    tunnels.receive(opened(), "t", 0.0)
    assert list(tunnels.live("g")) == ["t"]
    assert tunnels.take_effects() == []


def test_a_tunnel_that_is_behind_reads_up_to_the_edge_and_is_live_then() -> None:
    tunnels = server()
    tunnels.receive(opened(at(100, 2)), "t", 0.0)
    assert tunnels.take_effects() == [ReadJournal("t", at(100, 2))]
    tunnels.receive(TunnelCaughtUp(at(700)), "t", 0.0)
    assert tunnels.take_effects() == [ReadJournal("t", at(700))]
    tunnels.receive(LiveEdgeMoved(1_200), "journal", 0.0)
    tunnels.receive(TunnelCaughtUp(at(1_000)), "t", 0.0)
    assert tunnels.take_effects() == [ReadJournal("t", at(1_000))]
    tunnels.receive(TunnelCaughtUp(at(1_200)), "t", 0.0)
    assert list(tunnels.live("g")) == ["t"]


def test_a_full_buffer_takes_a_tunnel_from_the_live_edge_with_its_place() -> None:
    tunnels = server()
    tunnels.receive(opened(), "t", 0.0)
    tunnels.receive(LiveEdgeMoved(1_100), "journal", 0.0)
    tunnels.receive(TunnelBlocked(True), "t", 0.0)
    assert tunnels.live("g") == {}
    tunnels.receive(LiveEdgeMoved(1_300), "journal", 0.0)
    tunnels.receive(TunnelBlocked(False), "t", 1.0)
    assert tunnels.take_effects() == [ReadJournal("t", at(1_100))]


def test_a_slow_tunnel_is_closed_with_a_reason_after_a_while() -> None:
    tunnels = server(stall_s_max=30.0)
    tunnels.receive(opened(), "t", 0.0)
    tunnels.receive(TunnelBlocked(True), "t", 10.0)
    assert tunnels.next_deadline() == 40.0
    tunnels.tick(39.0)
    assert tunnels.take_effects() == []
    tunnels.tick(40.0)
    [effect] = tunnels.take_effects()
    assert isinstance(effect, CloseTunnel)
    assert "slow" in effect.why
    assert len(tunnels) == 0


def test_a_second_tunnel_on_the_same_journal_closes_the_first_whose_timeout_changes_nothing() -> None:
    tunnels = server()
    tunnels.receive(opened(journal="who/ann/kn_journal"), "old", 0.0)
    tunnels.receive(opened(journal="who/ann/kn_journal"), "new", 1.0)
    [effect] = tunnels.take_effects()
    assert isinstance(effect, CloseTunnel)
    assert effect.peer == "old"
    tunnels.receive(TunnelClosed(), "old", 60.0)
    tunnels.receive(TunnelBlocked(True), "old", 60.0)
    assert list(tunnels.live("g")) == ["new"]
    tunnels.receive(opened(journal="who/ann/kn_journal"), "third", 61.0)
    assert [one.peer for one in tunnels.take_effects() if isinstance(one, CloseTunnel)] == ["new"]


def test_refusals_name_the_limit_of_the_server_or_of_the_address() -> None:
    tunnels = server(tunnels_max=2, per_address_max=1)
    tunnels.receive(opened(address="a"), "1", 0.0)
    tunnels.receive(opened(address="a"), "2", 0.0)
    tunnels.receive(opened(address="b"), "3", 0.0)
    tunnels.receive(opened(address="c"), "4", 0.0)
    effects = tunnels.take_effects()
    assert [one.peer for one in effects if isinstance(one, RefuseTunnel)] == ["2", "4"]
    tunnels.receive(TunnelClosed(), "1", 0.0)
    tunnels.receive(opened(address="a"), "5", 0.0)
    assert tunnels.counts() == {"live": 2, "behind": 0, "blocked": 0}


@given(st.lists(st.tuples(st.sampled_from("oocbugr"), st.integers(0, 3)), max_size=80))
def test_every_tunnel_is_always_in_exactly_one_state(steps: list[tuple[str, int]]) -> None:
    tunnels, end, opens = server(per_address_max=3), 1_000, set[int]()
    for step, peer in steps:
        match step:
            case "o" if peer not in opens:
                tunnels.receive(opened(at(end - 64 * peer), group=f"g{peer % 2}"), peer, 0.0)
            case "c":
                tunnels.receive(TunnelClosed(), peer, 0.0)
            case "b" | "u":
                tunnels.receive(TunnelBlocked(step == "b"), peer, 0.0)
            case "g":
                end += 64
                tunnels.receive(LiveEdgeMoved(end), "journal", 0.0)
            case "r":
                for effect in tunnels.take_effects():
                    if isinstance(effect, ReadJournal):
                        tunnels.receive(TunnelCaughtUp(at(end)), effect.peer, 0.0)
        opens = {one for one in range(4) if tunnels.tunnel(one) is not None}
        states = {one: tunnels.tunnel(one).state for one in opens}  # type: ignore[union-attr]
        live_ones = {one for group in tunnels.groups() for one in tunnels.live(group)}
        assert live_ones == {one for one, state in states.items() if state is ServedTunnelState.LIVE}
        assert sum(tunnels.counts().values()) == len(tunnels) == len(opens)


# -- routes


def route(id: str, from_topic: str, to_topic: str, position: int = 1) -> TopicRoute:
    return TopicRoute(id, from_topic, to_topic, position, position)


def test_a_route_adds_a_topic_to_a_tunnel() -> None:
    routes = TopicRoutes()
    assert routes.routed_topics("b") == (RoutedTopic("b", "", 0),)
    routes.put(route("1", "a", "b", 64))
    assert routes.routed_topics("b") == (RoutedTopic("b", "", 0), RoutedTopic("a", "/a/kn_routes/1", 64))
    routes.remove("a", "1")
    assert routes.routed_topics("b") == (RoutedTopic("b", "", 0),)


def test_an_identical_repeat_is_ignored_and_the_same_id_updates() -> None:
    routes = TopicRoutes()
    assert routes.put(route("1", "a", "b"))
    assert not routes.put(route("1", "a", "b", 99))
    assert routes.put(route("1", "a", "c"))
    assert len(routes) == 1
    assert routes.routed_topics("b") == (RoutedTopic("b", "", 0),)


def test_loops_end_and_a_topic_gets_an_event_once() -> None:
    routes = TopicRoutes()
    for number, ends in enumerate(["ab", "ba", "ac", "cb"]):
        routes.put(route(str(number), ends[0], ends[1]))
    assert sorted(lane.topic for lane in routes.routed_topics("b")) == ["a", "b", "c"]


def test_a_journal_gets_an_event_once_along_each_route() -> None:
    routes = TopicRoutes()
    routes.put(route("1", "a", "who/x/kn_journal"))
    routes.put(route("2", "a", "who/x/kn_journal"))
    assert [lane.location for lane in routes.routed_topics("who/x/kn_journal")] == [
        "",
        "/a/kn_routes/1",
        "/a/kn_routes/2",
    ]
