"""mod_pubsub at /kn: requests, statuses and formats."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from reknit.protocol.tunnel.elements import fingerprint
from tests.gateway.http.http_client import Web, payloads


def test_a_notify_is_answered_when_the_event_is_kept_and_the_status_line_says_what_the_status_event_says(
    node: Web,
) -> None:
    answer = node.post("/what/chat", "hello")
    assert (answer.code, answer.reason, answer.status) == (200, "Notified", "200 Notified")
    assert node.node.journal.status().events == 1


@pytest.mark.parametrize("separator", [";", "&"])
def test_parameters_are_separated_by_semicolon_or_ampersand(node: Web, separator: str) -> None:
    body = separator.join(
        ["do_method=notify", "kn_to=/what/chat", "kn_payload=a+%C3%BC", "kn_response_format=simple"]
    )
    assert node.request("/kn", "POST", body.encode()).status == "200 Notified"
    with node.tunnel(do_max_age="infinity") as tunnel:
        assert payloads(tunnel.events(2))[1] == "a ü"


def test_the_default_method_of_post_is_notify_of_get_with_parameters_route_and_of_none_help(
    node: Web,
) -> None:
    assert (
        node.request("/kn/what/chat", "POST", b"kn_payload=x;kn_response_format=simple").status
        == "200 Notified"
    )
    with node.stream("/kn/what/chat?kn_response_format=simple") as tunnel:
        assert tunnel.events(1)[0]["status"] == b"200 Watching topic"
    assert b"do_method=notify" in node.request("/kn").body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS"])
def test_another_http_method_is_501(node: Web, method: str) -> None:
    assert node.request("/kn", method).code == 501


def test_an_unknown_method_or_format_is_400(node: Web) -> None:
    assert node.get(do_method="dance").code == 400
    assert node.get(do_method="noop", kn_response_format="smoke").code == 400


@pytest.mark.parametrize("name", ["kn_content_filter", "kn_content_transform"])
def test_what_would_change_which_events_come_is_refused_not_ignored(node: Web, name: str) -> None:
    parameters = {"do_method": "route", "kn_from": "/a", name: "(?i)urgent"}
    for answer in (node.get(**parameters), node.get(**parameters, kn_to="/b")):
        assert answer.status == "400 Bad Request"
        assert answer.events[0]["kn_payload"].startswith(f"{name}: ".encode())
    assert not node.http.router.routes.all()
    assert not len(node.http.tunnels)
    assert node.get(**{**parameters, name: ""}, kn_to="/b").code == 200


@pytest.mark.parametrize("topic", ["/a//b", "/a b", "/.a", "/a.", "/a*", "", "/a?b"])
def test_segments_are_letters_digits_and_few_signs_without_outer_dots(node: Web, topic: str) -> None:
    assert node.post(topic, "x").code in (400,)


def test_topics_may_be_in_any_script(node: Web) -> None:
    assert node.post("/what/チャット", "x").code == 200
    assert node.node.journal.topics() == ["what/チャット"]


@pytest.mark.parametrize("name", ["kn_subtopics", "kn_routes"])
def test_subtopics_and_routes_cannot_be_posted_to(node: Web, name: str) -> None:
    assert node.post(f"/what/{name}", "x").code == 403


def test_a_topic_may_be_written_as_an_address_of_this_server(node: Web) -> None:
    assert node.post(f"{node.url}/kn/what/chat", "x").code == 200
    assert node.node.journal.topics() == ["what/chat"]


# -- events


def test_on_a_tunnel_the_status_comes_first_then_the_population_then_live_events(node: Web) -> None:
    node.post("/what/chat", "before")
    with node.tunnel(do_max_age="infinity", kn_status_from="/me") as tunnel:
        status, before = tunnel.events(2)
        assert (status["status"], status["kn_route_location"]) == (b"200 Watching topic", b"/me")
        node.post("/what/chat", "after")
        assert payloads(tunnel.events(3)) == ["", "before", "after"]
        assert tunnel.head.code == 200
        assert before["kn_routed_from"] == b"/what/chat"


def test_control_parameters_are_no_part_of_the_event_and_any_other_header_is(node: Web) -> None:
    with node.tunnel() as tunnel:
        tunnel.events(1)
        node.post(
            "/what/chat",
            "x",
            do_method="notify",
            kn_status_from="/s",
            kn_id="m1",
            kn_time_t="7",
            colour="red",
        )
        event = tunnel.events(2)[1]
        hop = {name for name in event if name.startswith("kn_route")}
        assert set(event) - hop == {"kn_id", "kn_time_t", "colour", "kn_payload", "kn_event_hash"}
        assert event["kn_event_hash"].decode() == fingerprint(event)


def test_an_event_gets_an_id_a_time_and_a_payload_where_it_has_none(node: Web) -> None:
    with node.tunnel() as tunnel:
        tunnel.events(1)
        node.request("/kn", "POST", b"kn_to=/what/chat")
        event = tunnel.events(2)[1]
        assert event["kn_payload"] == b""
        assert event["kn_id"]
        assert int(event["kn_time_t"]) > 1_700_000_000


def test_a_topic_squashes_an_identical_repeat_of_a_kn_id_and_takes_a_change(node: Web) -> None:
    for payload in ("a", "a", "b"):
        assert node.post("/what/chat", payload, kn_id="m1").status == "200 Notified"
    with node.tunnel(do_max_age="infinity") as tunnel:
        assert payloads(tunnel.events(3)) == ["", "a", "b"]


def test_two_equal_events_on_purpose_stay_two_and_a_journal_does_not_squash(node: Web) -> None:
    node.post("/what/chat", "same")
    node.post("/what/chat", "same")
    journal = "/who/anonymous/s/1/kn_journal"
    node.post(journal, "same", kn_id="m1")
    node.post(journal, "same", kn_id="m1")
    with node.tunnel(do_max_age="infinity") as tunnel:
        _, one, other = tunnel.events(3)
        assert one["kn_event_hash"] != other["kn_event_hash"]
    with node.tunnel(journal, do_max_age="infinity") as tunnel:
        assert payloads(tunnel.events(3)) == ["", "same", "same"]


def test_an_expired_event_is_not_replayed(node: Web) -> None:
    node.post("/what/chat", "short", kn_expires="+0")
    node.post("/what/chat", "long", kn_expires="+3600")
    node.post("/what/chat", "for ever", kn_expires="infinity")
    with node.tunnel(do_max_age="infinity") as tunnel:
        assert payloads(tunnel.events(3)) == ["", "long", "for ever"]


def test_do_max_n_gives_the_last_so_many(node: Web) -> None:
    parts = [urlencode({"kn_to": "/what/chat", "kn_payload": str(number)}) for number in range(5)]
    node.request(
        "/kn", "POST", urlencode([("do_method", "batch"), *(("kn_batch", one) for one in parts)]).encode()
    )
    with node.tunnel(do_max_n="2") as tunnel:
        assert payloads(tunnel.events(3)) == ["", "3", "4"]
    with node.tunnel(do_max_n="0") as tunnel:
        node.post("/what/chat", "5")
        assert payloads(tunnel.events(2)) == ["", "5"]


def test_what_a_program_publishes_reaches_tunnels_too(node: Web) -> None:
    from reknit.client.blocking.session import connect_sync

    with node.tunnel("/plant/temp") as tunnel, connect_sync(node.node.urls[0]) as session:
        tunnel.events(1)
        session.publish("plant/temp", b"21.5")
        event = tunnel.events(2)[1]
        assert event["kn_payload"] == b"21.5"
        source, _, seq = event["kn_id"].partition(b":")
        assert (len(source), seq) == (32, b"1")


# -- the other methods


def test_a_batch_has_one_status_for_itself_and_one_for_each_in_order(node: Web) -> None:
    parts = [
        "kn_to=/what/chat;kn_payload=1",
        "do_method=noop",
        "kn_to=/bad*",
        "do_method=notify;kn_to=/x;kn_status_from=/s",
    ]
    form = [("do_method", "batch"), ("kn_response_format", "simple"), *(("kn_batch", part) for part in parts)]
    answer = node.request("/kn", "POST", urlencode(form, quote_via=quote).encode())
    statuses = [event["status"].decode() for event in answer.events]
    assert statuses == ["200 Processing batch", "200 Notified", "200 OK", "400 Bad Request", "200 Notified"]
    assert answer.events[4]["kn_route_location"] == b"/s"
    assert (answer.code, answer.reason) == (200, "Processing batch")


def test_kn_status_to_answers_204_and_sends_the_status_to_that_topic(node: Web) -> None:
    with node.tunnel("/who/ann/kn_journal") as tunnel:
        tunnel.events(1)
        answer = node.post("/what/chat", "x", kn_status_to="/who/ann/kn_journal", kn_status_from="/s")
        assert (answer.code, answer.body) == (204, b"")
        assert tunnel.events(2)[1]["status"] == b"200 Notified"


def test_whoami_noop_and_help(node: Web) -> None:
    assert b'window.kn_userid = "anonymous";' in node.request("/kn?do_method=whoami").body
    assert node.get(do_method="noop").status == "200 OK"
    assert b"kn_batch" in node.request("/kn?do_method=help").body


def test_the_js_format_byte_for_byte(node: Web) -> None:
    with node.stream("/kn?kn_from=/what/chat") as tunnel:
        tunnel.until(b"</script>\n")
        assert tunnel.head.headers["content-type"].startswith("text/html")
        node.post("/what/chat", '</script>"\u2028&', kn_id="m1", kn_time_t="7")
        body = tunnel.until(b'"m1"')
    line = body.splitlines()[-1].decode()
    assert line.startswith(
        '<script>parent.kn_sendCallback({elements:[{name:"kn_id",value:"m1"},{name:"kn_time_t",value:"7"},'
    )
    assert line.endswith(
        '{name:"kn_payload",value:"\\u003c/script\\u003e\\"\\u2028\\u0026"}]}, window)</script>'
    )


def test_subtopics_are_listed_and_new_ones_are_told(node: Web) -> None:
    node.post("/what/chat/1", "x")
    node.post("/what/apps", "x")
    with node.tunnel("/what/kn_subtopics") as tunnel:
        assert payloads(tunnel.events(3)) == ["", "apps", "chat"]
        assert "kn_journal_reconnect_scheme" not in tunnel.events(1)[0]
        node.post("/what/news", "x")
        node.post("/what/chat/2", "x")
        assert payloads(tunnel.events(4))[3] == "news"


def test_requests_on_one_connection_are_answered_in_order(node: Web) -> None:
    request = b"POST /kn HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
    bodies = [b"kn_to=/what/chat;kn_payload=%d" % number for number in range(3)]
    with node.connect() as sock:
        sock.sendall(b"".join(request % (len(body), body) for body in bodies))
        data = b""
        while data.count(b"200 Notified\r\n") < 3:
            data += sock.recv(65536)
    with node.tunnel(do_max_age="infinity") as tunnel:
        assert payloads(tunnel.events(4)) == ["", "0", "1", "2"]


def test_an_old_client_without_chunks_gets_the_same_events(node: Web) -> None:
    sock = node.connect()
    sock.sendall(b"GET /kn/what/chat?kn_response_format=simple HTTP/1.0\r\n\r\n")
    data = b""
    while b"Watching" not in data.partition(b"\r\n\r\n")[2]:
        data += sock.recv(65536)
    node.post("/what/chat", "hello")
    while b"hello\n" not in data:
        data += sock.recv(65536)
    sock.close()
    assert b"chunked" not in data
