"""Requests that no browser sends: they are answered, or nobody is there any more, and no error is logged."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.gateway.http.http_client import Web, payloads


@pytest.fixture(autouse=True)
def no_internal_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    errors = [one for one in caplog.get_records("call") if one.levelno >= logging.ERROR]
    assert not errors, [f"{one.getMessage()} {one.exc_text or ''}" for one in errors]


def said(node: Web, request: bytes) -> bytes:
    """What is answered to bytes, on a connection of their own."""
    with socket.create_connection(("127.0.0.1", node.port), 150.0) as connection:
        connection.sendall(request)
        answer = b""
        while data := connection.recv(65_536):
            answer += data
        return answer


def posted(form: bytes, path: bytes = b"/kn") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % (path, len(form)) + form


def test_a_client_that_leaves_before_its_answer_is_ready_causes_no_error(node: Web) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", node.port), 150.0) as connection:
            connection.sendall(posted(b"do_method=notify;kn_to=/what/chat;kn_payload=hi"))
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # a reset, not an end
    assert node.post("/what/chat", "after").code == 200


@pytest.mark.parametrize(
    "form",
    [
        b"do_method=notify;kn_to=/what/chat;kn_payload=hi;%ff%fe=x",
        b"do_method=notify;kn_to=/what/chat;kn_payload=hi;odd=%ff%fe",
        b"do_method=notify;kn_to=/what/chat;kn_payload=hi;\xff\xfe=\xff",
        b"do_method=%ff;kn_to=/what/%fe",
        b"do_method=route;kn_from=/what/%ff;kn_to=/what/%fe;kn_response_format=%fd",
        b"do_method=notify;kn_to=/what/chat;token=%ff%fe",
    ],
)
def test_bytes_that_are_not_utf_8_are_answered(node: Web, form: bytes) -> None:
    answer = said(node, posted(form))
    assert answer.startswith(b"HTTP/1.1 ")
    assert not answer.startswith(b"HTTP/1.1 500")


def test_a_payload_keeps_bytes_that_are_not_utf_8(node: Web) -> None:
    with node.tunnel() as stream:
        stream.events(1)
        said(node, posted(b"do_method=notify;kn_to=/what/chat;kn_payload=%ff%00%fe"))
        assert stream.events(2)[1]["kn_payload"] == b"\xff\x00\xfe"


UPGRADES = [b"h2c", b"websocket", b"nothing-known"]


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("pieces", [1, 7, 400])
def test_an_upgrade_that_is_not_taken_is_ignored_and_the_request_answered(
    node: Web, upgrade: bytes, pieces: int
) -> None:
    form = b"kn_to=/what/h2;kn_payload=" + upgrade + b";kn_response_format=simple"
    head = (
        b"POST /kn HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: %d\r\n\r\n"
    )
    both = head % (upgrade, len(form)) + form + posted(b"kn_to=/what/h2;kn_payload=next")
    size = -(-len(both) // pieces)
    with socket.create_connection(("127.0.0.1", node.port), 150.0) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(both), size):
            connection.sendall(both[at : at + size])
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.count(b"HTTP/1.1 200 Notified") == 2
    assert b"<title>" not in answer
    with node.tunnel("/what/h2", do_max_age="infinity") as tunnel:
        assert payloads(tunnel.events(3)[1:]) == [upgrade.decode(), "next"]


@pytest.mark.parametrize("path", [b"/kn", b"/kn/what/chat"])
def test_a_post_without_parameters_is_an_error_not_a_page(node: Web, path: bytes) -> None:
    answer = said(node, posted(b"", path))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"kn_to=" in answer


@pytest.mark.parametrize("origin", [b"https://[::1", b"http://[", b"//]", b"null", b"\xff://x"])
def test_an_origin_that_is_no_address_is_that_of_a_foreign_page(node: Web, origin: bytes) -> None:
    line = b"Origin: " + origin + b"\r\nContent-Length"
    request = posted(b"do_method=notify;kn_to=/what/chat;kn_payload=hi").replace(b"Content-Length", line)
    assert said(node, request).startswith(b"HTTP/1.1 403 ")
