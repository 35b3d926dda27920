"""Where sources have been: remembered up to a limit, and never forgotten in silence."""

from __future__ import annotations

import asyncio

import pytest

from reknit.client.session import connect
from reknit.node.admin.metrics import NodeCollector
from reknit.node.node import Node
from reknit.node.replication.visited_nodes import VisitedNodes
from reknit.server import build_node
from reknit.wire.links import Via
from tests.node.anycast.test_gateway_api import config
from tests.node.node_processes import run, until

FIRST, SECOND, THIRD = b"1" * 16, b"2" * 16, b"3" * 16


def full() -> VisitedNodes:
    """A table that knows one source and has no room for another."""
    vias = VisitedNodes({}, lambda: None, sources_max=1)
    vias.learn(Via(FIRST, ["a"]))
    return vias


def test_a_source_past_the_limit_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    vias = full()
    assert not caplog.records
    for source in (SECOND, THIRD):
        vias.learn(Via(source, ["a"]))
    assert vias.status() == {"sources": 1, "forgotten": 2}
    [record] = caplog.records
    assert "more than 1 sources" in record.getMessage()


def test_what_is_known_is_brought_up_to_date_at_the_limit_too() -> None:
    vias = full()
    vias.learn(Via(FIRST, ["a", "b"]))
    assert vias.of([FIRST.hex(), SECOND.hex()]) == [["a", "b"], []]
    assert vias.forgotten == 0


async def figures(node: Node) -> dict[str, float]:
    """The bridges' metrics, as Prometheus gets them."""
    collector = NodeCollector(node.figures, asyncio.get_running_loop())
    metrics = await asyncio.to_thread(lambda: list(collector.collect()))
    samples = [sample for metric in metrics for sample in metric.samples]
    return {sample.name: sample.value for sample in samples if sample.name.startswith("reknit_bridge")}


def test_the_status_and_the_metrics_tell_of_it() -> None:
    async def test() -> None:
        async with build_node(config()) as node, connect(node.urls[0]) as session:
            node.bridges.visited = vias = full()
            session.connection.send(Via(SECOND, ["a"]))
            await until(lambda: vias.forgotten == 1)
            assert (await session.status())["bridges"] == {"sources": 1, "forgotten": 1}
            assert await figures(node) == {"reknit_bridge_sources": 1, "reknit_bridge_forgotten_total": 1}

    run(test)
