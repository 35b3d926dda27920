"""Tokens, rules, other sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from reknit.audit import AUDIT_TOPIC, read_entry
from tests.gateway.http.http_client import config, payloads, web
from tests.tokens import write_tokens


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    return write_tokens(tmp_path / "tokens", {"ann": "a-token", "bob": "b-token"})


def test_a_token_comes_in_the_header_and_never_in_the_query(tokens: str) -> None:
    with web(config(tokens_file=tokens, allow=("ann subscribe what/**", "ann publish **"))) as node:
        assert node.request("/sse?topic=what/chat").code == 403
        assert node.request("/sse?topic=what/chat", Authorization="Bearer wrong").code == 403
        assert node.request("/sse?topic=what/chat", Authorization="Bearer b-token").code == 403
        for path in ("/sse?topic=what/chat&token=a-token", "/kn?do_method=notify;kn_to=/a;token=a-token"):
            answer = node.request(path)
            assert answer.code == 403
            assert b"may not stand in a URL" in answer.body
            assert b"a-token" not in answer.body
        with node.stream("/sse?topic=what/chat", Authorization="Bearer a-token") as stream:
            stream.until(b"live")


def test_rules_say_who_may_read_and_write(tokens: str) -> None:
    allow = ("ann publish what/*", "* subscribe what/*")
    with web(config(tokens_file=tokens, allow=allow)) as node:
        assert node.post("/what/chat", "x").code == 403
        assert node.post("/what/chat", "x", token="b-token").code == 403
        form = b"kn_to=/what/chat;kn_payload=x"
        assert node.request("/kn", "POST", form, Authorization="Bearer a-token").code == 200
        assert node.request("/kn", "POST", b"kn_to=/who/x", Authorization="Bearer a-token").code == 403
        assert node.get(kn_from="/who/x").code == 403
        with node.tunnel("/what/chat", do_max_age="infinity") as tunnel:
            assert payloads(tunnel.events(2)) == ["", "x"]


def test_a_token_is_no_part_of_an_event(tokens: str) -> None:
    allow = ("* subscribe **", "ann publish **")
    with web(config(tokens_file=tokens, allow=allow)) as node, node.tunnel() as tunnel:
        tunnel.events(1)
        form = b"kn_to=/what/chat;kn_payload=x;token=a-token;ticket=x"
        sent = node.request("/kn", "POST", form, Authorization="Bearer a-token")
        assert sent.code == 200
        assert not {"token", "ticket"} & set(tunnel.events(2)[1])


def test_a_pattern_carries_only_what_may_be_read(tokens: str) -> None:
    some = config(tokens_file=tokens, allow=("ann subscribe what/**", "* publish **"))
    with web(some) as node, node.stream("/sse?topic=**", Authorization="Bearer a-token") as stream:
        stream.until(b"live")
        node.post("/who/secret", "hidden")
        node.post("/what/chat", "shown")
        assert b"hidden" not in stream.until(b"shown")


def test_what_is_replayed_is_what_may_be_read_by_then(tmp_path: Path, tokens: str) -> None:
    data = tmp_path / "data"
    everything = config(data, tokens_file=tokens, allow=("* subscribe **", "* publish **"))
    with web(everything) as node, node.stream("/sse?topic=**", Authorization="Bearer a-token") as stream:
        body = stream.until(b'live",')
        place = body.partition(b"id: ")[2].partition(b"\n")[0].decode()
        node.post("/plant/a", "secret by now")
        node.post("/what/chat", "still fine")
    less = config(data, tokens_file=tokens, allow=("ann subscribe what/**",))
    with web(less) as node:
        with node.stream("/sse?topic=**", Authorization="Bearer a-token", Last_Event_ID=place) as stream:
            assert b"secret" not in stream.until(b"still fine")
        since = f"/kn?kn_from=/plant/a;do_since_checkpoint={place}"
        answer = node.request(since, Authorization="Bearer a-token")
        assert answer.code == 403
        assert b"secret" not in answer.body


def test_a_route_needs_the_right_to_read_and_to_write(tokens: str) -> None:
    with web(config(tokens_file=tokens, allow=("* subscribe a", "* publish b"))) as node:
        assert node.get(kn_from="/a", kn_to="/b").code == 200
        assert node.get(kn_from="/b", kn_to="/b").code == 403
        assert node.get(kn_from="/a", kn_to="/a").code == 403


def test_a_page_of_another_site_may_only_use_the_node_if_its_origin_is_allowed() -> None:
    with web(config(origins=("http://good.example",))) as node:
        good = node.request("/kn", "POST", b"kn_to=/a", Origin="http://good.example")
        assert (good.code, good.headers["access-control-allow-origin"]) == (200, "http://good.example")
        evil = node.request("/kn", "POST", b"kn_to=/a", Origin="http://evil.example")
        assert (evil.code, "access-control-allow-origin" in evil.headers) == (403, False)
        own = node.request("/kn", "POST", b"kn_to=/a", Origin=node.url)
        assert own.code == 200
        image = node.request("/kn?do_method=notify;kn_to=/a", Sec_Fetch_Site="cross-site")
        assert image.code == 403


def test_a_page_that_gives_its_name_this_address_is_refused() -> None:
    """A site may let its own name lead to 127.0.0.1: then its page's origin is that of the server."""
    with web(config(hosts=("events.example",))) as node:
        host, origin = "evil.example:8080", "http://evil.example:8080"
        assert node.request("/kn", "POST", b"kn_to=/a", Host=host, Origin=origin).code == 403
        assert node.request("/sse?topic=**", Host=host, Origin=origin).code == 403
        assert node.request("/kn", "POST", b"kn_to=/a", Host="events.example").code == 200
        assert node.request("/kn", "POST", b"kn_to=/a", Host="localhost:8080").code == 200
        assert node.node.journal.status().events == 2


def test_a_preflight_is_answered() -> None:
    with web(config(origins=("*",))) as node:
        answer = node.request(
            "/kn", "OPTIONS", Origin="http://any.example", Access_Control_Request_Method="POST"
        )
        assert answer.code == 204
        assert "Authorization" in answer.headers["access-control-allow-headers"]
    with web() as node:
        answer = node.request(
            "/kn", "OPTIONS", Origin="http://any.example", Access_Control_Request_Method="POST"
        )
        assert answer.code == 403


def test_a_status_goes_only_where_its_client_may_publish(tokens: str) -> None:
    allow = ("ann subscribe **", "ann publish **", "* publish public/in")
    with web(config(tokens_file=tokens, allow=allow)) as node:
        with node.stream("/sse?topic=**", Authorization="Bearer a-token") as stream:
            stream.until(b"live")
            form = b"kn_to=/public/in;kn_payload=x;kn_status_to=/secret/orders"
            assert node.request("/kn", "POST", form).code == 403
            assert node.request("/kn", "POST", form, Authorization="Bearer wrong").code == 403
            ann = {"Authorization": "Bearer a-token"}
            foreign = node.request("/kn", "POST", form, Origin="http://evil.example", **ann)
            assert foreign.code == 403
            assert node.request("/kn", "POST", form.replace(b"=x;", b"=last;")).code == 403
            stream.until(b"last")
        topics = node.node.journal.topics()
        assert set(topics) - {AUDIT_TOPIC} == {"public/in"}


def test_a_route_is_deleted_or_changed_only_by_who_may_make_it(tokens: str) -> None:
    allow = ("ann subscribe **", "ann publish **", "* subscribe secret/a", "* publish public/in")
    with web(config(tokens_file=tokens, allow=allow)) as node:
        made = "/kn?do_method=route;kn_from=/secret/a;kn_to=/secret/b;kn_id=r1"
        assert node.request(made, Authorization="Bearer a-token").code == 200
        assert node.request("/kn?do_method=route;kn_from=/secret/a;kn_to=;kn_id=r1").code == 403
        assert node.request("/kn?do_method=route;kn_from=/secret/a;kn_to=/public/in;kn_id=r1").code == 403
        gone = "/kn?do_method=route;kn_from=/secret/a;kn_to=;kn_id=r1"
        assert node.request(gone, Authorization="Bearer a-token").code == 200


def test_rules_without_a_word_about_http_close_it_too(tokens: str) -> None:
    with web(config(tokens_file=tokens, allow=("ann subscribe plant/**",))) as node:
        assert node.post("/plant/a", "x").code == 403
        assert node.request("/sse?topic=plant/**").code == 403
        assert set(node.node.journal.topics()) <= {AUDIT_TOPIC}


def test_tokens_without_rules_let_in_whoever_has_one(tokens: str) -> None:
    with web(config(tokens_file=tokens)) as node:
        assert node.post("/plant/a", "x").code == 403
        form = b"kn_to=/plant/a;kn_payload=x"
        assert node.request("/kn", "POST", form, Authorization="Bearer b-token").code == 200


@pytest.mark.parametrize("topic", ["reknit/audit", "reknit/dead-letters"])
@pytest.mark.parametrize("has_rules", [False, True])
def test_nobody_posts_below_reknit(tokens: str, topic: str, has_rules: bool) -> None:
    some = config(tokens_file=tokens, allow=("ann publish **", "ann subscribe **")) if has_rules else config()
    ann = {"Authorization": "Bearer a-token"} if has_rules else {}
    with web(some) as node:
        form = f"kn_to=/{topic};kn_payload=forged".encode()
        assert node.request("/kn", "POST", form, **ann).code == 403
        status = f"/kn?do_method=noop;kn_status_to=/{topic}"
        assert b"may not post" in node.request(status, "GET", b"", **ann).body
        route = f"/kn?do_method=route;kn_from=/what/chat;kn_to=/{topic}"
        assert node.request(route, "GET", b"", **ann).code == 403


def test_tokens_that_are_presented_are_logins_in_the_audit_trail(tokens: str) -> None:
    with web(config(tokens_file=tokens, allow=("ann publish what/*",))) as node:
        for token in ("wrong", "a-token", "a-token"):
            node.request("/kn", "POST", b"kn_to=/what/chat;kn_payload=x", Authorization=f"Bearer {token}")
        node.request("/reknit.js")
        node.request("/kn", "POST", b"kn_to=/what/chat;kn_payload=x")
    told = [
        (entry.kind, entry.who, entry.code, entry.count)
        for source in node.node.journal.sources(AUDIT_TOPIC)
        for batch in node.node.find(AUDIT_TOPIC, source, 1, 99)
        for entry in map(read_entry, batch.payloads())
        if entry.door == "http" and entry.address == "127.0.0.1"
    ]
    assert told == [
        ("login", "anonymous", "UNAUTHENTICATED", 1),
        ("login", "ann", "OK", 1),
        ("refusal", "anonymous", "PERMISSION_DENIED", 1),
        ("login", "ann", "OK", 1),
    ]


SECRET_PATHS = (
    "/kn/secret/orders?do_max_age=60;kn_response_format=simple",
    "/kn/secret/kn_subtopics?kn_response_format=simple",
    "/kn/kn_subtopics?kn_response_format=simple",
    "/kn/secret/a/kn_routes?do_max_age=60;kn_response_format=simple",
    "/sse?topic=secret/**",
)
PUBLIC = ("ann subscribe **", "ann publish **", "* subscribe public/*", "* publish public/in")


@pytest.mark.parametrize("path", SECRET_PATHS)
def test_nobody_reads_a_topic_its_names_or_its_routes_without_a_rule(tokens: str, path: str) -> None:
    with web(config(tokens_file=tokens, allow=PUBLIC)) as node:
        answer = node.request(path)
        assert (answer.code, b"may not read" in answer.body) == (403, True)


@pytest.mark.parametrize("to", ["kn_to=/secret/x", "kn_to=/public/in;kn_status_to=/secret/x"])
def test_a_page_of_another_site_with_a_wrong_token_writes_nothing(tokens: str, to: str) -> None:
    with web(config(tokens_file=tokens, allow=PUBLIC)) as node:
        body = f"do_method=notify;{to};kn_payload=x".encode()
        headers = {"Origin": "http://evil.example", "Authorization": "Bearer wrong"}
        assert node.request("/kn", "POST", body, **headers).code == 403
        assert not [topic for topic in node.node.journal.topics() if not topic.startswith("reknit/")]


@pytest.mark.parametrize(
    ("origin", "code"),
    [
        ("http://{}", 101),
        ("null", 403),
        ("http://evil.example", 403),
        ("http://{}.evil.example", 403),
        ("http://evil.example/{}", 403),
    ],
)
def test_a_websocket_is_for_pages_of_the_node_itself(origin: str, code: int) -> None:
    with web(config()) as node, node.connect() as sock:
        sock.settimeout(30)
        host = f"127.0.0.1:{node.port}"
        lines = ("GET /ws?topic=public/in HTTP/1.1", f"Host: {host}", f"Origin: {origin.format(host)}",
                 "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "")  # fmt: skip
        sock.sendall("\r\n".join(lines).encode())
        assert sock.recv(1 << 12).startswith(f"HTTP/1.1 {code} ".encode())
