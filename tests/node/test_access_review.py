"""What a live connection may no longer do ends at once, with the reason; everything else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from reknit import environment
from reknit.client.subscribe.subscription import Subscription
from reknit.config import TopicSettings
from reknit.errors import Refused, ReknitError
from reknit.node.node import Node
from reknit.outcome import Code
from reknit.server import build_node
from reknit.topic import Pattern
from tests.guarded_files import GuardedFiles
from tests.node.fabric import client, config, run, until

pytestmark = pytest.mark.real

SECRETS = {name: f"{name}-token" for name in ("ann", "bob", "root")}
RULES = (
    "ann publish **",
    "ann subscribe plant/**",
    "ann subscribe office/**",
    "bob subscribe **",
    "root admin",
)


class Guarded:
    """A node whose rules and tokens are in files."""

    def __init__(self, folder: Path) -> None:
        self.files = GuardedFiles(folder, SECRETS, *RULES)
        shared = TopicSettings(pattern=Pattern("jobs/**"), distribution="balanced")
        self.node: Node = build_node(replace(self.files.guard(config()), topics=(shared,)))

    def change(self, *rules: str) -> None:
        """New rules, on request."""
        self.files.allow(*rules)
        self.node.reloader.reload()


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Guarded]:
    made = Guarded(folder)
    async with made.node:
        yield made


async def end_of(events: Subscription) -> Refused:
    """Why a subscription ended."""
    with pytest.raises(Refused) as refused:
        async with asyncio.timeout(120):
            await anext(events)
    return refused.value


def test_a_subscription_that_lost_its_rule_ends_and_others_of_its_connection_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as made, client(made.node, token="ann-token") as ann:
            with suppress(ReknitError):  # what the node ended can't be left properly
                async with (
                    ann.subscribe("plant/*") as plant,
                    ann.subscribe("office/*", name="desk") as office,
                ):
                    connection = next(iter(made.node.peers)).connection
                    made.change("ann publish **", "ann subscribe office/**")
                    ended = await end_of(plant)
                    assert ended.code == Code.PERMISSION_DENIED
                    assert ended.text == "ann may not subscribe to 'plant/*' (the rules have changed)"
                    await ann.publish("plant/1", b"unseen")
                    await ann.publish("office/1", b"seen")
                    assert (await anext(office)).payload == b"seen"
                    assert next(iter(made.node.peers)).connection is connection

    run(test)


def test_a_subscription_that_shares_events_ends_as_well(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as made, client(made.node, token="bob-token") as bob:
            with suppress(ReknitError):
                async with bob.subscribe("jobs/*") as jobs:
                    assert len(made.node.anycast.subscriptions) == 1
                    made.change("ann publish **")
                    assert (await end_of(jobs)).code == Code.PERMISSION_DENIED
                    assert len(made.node.anycast.subscriptions) == 0

    run(test)


def test_a_publisher_that_lost_its_rule_is_refused_with_its_next_event(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as made, client(made.node, token="ann-token") as ann:
            publisher = ann.publisher("plant/1")
            await publisher.publish(b"before")
            made.change("ann publish office/**")
            with pytest.raises(Refused) as refused:
                await publisher.publish(b"after")
            assert refused.value.code == Code.PERMISSION_DENIED
            assert made.node.journal.status().events == 1
            with suppress(Refused):
                await publisher.close()

    run(test)


def test_a_revoked_token_disconnects_whoever_has_presented_it_and_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with (
            guarded(tmp_path) as made,
            client(made.node, token="ann-token") as ann,
            client(made.node, token="bob-token") as bob,
            bob.subscribe("**") as seen,
        ):
            await ann.publish("plant/1", b"1")
            staying = next(peer for peer in made.node.peers if peer.identity == "bob")
            made.files.tokens({"bob": "bob-token", "ann": "another"})
            made.node.reloader.reload()
            await until(lambda: [peer.identity for peer in made.node.peers if peer.is_welcome] == ["bob"])
            assert next(peer for peer in made.node.peers if peer.identity == "bob") is staying
            told = "closed the connection: the token 'ann' of ann was revoked"
            await until(lambda: told in caplog.text and "this token is not known here" in caplog.text)
            assert (await anext(seen)).payload == b"1"
            async with client(made.node, token="another") as again:
                await again.publish("plant/1", b"2")
            assert (await anext(seen)).payload == b"2"

    run(test)


def test_a_token_that_expires_ends_its_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as made:
            made.files.tokens(SECRETS, environment.time_us() + 2_000_000)
            made.node.reloader.reload()
            async with client(made.node, token="ann-token"):
                await until(lambda: "closed the connection: the token 'ann' of ann expired at" in caplog.text)
                assert not [peer for peer in made.node.peers if peer.identity == "ann"]

    run(test)


def test_rules_that_are_not_valid_end_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with (
            guarded(tmp_path) as made,
            client(made.node, token="ann-token") as ann,
            ann.subscribe("plant/*") as plant,
        ):
            made.change("ann subscribes plant/**")
            assert "the list of rules stays as it was" in caplog.text
            await ann.publish("plant/1", b"1")
            assert (await anext(plant)).payload == b"1"

    run(test)


def test_a_linked_node_that_is_no_admin_any_more_is_dismissed(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path) as made:
            there = config()
            there = replace(there, security=replace(there.security, token="root-token"))
            there = replace(there, links=replace(there.links, to=(made.node.urls[0],)))
            there = replace(there, node=replace(there.node, name="there"))
            async with build_node(there):
                await until(lambda: any(peer.id in made.node.links for peer in made.node.peers))
                made.change("ann publish **")
                await until(lambda: not any(peer.id in made.node.links for peer in made.node.peers))

    run(test)
