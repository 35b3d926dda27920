"""Tunnels end with the reason when their user may no longer read what they carry; others go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reknit import environment
from reknit.batch import Batch
from reknit.testing.attack.raw_peer import raw_peer
from reknit.wire.messages import Ack
from tests.client.rpc.shared import run
from tests.gateway.http.http_client import WEBSOCKET, Stream, Web, config, web
from tests.guarded_files import GuardedFiles

pytestmark = pytest.mark.real

SECRETS = {"ann": "a-token", "bob": "b-token"}
REST = ("* publish **", "* subscribe news/*")
RULES = ("ann subscribe what/**", "bob subscribe what/chat", *REST)


@pytest.fixture
def files(tmp_path: Path) -> GuardedFiles:
    return GuardedFiles(tmp_path, SECRETS, *RULES)


@pytest.fixture
def node(files: GuardedFiles) -> Iterator[Web]:
    with web(files.guard(config())) as node:
        yield node


def opened(node: Web, path: str, token: str = "", **headers: str) -> Stream:
    """A tunnel, after its first event."""
    bearer = {"Authorization": f"Bearer {token}"} if token else {}
    stream = node.stream(path, **bearer, **headers)
    stream.until(b"Watching topic" if path.startswith("/kn") else b"live")
    return stream


PATHS = ("/sse?topic=what/chat", "/ws?topic=what/chat", "/kn?kn_from=/what/chat;kn_response_format=simple")


@pytest.mark.parametrize("path", PATHS)
def test_a_tunnel_that_lost_its_rule_ends_and_others_go_on(node: Web, files: GuardedFiles, path: str) -> None:
    headers = WEBSOCKET if path.startswith("/ws") else {}
    with (
        opened(node, path, "a-token", **headers) as ann,
        opened(node, path, "b-token", **headers) as bob,
        opened(node, path.replace("what/chat", "news/x"), **headers) as nobody,
    ):
        files.allow("bob subscribe what/chat", *REST)
        assert b"PERMISSION_DENIED: the rules for ann have changed" in ann.rest()
        node.post("/what/chat", "for-bob")
        node.post("/news/x", "for-all")
        bob.until(b"for-bob")
        nobody.until(b"for-all")
        assert b"for-bob" not in ann.body
    assert node.request(path, "GET", b"", Authorization="Bearer a-token", **headers).code == 403


@pytest.mark.parametrize("path", PATHS)
def test_a_revoked_token_ends_its_tunnels_and_no_others(node: Web, files: GuardedFiles, path: str) -> None:
    headers = WEBSOCKET if path.startswith("/ws") else {}
    with opened(node, path, "a-token", **headers) as ann, opened(node, path, "b-token", **headers) as bob:
        files.tokens({"bob": "b-token"})
        assert b"UNAUTHENTICATED: the token 'ann' of ann was revoked" in ann.rest()
        node.post("/what/chat", "for-bob")
        bob.until(b"for-bob")
    assert len(node.node.gate.logins) <= 1


def test_a_token_that_expires_ends_its_tunnels(node: Web, files: GuardedFiles) -> None:
    with opened(node, PATHS[0], "b-token") as bob:
        files.tokens(SECRETS, environment.time_us() + 2_000_000)
        assert b"UNAUTHENTICATED: the token 'bob' of bob expired at" in bob.rest()


def test_rules_that_change_nothing_for_a_tunnel_do_not_end_it(node: Web, files: GuardedFiles) -> None:
    with opened(node, PATHS[0], "a-token") as ann, opened(node, "/sse?topic=**", "b-token") as bob:
        # other rules, and the same view: of ann by a wider rule
        files.allow("ann subscribe **", "bob publish what/chat", "bob subscribe what/chat", *REST)
        while not node.node.gate.may_read("ann", "other/x"):
            time.sleep(0.01)
        node.post("/what/chat", "for-both")
        ann.until(b"for-both")
        bob.until(b"for-both")


def test_names_under_a_topic_are_hidden_when_they_may_not_be_read_any_more(
    node: Web, files: GuardedFiles
) -> None:
    with opened(node, "/kn?kn_from=/what/kn_subtopics;kn_response_format=simple", "a-token") as ann:
        files.allow("bob subscribe what/chat", *REST)
        assert b"PERMISSION_DENIED" in ann.rest()


def route(node: Web, token: str, **form: str) -> int:
    body = ";".join(f"{name}={value}" for name, value in {"do_method": "route", **form}.items()).encode()
    return node.request("/kn", "POST", body, Authorization=f"Bearer {token}").code


ROUTED = ("ann publish hall", "bob publish hall", "* subscribe hall")


def test_a_route_ends_when_its_maker_loses_the_right_to_it(node: Web, files: GuardedFiles) -> None:
    files.allow(
        *RULES[:2], "* subscribe what/chat", *ROUTED, "anonymous publish what/chat", "anonymous publish hall"
    )
    while node.node.gate.may_publish("ann", "other"):
        time.sleep(0.01)
    assert route(node, "a-token", kn_from="/what/chat", kn_to="/hall", kn_id="anns") == 200
    with opened(node, "/kn?kn_from=/hall;kn_response_format=simple") as reader:
        node.post("/what/chat", "routed")
        reader.until(b"routed")
        files.allow("bob subscribe what/chat", "* subscribe hall", "anonymous publish **", "bob publish hall")
        routes = node.http.router.routes
        while routes.get("what/chat", "anns") is not None:
            time.sleep(0.01)
    assert route(node, "b-token", kn_from="/what/chat", kn_to="/hall", kn_id="bobs") == 200
    files.allow(
        "bob subscribe what/chat", "* subscribe hall", "anonymous publish **", "bob publish hall", "x admin"
    )
    while not node.node.gate.is_admin("x"):
        time.sleep(0.01)
    assert [one.id for one in routes.all()] == ["bobs"], "rules that change nothing for a route do not end it"


def test_a_route_whose_maker_lost_the_right_while_the_node_was_away_ends_with_its_start(
    tmp_path: Path,
) -> None:
    files = GuardedFiles(tmp_path, SECRETS, *RULES, "ann publish hall")
    data = tmp_path / "data"
    with web(files.guard(config(data))) as node:
        assert route(node, "a-token", kn_from="/what/chat", kn_to="/hall", kn_id="anns") == 200
    for rules in (("ann subscribe what/**", "bob publish **"), (*RULES, "ann publish hall")):
        files.allow(*rules)
        with web(files.guard(config(data))) as node:
            assert node.http.router.routes.all() == [], "also once the right is back"


def test_nobody_makes_or_deletes_a_route_by_publishing_it(node: Web, files: GuardedFiles) -> None:
    files.allow(*RULES[:2], "bob publish what/**", "ann publish hall")
    while node.node.gate.may_publish("bob", "other"):
        time.sleep(0.01)
    assert route(node, "a-token", kn_from="/what/chat", kn_to="/hall", kn_id="anns") == 200

    async def publish(number: int, rows: list[tuple[bytes, str]]) -> None:
        """As a peer that sends any headers; one source each time."""
        columns = {"headers": [{"kn_id": id, "reknit_maker": "ann"} for _, id in rows]}
        payloads = [payload for payload, _ in rows]
        source = number.to_bytes(16, "big")
        batch = Batch.build(
            source, "what/chat/kn_routes", 1, payloads, environment.time_us(), columns=columns
        )
        async with raw_peer(urlsplit(node.node.urls[0]).port or 0, "b-token") as bob:
            await bob.say(batch)
            await bob.hear(Ack)

    tries = ((b"/hall", "bobs"), (b"", "anns"), (b"/what/else", "anns"))
    for number, row in enumerate(tries, 1):
        run(publish(number, [row, (b"/what/else", f"seen {number}")]))
        while node.http.router.routes.get("what/chat", f"seen {number}") is None:  # bob may have that one
            time.sleep(0.01)
        found = {one.id: one.to_topic for one in node.http.router.routes.all()}
        assert (found["anns"], "bobs" in found) == ("hall", False)
