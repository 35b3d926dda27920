"""What HTTP itself asks of a server: HEAD, Host, targets, expectations, and requests one after the other."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from tests.gateway.http.http_client import Web, config, web

POST = b"do_method=notify;kn_to=/what/chat;kn_payload=hi;kn_response_format=simple"


@pytest.fixture(autouse=True)
def no_internal_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    errors = [one for one in caplog.get_records("call") if one.levelno >= logging.ERROR]
    assert not errors, [f"{one.getMessage()} {one.exc_text or ''}" for one in errors]


def said(node: Web, *parts: bytes) -> bytes:
    """Everything that is answered to bytes, on a connection of their own that the server closes."""
    with socket.create_connection(("127.0.0.1", node.port), 150.0) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        while data := connection.recv(65_536):
            answer += data
        return answer


def closing(first: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    length = (b"Content-Length: %d" % len(body),) if body else ()
    return b"\r\n".join((first, *headers, *length, b"Connection: close", b"", b"")) + body


@pytest.mark.parametrize("path", [b"/", b"/reknit.js", b"/nowhere", b"/kn", b"/sse?topic=a"])
def test_head_has_the_length_and_no_body(node: Web, path: bytes) -> None:
    answer = said(node, closing(b"HEAD %b HTTP/1.1" % path, b"Host: x"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b""
    assert b"Content-Length: 0" not in head


@pytest.mark.parametrize(
    "hosts", [(), (b"Host: a", b"Host: b"), (b"Host: a", b"host: a"), (b"Host: a b",), (b"Host: u@a",)]
)
def test_a_missing_doubled_or_bad_host_is_refused(node: Web, hosts: tuple[bytes, ...]) -> None:
    assert said(node, closing(b"GET / HTTP/1.1", *hosts)).startswith(b"HTTP/1.1 400 ")


def test_an_old_client_needs_no_host(node: Web) -> None:
    assert said(node, closing(b"GET / HTTP/1.0")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "target", [b"http://elsewhere.example/kn", b"HTTP://localhost:1/kn?do_method=noop", b"https://[::1]/kn"]
)
def test_a_target_in_absolute_form_names_the_host_and_the_path(node: Web, target: bytes) -> None:
    answer = said(node, closing(b"GET %b HTTP/1.1" % target, b"Host: localhost"))
    # a node on a loopback address has no other name
    assert answer.startswith(b"HTTP/1.1 403" if b"elsewhere" in target else b"HTTP/1.1 200")


@pytest.mark.parametrize("target", [b"http://localhost", b"http://localhost?x"])
def test_an_absolute_target_without_a_path_is_the_first_page(node: Web, target: bytes) -> None:
    assert b"mod_pubsub at /kn" in said(node, closing(b"GET %b HTTP/1.1" % target, b"Host: x"))


def test_this_is_no_proxy(node: Web) -> None:
    answer = said(node, b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 501 ")


def test_a_client_that_asks_is_told_to_send_its_body(node: Web) -> None:
    with node.connect() as connection:
        head = closing(b"POST /kn HTTP/1.1", b"Host: localhost", b"Expect: 100-continue", body=POST)
        connection.sendall(head[: -len(POST)])
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(POST)
        assert b"200 Notified" in connection.recv(65_536)


def test_a_body_that_is_too_long_is_refused_before_it_is_sent() -> None:
    with web(config(request_bytes_max=4096)) as node:
        head = b"POST /kn HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\nExpect: 100-continue\r\n\r\n"
        assert said(node, head).startswith(b"HTTP/1.1 413 ")


def test_another_expectation_is_refused(node: Web) -> None:
    assert said(node, closing(b"GET / HTTP/1.1", b"Host: x", b"Expect: tea")).startswith(b"HTTP/1.1 417 ")


def test_requests_before_a_bad_one_are_answered_first(node: Web) -> None:
    good = closing(b"POST /kn HTTP/1.1", b"Host: localhost", body=POST).replace(b"Connection: close\r\n", b"")
    answer = said(node, good + good + b"NONSENSE\r\n\r\n")
    assert answer.count(b"200 Notified") == 4  # the status line and the event, twice
    assert answer.index(b"not a valid HTTP/1 request") > answer.rindex(b"200 Notified")


def test_requests_behind_a_tunnel_are_not_answered_into_it(node: Web) -> None:
    get = b"GET /kn?kn_from=/what/chat;kn_response_format=simple HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with node.connect() as connection:
        connection.sendall(get + get + b"NONSENSE\r\n\r\n")
        answer = b""
        while b"kn_event_hash" not in answer.partition(b"200 Watching topic\n")[2]:
            answer += connection.recv(65_536)
            node.post("/what/chat", "x")
        assert answer.count(b"HTTP/1.1") == 1


def test_a_status_topic_that_is_none_is_refused_before_anything_is_done(node: Web) -> None:
    with node.tunnel() as tunnel:
        tunnel.events(1)
        answer = node.post("/what/chat", "not this", kn_status_to="/a//b")
        assert (answer.code, answer.status) == (400, "400 Bad Request")
        assert b"kn_status_to" in answer.body
        node.post("/what/chat", "this")
        assert tunnel.events(2)[1]["kn_payload"] == b"this"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}, 101),
        ({"Sec-WebSocket-Version": "8", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}, 426),
        ({"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}, 426),
        ({"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "c2hvcnQ="}, 400),
        ({"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "?"}, 400),
        ({"Sec-WebSocket-Version": "13"}, 400),
    ],
)
def test_a_websocket_has_version_13_and_a_key_of_16_bytes(
    node: Web, headers: dict[str, str], code: int
) -> None:
    both = {"Upgrade": "websocket", "Connection": "Upgrade", **headers}
    lines = [f"{name}: {value}".encode() for name, value in both.items()]
    with node.connect() as connection:
        connection.sendall(b"\r\n".join((b"GET /ws?topic=a HTTP/1.1", b"Host: localhost", *lines, b"", b"")))
        assert connection.recv(12) == b"HTTP/1.1 %d" % code


def test_a_websocket_that_is_asked_for_without_an_upgrade_is_426(node: Web) -> None:
    answer = node.request("/ws?topic=a")
    assert (answer.code, answer.headers["sec-websocket-version"]) == (426, "13")
