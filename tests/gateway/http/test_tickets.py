"""Tickets for EventSource and WebSocket in pages: short-lived, for one use, and bound to an identity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.http.http_client import WEBSOCKET, Web, config, web
from tests.guarded_files import GuardedFiles

pytestmark = pytest.mark.real

ANN = {"Authorization": "Bearer a-token"}


@pytest.fixture
def files(tmp_path: Path) -> GuardedFiles:
    return GuardedFiles(tmp_path, {"ann": "a-token"}, "ann subscribe what/**", "ann publish **")


@pytest.fixture
def node(files: GuardedFiles) -> Iterator[Web]:
    with web(files.guard(config())) as node:
        yield node


def ticket(node: Web) -> str:
    answer = node.request("/ticket", "POST", b"", **ANN)
    assert (answer.code, answer.headers["cache-control"]) == (200, "no-store")
    return str(json.loads(answer.body)["ticket"])


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/sse?topic=what/chat", {}), ("/ws?topic=what/chat", WEBSOCKET), ("/kn?kn_from=/what/chat", {})],
)
def test_a_ticket_opens_one_stream(node: Web, path: str, headers: dict[str, str]) -> None:
    url = f"{path}&ticket={ticket(node)}"
    with node.stream(url, **headers) as stream:
        stream.until(b"Watching topic" if path.startswith("/kn") else b"live")
    again = node.request(url, "GET", b"", **headers)
    assert (again.code, b"used already" in again.body) == (403, True)


def test_only_who_has_proven_an_identity_gets_a_ticket(node: Web) -> None:
    assert node.request("/ticket", "POST").code == 403
    assert node.request("/ticket", "POST", Authorization="Bearer guess").code == 403
    assert node.request("/ticket", "GET", b"", **ANN).code == 400
    foreign = node.request("/ticket", "POST", b"", Origin="http://evil.example", **ANN)
    assert foreign.code == 403
    assert len(node.node.gate.tickets) == 0


def test_a_ticket_is_worth_no_more_than_its_identity(node: Web) -> None:
    assert node.request(f"/sse?topic=secret/a&ticket={ticket(node)}").code == 403


def test_a_ticket_publishes_nothing(node: Web) -> None:
    url = f"/kn?ticket={ticket(node)}"
    assert node.request(url, "POST", b"kn_to=/what/chat;kn_payload=x").code == 403
    assert "what/chat" not in node.node.journal.topics()


def test_a_revoked_token_takes_its_tickets_along(node: Web, files: GuardedFiles) -> None:
    url = f"/sse?topic=what/chat&ticket={ticket(node)}"
    with node.stream("/sse?topic=what/chat", **ANN) as stream:
        stream.until(b"live")
        files.tokens({})
        stream.rest()
    answer = node.request(url)
    assert (answer.code, b"was revoked" in answer.body) == (403, True)
