"""Quotas of identities on a real node: at each the publisher waits, or is told which quota it is at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import reknit
from reknit.config import Config, JournalSettings, SecuritySettings
from reknit.errors import Refused
from reknit.node.node import Node
from reknit.outcome import Code
from tests.client.node_thread import ANY_PORT, serving
from tests.client.rpc.shared import run, until
from tests.tokens import write_tokens

pytestmark = pytest.mark.real

MEMORY = JournalSettings(kind="memory")
ALLOW = ("* publish plant/**", "* subscribe plant/**", "root admin", "root subscribe **")


@contextmanager
def limited(folder: Path, *quotas: str, **more: Any) -> Iterator[Node]:
    names = ("ann", "bob", "root")
    tokens = write_tokens(folder / "tokens", {name: f"{name}-token" for name in names})
    security = SecuritySettings(tokens_file=tokens, allow=ALLOW, quotas=quotas, audit="off")
    with serving(Config(node=ANY_PORT, journal=MEMORY, security=security, **more)) as node:
        yield node


def as_(who: str, node: Node, **more: Any) -> reknit.Session:
    return reknit.connect(node.urls[0], token=f"{who}-token", **more)


async def refusal(awaitable: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await awaitable
    return caught.value


def test_a_publisher_over_its_rate_waits_and_nothing_is_lost(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        async with as_("ann", node) as ann, as_("bob", node) as bob:
            slow = asyncio.gather(*(ann.publish_many("plant/a", [b"x"] * 400) for _ in range(4)))
            await until(lambda: node.figures.status()["quotas"].get("ann", {}).get("waits", 0) > 0)
            await bob.publish_many("plant/b", [b"x"] * 100_000)  # others do not wait
            await slow
        counts = {row["topic"]: row["events"] for row in node.figures.topics()}
        assert counts == {"plant/a": 1_600, "plant/b": 100_000}
        assert set(node.figures.status()["quotas"]) == {"ann"}

    with limited(tmp_path, "ann events_per_s=1000") as node:
        run(program(node))


def test_connections_are_counted_by_identity_and_freed(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        async with as_("ann", node), as_("ann", node), as_("bob", node), as_("bob", node), as_("bob", node):
            error = await refusal(as_("ann", node).open())
            assert error.code == Code.RESOURCE_EXHAUSTED
            assert "2" in error.text
            assert "connections" in error.text
            assert node.figures.status()["quotas"] == {"ann": {"connections": 2}}
        await until(lambda: not node.figures.status()["quotas"])
        async with as_("ann", node):
            pass
        assert node.gate.refusals.totals() == {"ann": {"quota": 1}}

    with limited(tmp_path, "ann connections=2") as node:
        run(program(node))


def test_subscriptions_and_durable_names_are_refused_with_the_quota(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        async with as_("ann", node) as ann, AsyncExitStack() as stack:
            await stack.enter_async_context(ann.subscribe("plant/**", name="one"))
            error = await refusal(stack.enter_async_context(ann.subscribe("plant/**", name="two")))
            assert (error.code, "durable names" in error.text) == (Code.RESOURCE_EXHAUSTED, True)
            for _ in range(2):
                await stack.enter_async_context(ann.subscribe("plant/**"))
            error = await refusal(stack.enter_async_context(ann.subscribe("plant/**")))
            assert (error.code, "subscriptions" in error.text) == (Code.RESOURCE_EXHAUSTED, True)
        async with as_("ann", node) as ann, ann.subscribe("plant/**", name="one"):
            pass  # a name that it has is not another one
        async with as_("bob", node) as bob, bob.subscribe("plant/**", name="bobs"):
            pass
        assert node.gate.refusals.totals() == {"ann": {"quota": 2}}
        assert set(node.journal.ledger.accounts) == {"one", "bobs"}

    with limited(tmp_path, "ann subscriptions=3 durable_names=1") as node:
        run(program(node))


def test_a_source_too_many_is_refused_and_known_ones_go_on(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        async with as_("ann", node) as ann:
            one = ann.publisher("plant/1")
            await one.publish(b"1")
            two = ann.publisher("plant/2")
            error = await refusal(two.publish(b"1"))
            assert (error.code, "sources" in error.text) == (Code.RESOURCE_EXHAUSTED, True)
            await one.publish(b"2")
            ann.router.publishers.clear()
        assert [row["topic"] for row in node.figures.topics()] == ["plant/1"]

    with limited(tmp_path, "ann sources=1") as node:
        run(program(node))


def test_who_fills_the_dead_letters_waits_and_others_on_the_same_topic_do_not(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        async with (
            as_("ann", node) as ann,
            as_("bob", node) as bob,
            as_("root", node) as root,
            root.subscribe("plant/**", name="strict", auto_accept=False) as events,
        ):
            await ann.publish_many("plant/a", [b"bad"] * 3)
            for _ in range(3):
                await (await anext(events)).reject(Code.INVALID_ARGUMENT, "bad")
            await until(lambda: bool(node.figures.status()["dead_letters"]["stopped"]))
            waiting = asyncio.ensure_future(ann.publish("plant/a", b"more"))
            await bob.publish("plant/a", b"good")
            assert not waiting.done()
            [(who, why)] = node.figures.status()["dead_letters"]["stopped"].items()
            assert (who, "redrive or drop" in why) == ("ann", True)
            await root.ask("drop_dead_letters", limit=1)
            await waiting

    with limited(tmp_path, "ann dead_letters=3") as node:
        run(program(node))


def test_without_rules_everybody_is_anonymous(tmp_path: Path) -> None:
    async def program(node: Node) -> None:
        url = node.urls[0]
        async with reknit.connect(url) as one:
            assert "anonymous" in (await refusal(reknit.connect(url).open())).text
            await one.publish("plant/a", b"x")

    security = SecuritySettings(quotas=("* connections=1",))
    with serving(Config(node=ANY_PORT, journal=MEMORY, security=security)) as node:
        run(program(node))


def test_without_quotas_nothing_is_counted() -> None:
    with serving() as node:
        assert (node.core.quotas, node.rates, node.gate.connections.is_on) == (None, None, False)
        assert node.figures.status()["quotas"] == {}
