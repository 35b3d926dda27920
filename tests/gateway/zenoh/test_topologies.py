"""Gateways behind a router, as a router, and several in one network."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

zenoh = pytest.importorskip("zenoh")

from reknit.client.session import Session  # noqa: E402
from reknit.config import Config, LinkSettings, NodeSettings, RecoverySettings  # noqa: E402
from reknit.errors import InvalidConfig  # noqa: E402
from reknit.gateway.zenoh import gateway as gateways  # noqa: E402
from reknit.gateway.zenoh.session import gateway_config  # noqa: E402
from reknit.gateway.zenoh.threads import call  # noqa: E402
from reknit.node.node import Node  # noqa: E402
from reknit.processes.process import free_port  # noqa: E402
from reknit.server import build_node  # noqa: E402
from tests.gateway.zenoh.network import BLOCK, Peer, gateway  # noqa: E402
from tests.node.fabric import client, config, run, take, until  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


@pytest.mark.parametrize("peer_mode", ["client", "peer"])
def test_a_gateway_is_a_client_of_a_router(peer_mode: str) -> None:
    async def test() -> None:
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        async with (
            Peer([endpoint], [], "router"),
            build_node(config(zenoh_connect=(endpoint,))) as node,
            client(node) as session,
            Peer([], [endpoint], peer_mode) as peer,
        ):
            await _both_ways(node, session, peer)

    run(test)


def test_a_gateway_joins_when_its_router_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(gateways, "JOIN_S", 0.05)
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        async with build_node(config(zenoh_connect=(endpoint,))) as node, client(node) as session:
            await session.publish("plant/before", b"1")
            async with Peer([endpoint], [], "router") as peer:
                await _both_ways(node, session, peer)

    run(test)


def test_a_gateway_is_a_router_of_others() -> None:
    async def test() -> None:
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        async with (
            build_node(config(zenoh_listen=(endpoint,), zenoh_mode="router")) as node,
            client(node) as session,
            Peer([], [endpoint], "client") as one,
            Peer([], [endpoint], "client") as other,
        ):
            await _both_ways(node, session, one)
            heard: list[str] = []
            await other.subscriber("plant/*", lambda sample: heard.append(str(sample.key_expr)))
            while not heard:
                await call(one.session.put, "plant/among", b"1")
                await asyncio.sleep(0.02)

    run(test)


async def _both_ways(node: Node, session: Session, peer: Peer) -> None:
    async with session.subscribe("plant/in", history=True) as events:
        await peer.reaches(node)
        await peer.is_reached_by(session)
        await call(peer.session.put, "plant/in", b"7", congestion_control=BLOCK)
        assert await take(events, 1) == [7]


def test_subscribers_on_both_sides_see_each_other() -> None:
    async def test() -> None:
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        alive: set[str] = set()

        def on_token(token: Any) -> None:
            change = alive.add if token.kind == zenoh.SampleKind.PUT else alive.discard
            change(str(token.key_expr))

        async with (
            Peer([endpoint], [], "router") as peer,
            build_node(config(zenoh_connect=(endpoint,))) as node,
            client(node) as session,
        ):
            watch = peer.session.liveliness().declare_subscriber
            await peer.declare(watch, "plant/**/@adv/sub/**", on_token, history=True)
            async with session.subscribe("plant/*"):
                await until(lambda: alive)
                [key] = alive
                assert key.startswith("plant/*/@adv/sub/")
                assert key.endswith(f"/1/reknit-{node.name.encode().hex()}")
            await until(lambda: not alive)
            await peer.advanced_subscriber(lambda sample: None, subscriber_detection=True)
            shown = node.figures.status
            await until(lambda: shown()["zenoh"]["subscribers"])
            [row] = shown()["zenoh"]["subscribers"]
            assert (row["pattern"], row["node"], shown()["zenoh"]["mode"]) == ("plant/temp", "", "client")

    run(test)


def test_a_client_does_not_listen() -> None:
    settings = RecoverySettings(zenoh_mode="client", zenoh_listen=("tcp/127.0.0.1:0",))
    with pytest.raises(InvalidConfig, match=r"recovery\.zenoh_mode = 'client'; name a router"):
        gateway_config(settings, Config().transport)


def _named(name: str, endpoint: str, links: tuple[str, ...] = ()) -> Config:
    made = config(zenoh_connect=(endpoint,), zenoh_pattern="plant/**")
    listen = (f"tcp://127.0.0.1:{free_port()}",)
    return replace(made, node=NodeSettings(name=name, listen=listen), links=LinkSettings(to=links))


@asynccontextmanager
async def _two_gateways(is_linked: bool) -> AsyncIterator[tuple[Peer, list[Node]]]:
    """A router, and two nodes in its network that know of each other."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    first = _named("first", endpoint)
    async with (
        Peer([endpoint], [], "router") as peer,
        build_node(first) as one,
        build_node(_named("second", endpoint, first.node.listen if is_linked else ())) as other,
    ):
        for node, name in ((one, "second"), (other, "first")):
            await _knows(node, name, is_linked)
        yield peer, [one, other]


async def _knows(node: Node, name: str, is_linked: bool) -> None:
    here = gateway(node).neighbours
    await until(lambda: name in here.present and (here.is_linked(name) or not is_linked))


@pytest.mark.parametrize("is_linked", [True, False])
def test_two_gateways_in_one_network_double_nothing(is_linked: bool) -> None:
    async def test() -> None:
        async with _two_gateways(is_linked) as (peer, nodes):
            heard: Counter[str] = Counter()
            await peer.subscriber("plant/*", lambda sample: heard.update([str(sample.key_expr)]))
            async with client(nodes[0]) as one, client(nodes[1]) as other:
                advanced = await peer.declare(
                    zenoh.ext.declare_advanced_publisher,
                    peer.session,
                    "plant/advanced",
                    congestion_control=BLOCK,
                    cache=zenoh.ext.CacheConfig(100),
                )
                for node in nodes:
                    await _reaches(peer, node)
                for _ in range(10):
                    await call(peer.session.put, "plant/plain", b"", congestion_control=BLOCK)
                    await call(advanced.put, b"")
                await one.publish_many("plant/one", [b""] * 10)
                await other.publish_many("plant/other", [b""] * 10)
                topics = ["advanced", "one", "other", "plain"]
                want = {f"plant/{name}": 10 for name in topics}
                await until(lambda: all(heard[topic] >= 10 for topic in want))
                for node in nodes:
                    await _has(node, dict.fromkeys(want, 10))
                await one.publish("plant/last", b"")
                for node in nodes:
                    await _has(node, {"plant/last": 1})
                assert {topic: heard[topic] for topic in want} == want
                for node in nodes:
                    assert {topic: _held(node, topic) for topic in want} == want

    run(test)


async def _reaches(peer: Peer, node: Node) -> None:
    """Return when samples of the peer reach a gateway, whether it takes them or leaves them to another one."""
    seen: list[object] = []
    add = gateway(node).queue.add

    def noted(samples: list[object]) -> None:
        seen.extend(samples)
        add(samples)  # type: ignore[arg-type]

    gateway(node).queue.add = noted  # type: ignore[method-assign, assignment]
    while not seen:
        await call(peer.session.put, "plant/canary/there", b"0")
        await asyncio.sleep(0.02)


async def _has(node: Node, counts: dict[str, int]) -> None:
    await until(lambda: all(_held(node, topic) >= count for topic, count in counts.items()))


def _held(node: Node, topic: str) -> int:
    return sum(seqs.count for (name, _), seqs in node.journal.ledger.published.items() if name == topic)
