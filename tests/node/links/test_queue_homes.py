"""A queue is on one node of a fabric, in virtual time: members that connect elsewhere are told where it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reknit.config import Config, JournalSettings, LinkSettings
from reknit.errors import Refused
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.nodes import FabricNode

PLAIN = Config(journal=JournalSettings(kind="memory"))
QUICK = LinkSettings(beat_s=0.2, timeout_s=2.0)


async def pair(fabric: Fabric, *, are_linked: bool = True) -> tuple[FabricNode, FabricNode]:
    one = await fabric.start_node("a", replace(PLAIN, links=QUICK))
    links = replace(QUICK, to=(one.url,)) if are_linked else QUICK
    return one, await fabric.start_node("b", replace(PLAIN, links=links))


def run(test: Any) -> None:
    with Fabric(seed=1) as fabric:
        fabric.run(fabric.host("operator").run(test(fabric)))


async def refusal(fabric: Fabric, node: FabricNode) -> str:
    async with fabric.session(node.url) as session:
        with pytest.raises(Refused) as refused:
            async with session.subscribe("jobs/**", queue="work"):
                pass
        return str(refused.value)


def test_member_that_connects_to_another_node_is_told_where_the_queue_is() -> None:
    async def test(fabric: Fabric) -> None:
        one, two = await pair(fabric)
        async with fabric.session(one.url) as session:
            async with session.subscribe("jobs/**", queue="work") as events:
                await asyncio.sleep(3.0)
                assert f"queue 'work' is on node 'a' ({one.url}): connect there" in await refusal(fabric, two)
            await asyncio.sleep(3.0)
            assert "on node 'a'" in await refusal(fabric, two), (
                "its events wait there, although nobody is connected"
            )
            await events.forget()
            await asyncio.sleep(3.0)
            async with fabric.session(two.url) as other, other.subscribe("jobs/**", queue="work"):
                pass

    run(test)


def test_events_of_all_nodes_come_to_the_queue() -> None:
    async def test(fabric: Fabric) -> None:
        one, two = await pair(fabric)
        async with (
            fabric.session(one.url) as here,
            fabric.session(two.url) as there,
            here.subscribe("jobs/**", queue="work") as events,
        ):
            await asyncio.sleep(3.0)
            await there.publish("jobs/a", b"1")
            assert (await anext(events)).payload == b"1"

    run(test)


def test_queue_that_two_nodes_opened_unlinked_goes_on_at_one_of_them() -> None:
    async def test(fabric: Fabric) -> None:
        one, two = await pair(fabric, are_linked=False)
        async with fabric.session(one.url) as here, fabric.session(two.url) as there:
            first = here.subscribe("jobs/**", queue="work")
            second = there.subscribe("jobs/**", queue="work")
            async with first as events, second as others:
                await here.ask("link_add", to=two.url)
                with pytest.raises(Refused, match="queue 'work' is on node 'a'"):
                    await anext(others)
                await here.publish("jobs/a", b"1")
                assert (await anext(events)).payload == b"1"
            assert "on node 'a'" in await refusal(fabric, two)

    run(test)


def test_node_that_restarts_knows_where_a_queue_is() -> None:
    async def test(fabric: Fabric) -> None:
        one = await fabric.start_node("a", replace(PLAIN, links=QUICK))
        two = await fabric.start_node("b", replace(Config(), links=replace(QUICK, to=(one.url,))))
        async with fabric.session(one.url) as session, session.subscribe("jobs/**", queue="work"):
            await asyncio.sleep(3.0)
        await two.stop()
        one.crash(is_power_lost=False)
        await two.start()
        assert "queue 'work' is on node 'a': connect there" in await refusal(fabric, two)

    run(test)
