"""What an identity has at one door counts at every other: connections, subscriptions, durable names, sources, rates."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.config import Config, SecuritySettings, TopicSettings
from reknit.errors import Refused
from reknit.node.node import Node
from reknit.outcome import code_name
from reknit.topic import Pattern
from tests.client.rpc.shared import run, until
from tests.gateway.http import http_client
from tests.gateway.http.http_client import WEBSOCKET, Answer, Web, web
from tests.tokens import write_tokens

pytestmark = pytest.mark.real

ALLOW = ("* publish **", "* subscribe **", "ann as //plant/10/1/FFFF")
ANN = {"Authorization": "Bearer ann-token"}
WS = {**WEBSOCKET, **ANN}
KN = "/kn?kn_from=/plant/a;kn_response_format=simple"
SSE, SOCKET = "/sse?topic=plant/*", "/ws?topic=plant/*"
EXHAUSTED = "amqp:resource-limit-exceeded"


def limit(config: Config, folder: Path, *quotas: str) -> Config:
    """The same node, with tokens and these quotas."""
    tokens = write_tokens(folder / "tokens", {name: f"{name}-token" for name in ("ann", "bob")})
    security = SecuritySettings(tokens_file=tokens, allow=ALLOW, quotas=quotas, audit="off")
    return replace(config, security=security)


@contextmanager
def limited(folder: Path, *quotas: str, **http: Any) -> Iterator[Web]:
    """A node with HTTP."""
    with web(limit(http_client.config(**http), folder, *quotas)) as node:
        yield node


def native_refusal(node: Node, token: str = "ann-token") -> str:
    """Why a native client may not subscribe."""
    told: list[str] = []

    async def program() -> None:
        try:
            async with reknit.connect(node.urls[0], token=token) as session, session.subscribe("plant/*"):
                pass
        except Refused as error:
            told.append(f"{code_name(error.code)}: {error.text}")

    run(program())
    assert not told or told[0].startswith("RESOURCE_EXHAUSTED")
    return "".join(told)


def is_refused(answer: Answer, quota: str) -> bool:
    """Whether a request was refused for a quota, and its client told when to try again."""
    return answer.code == 429 and int(answer.headers["retry-after"]) > 0 and quota.encode() in answer.body


# -- HTTP


def test_tunnels_are_subscriptions_and_count_with_native_ones(tmp_path: Path) -> None:
    with limited(tmp_path, "ann subscriptions=2") as node, ExitStack() as stack:
        for path, headers, first in ((SSE, ANN, b"live"), (SOCKET, WS, b"live")):
            stack.enter_context(node.stream(path, **headers)).until(first)
        assert is_refused(node.request(KN, "GET", b"", **ANN), "as many subscriptions as allowed (2)")
        assert is_refused(node.request(SOCKET, "GET", b"", **WS), "as many subscriptions as allowed (2)")
        with node.stream(SSE, **ANN) as other:
            other.until(b"RESOURCE_EXHAUSTED: ann has as many subscriptions as allowed (2)")
        assert "as many subscriptions as allowed (2)" in native_refusal(node.node)
        assert not native_refusal(node.node, "bob-token"), "others have their own"
        stack.close()
        run(until(lambda: not objection(node.node)))


def objection(node: Node) -> str:
    """Why ann may not have another subscription now."""
    assert node.quotas is not None
    why = node.quotas.client_subscribes("ann", "")
    if not why:
        node.quotas.client_unsubscribed("ann")
    return why


@pytest.mark.parametrize(("path", "headers"), [(KN, ANN), (SOCKET, WS)])
def test_a_tunnel_over_the_quota_of_connections_gets_429(
    tmp_path: Path, path: str, headers: dict[str, str]
) -> None:
    with limited(tmp_path, "ann connections=1 subscriptions=5") as node:
        with node.stream(SSE, **ANN) as stream:
            stream.until(b"live")
            assert is_refused(node.request(path, "GET", b"", **headers), "as many connections as allowed (1)")
        run(until(lambda: not node.node.gate.connections.totals()))
        assert not native_refusal(node.node)


def test_topics_over_http_are_sources(tmp_path: Path) -> None:
    def post(topic: str, **form: str) -> Answer:
        pairs = {"kn_to": f"/{topic}", "kn_payload": "x", "kn_response_format": "simple", **form}
        body = ";".join(f"{name}={value}" for name, value in pairs.items()).encode()
        return node.request("/kn", "POST", body, **ANN)

    def send(number: int) -> Answer:
        event = {
            "specversion": "1.0",
            "id": "00000000-0001-7000-8010-101010101a1a",
            "source": f"up://plant/10/1/{0x8000 + number:X}",
            "type": "up-pub.v1",
            "data": "x",
        }
        kind = {"Content-Type": "application/cloudevents+json"}
        return node.request("/cloudevents", "POST", json.dumps(event).encode(), **kind, **ANN)

    async def publish() -> None:
        async with reknit.connect(node.node.urls[0], token="ann-token") as ann:
            with pytest.raises(Refused, match="as many sources as allowed"):
                await ann.publish("plant/z", b"x")
            ann.router.publishers.clear()

    with limited(tmp_path, "ann sources=2") as node:
        assert [post("plant/a").code, post("plant/a").code, send(1).code, send(1).code] == [200] * 4
        assert is_refused(post("plant/b"), "as many sources as allowed (2)")
        assert is_refused(send(2), "as many sources as allowed (2)")
        assert is_refused(post("plant/a", kn_status_to="/plant/c"), "as many sources as allowed (2)")
        run(publish())
        assert node.post("/plant/b").code == 200, "others have their own"
        assert sorted(node.node.journal.topics())[:2] == ["plant/a", "plant/b"]
        assert node.node.gate.refusals.totals()["ann"]["quota"] >= 3


def test_who_must_wait_too_long_is_told_for_how_long(tmp_path: Path) -> None:
    with limited(tmp_path, "ann events_per_s=1", request_timeout_s=0.1) as node:
        body = b"kn_to=/plant/a;kn_payload=x;kn_status_to=/plant/b;kn_response_format=simple"
        answers = [node.request("/kn", "POST", body, **ANN) for _ in range(3)]
        assert is_refused(answers[-1], "events_per_s=1"), "a status is an event, too"


# -- AMQP


@contextmanager
def broker(folder: Path, *quotas: str, **more: Any) -> Iterator[tuple[Node, Callable[..., Any]]]:
    """A node with AMQP, and what connects to it as somebody."""
    pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")
    from tests.gateway.amqp import clients

    made = clients.config(mechanisms=("PLAIN", "ANONYMOUS"), plain_needs_tls=False, **more)

    def client(who: str = "ann", **options: Any) -> Any:
        login = {
            "user": who,
            "password": f"{who}-token",
            "allow_insecure_mechs": True,
            "allowed_mechs": "PLAIN",
        }
        return clients.Client(clients.url_of(node), **login, **options)

    with clients.broker(limit(made, folder, *quotas)) as node:
        yield node, client


def refused(client: Any) -> tuple[str, str]:
    """The next refusal."""
    client.wait(lambda: client.errors, "the refusal")
    name, text = client.errors.pop(0)
    return name, text


def test_receivers_over_amqp_are_subscriptions(tmp_path: Path) -> None:
    topics = (TopicSettings(pattern=Pattern("shared/*"), distribution="balanced"),)
    with broker(tmp_path, "ann subscriptions=2", topics=topics) as (node, client), client() as ann:
        first = ann.receiver("plant/a")
        ann.receiver("shared/a")
        ann.receiver("plant/b")
        assert refused(ann) == (EXHAUSTED, "ann has as many subscriptions as allowed (2): security.quotas")
        assert "as many subscriptions" in native_refusal(node)
        first.close()
        run(until(lambda: not objection(node)))
        ann.receiver("plant/b")
        assert not ann.errors
        with client("bob") as bob:
            bob.receiver("plant/a")
            assert not bob.errors


def test_durable_receivers_over_amqp_belong_to_their_user(tmp_path: Path) -> None:
    with broker(tmp_path, "ann durable_names=1") as (node, client):
        with client(container_id="box") as ann:
            ann.receiver("plant/a", durable=True, name="one")
            ann.receiver("plant/a", durable=True, name="two")
            assert refused(ann) == (
                EXHAUSTED,
                "ann has as many durable names as allowed (1): security.quotas",
            )
        with client(container_id="box") as ann:
            ann.receiver("plant/a", durable=True, name="one")
            assert not ann.errors, "a name that it has is not another one"
        owners = {name: one.owner for name, one in node.journal.ledger.accounts.items()}
        assert owners == {"amqp/ann/box/one": "ann"}

    async def take(name: str) -> None:
        async with reknit.connect(node.urls[0], token="bob-token") as bob:
            with pytest.raises(Refused, match=r"is not bob's"):
                async with bob.subscribe("plant/*", name=name):
                    pass

    with broker(tmp_path) as (node, client):
        with client(container_id="box") as ann:
            ann.receiver("plant/a", durable=True, name="one")
        for name in ("amqp/ann/box/one", "amqp/ann/box/not-yet"):
            run(take(name))


def test_topics_over_amqp_are_sources(tmp_path: Path) -> None:
    with broker(tmp_path, "ann sources=1") as (_, client), client() as ann:
        import proton

        assert ann.sender("plant/a").send(b"x").outcome == "accepted"
        ann.sender("plant/b")
        assert refused(ann) == (EXHAUSTED, "ann has as many sources as allowed (1): security.quotas")
        relay = ann.sender(None)
        assert relay.send(proton.Message(body=b"x", address="plant/a")).outcome == "accepted"
        beyond = relay.send(proton.Message(body=b"x", address="plant/b"))
        assert (beyond.outcome, beyond.condition.name) == ("rejected", EXHAUSTED)


def test_streams_over_amqp_count_for_the_rate(tmp_path: Path) -> None:
    topics = (TopicSettings(pattern=Pattern("films/*"), distribution="balanced"),)
    body = bytes(1_500_000)
    with (
        broker(tmp_path, "ann bytes_per_s=1MiB", topics=topics, stream_bytes_min=1 << 16) as (node, client),
        client() as ann,
        client("bob") as bob,
    ):
        import proton

        receiver = bob.receiver("films/a")
        sender = ann.sender("films/a")
        sent = [sender.stream(proton.Message(body=body), 1 << 16) for _ in range(2)]
        assert [one.outcome for one in sent] == ["accepted"] * 2
        assert receiver.wait(2) == [body] * 2
        assert node.figures.status()["quotas"]["ann"]["waits"] > 0


# -- native


def test_native_streams_count_for_the_rate(tmp_path: Path) -> None:
    topics = (TopicSettings(pattern=Pattern("films/*"), distribution="balanced"),)

    async def program(node: Node) -> None:
        async with (
            reknit.connect(node.urls[0], token="ann-token") as ann,
            reknit.connect(node.urls[0], token="bob-token") as bob,
            bob.subscribe("films/*", streams=True, auto_accept=False) as events,
        ):

            async def take() -> int:
                event = await anext(events)
                size = sum([len(piece) async for piece in event.pieces()])
                event.accept()
                return size

            taking = asyncio.create_task(take())
            async with ann.publisher("films/a").stream() as out:
                for _ in range(30):
                    await out.write(bytes(100_000))
            assert await taking == 3_000_000
        assert node.figures.status()["quotas"]["ann"]["waits"] > 0

    config = replace(http_client.config(), topics=topics)
    with web(limit(config, tmp_path, "ann bytes_per_s=1MiB")) as made:
        run(program(made.node), 120)


def test_connections_over_a_unix_socket_count(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/socket"
    base = limit(http_client.config(), tmp_path, "ann connections=1")
    security = replace(base.security, identities=(f"unix:{os.getuid()} ann",))
    config = replace(base, node=replace(base.node, listen=(url,)), security=security)

    async def program() -> None:
        async with reknit.connect(url):
            with pytest.raises(Refused, match="ann has as many connections as allowed"):
                await reknit.connect(url).open()

    with web(config):
        run(program())


def test_what_waits_for_a_client_of_a_gateway_counts(tmp_path: Path) -> None:
    with (
        limited(tmp_path, "ann waiting_bytes=64KiB", tunnel_bytes_max=1 << 20) as node,
        node.stream("/sse?topic=plant/a", **ANN) as stuck,
        node.stream("/sse?topic=plant/b") as other,
    ):
        stuck.until(b"live")
        other.until(b"live")
        for _ in range(120):
            assert node.post("/plant/a", "x" * 100_000).code == 200
        run(until(lambda: node.http.status()["connections"] < 2))
        node.post("/plant/b", "still here")
        other.until(b"still here")
