"""Routes and journals."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.http.http_client import Web, config, payloads, web

JOURNAL = "/who/anonymous/s/7/kn_journal"


def test_a_journal_carries_what_is_routed_to_it_with_the_routes_location(node: Web) -> None:
    with node.tunnel(JOURNAL) as tunnel:
        tunnel.events(1)
        answer = node.get(kn_from="/what/chat", kn_to=JOURNAL, kn_id="r1")
        assert (answer.status, answer.events[0]["kn_id"]) == ("200 Routed", b"r1")
        node.post("/what/chat", "hello")
        event = tunnel.events(2)[1]
        assert event["kn_route_location"] == b"/what/chat/kn_routes/r1"
        assert event["kn_routed_from"] == b"/what/chat"


def test_an_identical_repeat_is_ignored_and_does_not_populate_again(node: Web) -> None:
    node.post("/what/chat", "old")
    with node.tunnel(JOURNAL) as tunnel:
        tunnel.events(1)
        for status in ("200 Routed", "200 Ignored route"):
            assert (
                node.get(kn_from="/what/chat", kn_to=JOURNAL, kn_id="r1", do_max_age="infinity").status
                == status
            )
        node.post("/what/chat", "new")
        events = tunnel.events(3)
        assert payloads(events) == ["", "old", "new"]
        assert "kn_route_checkpoint" not in events[1]


def test_do_max_n_limits_a_population(node: Web) -> None:
    for number in range(5):
        node.post("/what/chat", str(number))
    with node.tunnel(JOURNAL) as tunnel:
        tunnel.events(1)
        node.get(kn_from="/what/chat", kn_to=JOURNAL, do_max_n="2")
        assert payloads(tunnel.events(3)) == ["", "3", "4"]


def test_an_empty_destination_deletes_the_route(node: Web) -> None:
    with node.tunnel(JOURNAL) as tunnel:
        tunnel.events(1)
        node.get(kn_from="/what/chat", kn_to=JOURNAL, kn_id="r1")
        node.post("/what/chat", "1")
        assert node.request("/kn", "POST", b"do_method=route;kn_from=/what/chat;kn_to=;kn_id=r1").code == 200
        node.post("/what/chat", "2")
        node.post(JOURNAL, "3")
        assert payloads(tunnel.events(3)) == ["", "1", "3"]


def test_the_same_id_updates_the_route(node: Web) -> None:
    with node.tunnel(JOURNAL) as tunnel:
        tunnel.events(1)
        node.get(kn_from="/what/chat", kn_to="/elsewhere", kn_id="r1")
        node.post("/what/chat", "1")
        node.get(kn_from="/what/chat", kn_to=JOURNAL, kn_id="r1")
        node.post("/what/chat", "2")
        assert payloads(tunnel.events(2)) == ["", "2"]


def test_routes_and_checkpoints_of_a_journal_survive_a_restart(tmp_path: Path) -> None:
    with web(config(tmp_path)) as node, node.tunnel(JOURNAL) as tunnel:
        tunnel.events(1)
        node.get(kn_from="/what/chat", kn_to=JOURNAL, kn_id="r1")
        node.post("/what/chat", "1")
        checkpoint = tunnel.events(2)[1]["kn_route_checkpoint"].decode()
        node.post("/what/chat", "2")
    with web(config(tmp_path)) as node, node.tunnel(JOURNAL, do_since_checkpoint=checkpoint) as tunnel:
        node.post("/what/chat", "3")
        assert payloads(tunnel.events(3)) == ["", "2", "3"]


def test_a_population_that_was_cut_off_is_given_again(tmp_path: Path) -> None:
    with web(config(tmp_path)) as node, node.tunnel(JOURNAL) as tunnel:
        checkpoint = tunnel.events(1)[0]["kn_route_checkpoint"].decode()
        node.post("/what/chat", "old")
        node.get(kn_from="/what/chat", kn_to=JOURNAL, kn_id="r1", do_max_age="infinity")
        with node.tunnel(JOURNAL, do_since_checkpoint=checkpoint) as again:
            assert payloads(again.events(2)) == ["", "old"]


def test_a_second_tunnel_on_the_same_journal_closes_the_first(node: Web) -> None:
    with node.tunnel(JOURNAL) as first, node.tunnel(JOURNAL) as second:
        assert b"another tunnel was opened" in first.rest()
        second.events(1)
        node.post(JOURNAL, "x")
        assert payloads(second.events(2)) == ["", "x"]


def test_many_tunnels_may_be_on_a_plain_topic(node: Web) -> None:
    with node.tunnel() as first, node.tunnel() as second:
        first.events(1), second.events(1)
        node.post("/what/chat", "x")
        assert payloads(first.events(2)) == payloads(second.events(2)) == ["", "x"]


def test_routes_in_a_loop_deliver_once(node: Web) -> None:
    node.get(kn_from="/a", kn_to="/b", kn_id="1")
    node.get(kn_from="/b", kn_to="/a", kn_id="2")
    with node.tunnel("/b") as tunnel:
        tunnel.events(1)
        node.post("/a", "1")
        node.post("/b", "2")
        assert payloads(tunnel.events(3)) == ["", "1", "2"]
