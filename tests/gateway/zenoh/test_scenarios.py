"""The scenarios of zenoh-ext's tests/advanced.rs, with the gateway at one end and a real Zenoh session at the other.

Nothing is timed: before a cut the first sample has come, after it both ends have seen it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

zenoh = pytest.importorskip("zenoh")

from reknit.client.publish.publisher import Publisher  # noqa: E402
from reknit.client.session import Session  # noqa: E402
from reknit.client.subscribe.subscription import Subscription  # noqa: E402
from reknit.config import Config, JournalSettings, NodeSettings, RetentionSettings  # noqa: E402
from reknit.gateway.zenoh.threads import call  # noqa: E402
from reknit.node.node import Node  # noqa: E402
from reknit.processes.process import free_port  # noqa: E402
from reknit.server import build_node  # noqa: E402
from reknit.testing.tables import table_of, with_table  # noqa: E402
from tests.gateway.zenoh.network import KEY, Peer, Proxy, Received, gateway  # noqa: E402
from tests.node.fabric import Told, client, config, run, take, until  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PAGE = Path(__file__).parents[3] / "docs/reference/zenoh.md"
MARKS = ("<!-- scenarios: begin -->", "<!-- scenarios: end -->")
SOON_S = 0.1
LONG = 4_096
"""The length of a payload that fills a segment of the journal."""
RECOVER = zenoh.ext.RecoveryConfig(heartbeat=True)
ASK = zenoh.ext.RecoveryConfig(periodic_queries=timedelta(seconds=SOON_S))


class Network:
    """A node and a Zenoh session, with a proxy between them."""

    def __init__(self, node: Node, session: Session, peer: Peer, proxy: Proxy) -> None:
        self.node = node
        self.session = session
        self.peer = peer
        self._proxy = proxy

    async def cut(self) -> None:
        """Break the connection, and return when the peer knows."""
        await self._proxy.cut()
        while await self.peer.neighbours():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def heal(self) -> None:
        await self._proxy.heal()
        while not await self.peer.neighbours():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def network(
    prepare: Callable[[Peer], Awaitable[Any]] | None = None, settings: Config | None = None, **recovery: Any
) -> AsyncIterator[tuple[Network, Any]]:
    """The peer listens, and prepares something before the node joins it through the proxy."""
    port = free_port()
    async with Proxy(port) as proxy, Peer([f"tcp/127.0.0.1:{port}"], []) as peer:
        prepared = await prepare(peer) if prepare is not None else None
        made = config(zenoh_connect=(f"tcp/127.0.0.1:{proxy.port}",), **recovery)
        if settings is not None:
            node_settings = replace(made.node, data_dir=settings.node.data_dir)
            made = replace(made, retention=settings.retention, journal=settings.journal, node=node_settings)
        async with build_node(made) as node, client(node) as session:
            yield Network(node, session, peer, proxy), prepared


async def put(publisher: Any, *numbers: int) -> None:
    for number in numbers:
        await call(publisher.put, b"%d" % number)


@asynccontextmanager
async def from_zenoh(
    samples: int, lost: Told, **options: Any
) -> AsyncIterator[tuple[Network, Any, Subscription]]:
    """A Zenoh publisher, of which a reknit subscriber has the first sample; then the connection is cut."""
    recovery = {name: options.pop(name) for name in ("query_s", "again_s") if name in options}

    async def prepare(peer: Peer) -> Any:
        return await peer.advanced(samples, is_detected=False, **options)

    async with (
        network(prepare, **recovery) as (between, publisher),
        between.session.subscribe(KEY, history=True, on_lost=lost) as events,
    ):
        await between.peer.reaches(between.node)
        await put(publisher, 1)
        assert await take(events, 1) == [1]
        await between.cut()
        yield between, publisher, events


@asynccontextmanager
async def to_zenoh(
    received: Received,
    missed: list[int],
    settings: Config | None = None,
    heartbeat_s: float = 0.0,
    **options: Any,
) -> AsyncIterator[tuple[Network, Publisher]]:
    """A Zenoh subscriber that has the first event of a reknit publisher; then the connection is cut."""
    async with network(settings=settings, zenoh_heartbeat_s=heartbeat_s) as (between, _):
        await between.peer.advanced_subscriber(received, lambda miss: missed.append(miss.nb), **options)
        await between.peer.is_reached_by(between.session)
        publisher = between.session.publisher(KEY)
        await publisher.publish(b"1")
        await until(lambda: received.numbers == [1])
        await between.cut()
        yield between, publisher


def has_put(between: Network, count: int) -> bool:
    return gateway(between.node).put >= count


async def publish(between: Network, publisher: Publisher, *numbers: int, length: int = 1) -> None:
    """Publish each on its own, and return when the gateway has put them."""
    for number in numbers:
        before = gateway(between.node).put
        await publisher.publish(b"%0*d" % (length, number))
        await until(partial(has_put, between, before + 1))


async def history_in() -> None:
    async def prepare(peer: Peer) -> Any:
        publisher = await peer.advanced(3)
        await put(publisher, 1, 2, 3, 4)
        return publisher

    lost = Told()
    async with (
        network(prepare) as (between, publisher),
        between.session.subscribe(KEY, history=True, on_lost=lost) as events,
    ):
        assert await take(events, 3) == [2, 3, 4]
        await put(publisher, 5)
        assert await take(events, 1) == [5]
        assert lost.ranges == []


async def history_out() -> None:
    received = Received()
    async with network(history_events_max=3) as (between, _):
        await publish(between, between.session.publisher(KEY), 1, 2, 3, 4)
        await between.peer.is_reached_by(between.session)
        await between.peer.advanced_subscriber(received, history=zenoh.ext.HistoryConfig())
        await until(lambda: len(received.numbers) == 3)
        await between.session.publisher(KEY).publish(b"5")
        await until(lambda: len(received.numbers) == 4)
        assert sorted(received.numbers) == [2, 3, 4, 5]
        assert received.numbers[:3] == [2, 3, 4]


async def retransmission_in() -> None:
    lost = Told()
    async with from_zenoh(10, lost) as (between, publisher, events):
        await put(publisher, 2, 3, 4)
        await between.heal()
        await between.peer.reaches(between.node)
        await put(publisher, 5)
        assert await take(events, 4) == [2, 3, 4, 5]
        assert lost.ranges == []


async def retransmission_out() -> None:
    received, missed = Received(), list[int]()
    async with to_zenoh(received, missed, recovery=RECOVER) as (between, publisher):
        await publish(between, publisher, 2, 3, 4)
        await between.heal()
        await between.peer.is_reached_by(between.session)
        await publisher.publish(b"5")
        await until(lambda: len(received.numbers) >= 5)
        assert (received.numbers, missed) == ([1, 2, 3, 4, 5], [])


async def periodic_in() -> None:
    lost = Told()
    async with from_zenoh(10, lost, query_s=SOON_S) as (between, publisher, events):
        await put(publisher, 2, 3, 4)
        await between.heal()
        assert await take(events, 3) == [2, 3, 4]
        assert lost.ranges == []


async def periodic_out() -> None:
    received, missed = Received(), list[int]()
    async with to_zenoh(received, missed, recovery=ASK) as (between, publisher):
        await publish(between, publisher, 2, 3, 4)
        await between.heal()
        await until(lambda: len(received.numbers) >= 4)
        assert (received.numbers, missed) == ([1, 2, 3, 4], [])


async def heartbeat_in() -> None:
    lost = Told()
    async with from_zenoh(10, lost, heartbeat=SOON_S) as (between, publisher, events):
        await put(publisher, 2, 3, 4)
        await between.heal()
        assert await take(events, 3) == [2, 3, 4]
        assert lost.ranges == []


async def heartbeat_out() -> None:
    received, missed = Received(), list[int]()
    async with to_zenoh(received, missed, heartbeat_s=SOON_S, recovery=RECOVER) as (between, publisher):
        await publish(between, publisher, 2, 3, 4)
        await between.heal()
        await until(lambda: len(received.numbers) >= 4)
        assert (received.numbers, missed) == ([1, 2, 3, 4], [])


async def miss_in() -> None:
    lost = Told()
    async with from_zenoh(0, lost) as (between, publisher, events):
        await put(publisher, 2)
        await between.heal()
        await between.peer.reaches(between.node)
        await put(publisher, 3)
        assert await take(events, 1) == [3]
        await until(lambda: lost.ranges == [(2, 3)])


async def miss_out() -> None:
    received, missed = Received(), list[int]()
    async with to_zenoh(received, missed) as (between, publisher):
        await publish(between, publisher, 2)
        await between.heal()
        await between.peer.is_reached_by(between.session)
        await publisher.publish(b"3")
        await until(lambda: received.numbers == [1, 3])
        await until(lambda: missed == [1])  # it is told on another thread


async def retransmission_miss_in() -> None:
    lost = Told()
    async with from_zenoh(1, lost, query_s=SOON_S) as (between, publisher, events):
        await put(publisher, 2, 3, 4)
        await between.heal()
        assert await take(events, 1) == [4]
        await put(publisher, 5)
        assert await take(events, 1) == [5]
        await until(lambda: lost.ranges == [(2, 4)])


async def retransmission_miss_out() -> None:
    received, missed = Received(), list[int]()
    with TemporaryDirectory() as folder:
        settings = Config(
            node=NodeSettings(data_dir=Path(folder)),
            retention=RetentionSettings(count_max=1),
            journal=JournalSettings(segment_bytes=LONG),
        )
        await _only_the_newest_is_held(settings, received, missed)


async def _only_the_newest_is_held(settings: Config, received: Received, missed: list[int]) -> None:
    async with to_zenoh(received, missed, settings, recovery=ASK) as (between, publisher):
        await publish(between, publisher, 2, 3, 4, length=LONG)
        [source] = between.node.journal.sources(KEY)
        while between.node.journal.first_held(KEY, source) < 4:
            between.node.core.trim(asyncio.get_running_loop().time())
            await asyncio.sleep(0.01)
        await between.heal()
        await until(lambda: received.numbers == [1, 4])
        await publisher.publish(b"5")
        await until(lambda: received.numbers == [1, 4, 5])
        await until(lambda: missed == [2])


async def late_in() -> None:
    async with network() as (between, _), between.session.subscribe(KEY, history=True) as events:
        await between.cut()
        publisher = await between.peer.advanced(10)
        await put(publisher, 1, 2, 3)
        await between.heal()
        assert await take(events, 3) == [1, 2, 3]
        await put(publisher, 4)
        assert await take(events, 1) == [4]


async def late_out() -> None:
    received = Received()
    history = zenoh.ext.HistoryConfig(detect_late_publishers=True)
    async with network() as (between, _):
        await between.cut()
        await between.peer.advanced_subscriber(received, history=history)
        publisher = between.session.publisher(KEY)
        await publish(between, publisher, 1, 2, 3)
        await between.heal()
        await until(lambda: received.numbers == [1, 2, 3])
        await publisher.publish(b"4")
        await until(lambda: received.numbers == [1, 2, 3, 4])


Scenario = Callable[[], Coroutine[Any, Any, None]]
SCENARIOS: dict[str, tuple[str, Scenario, Scenario]] = {
    "history": (
        "a cache of 3, events 1 to 4, then the other end joins, then 5: it gets 2, 3, 4, 5",
        history_in,
        history_out,
    ),
    "retransmission": (
        "2, 3, 4 are put during a cut; 5 reveals the gap: 2, 3, 4, 5 come",
        retransmission_in,
        retransmission_out,
    ),
    "retransmission_periodic": (
        "the same with periodic queries: 2, 3, 4 come without 5",
        periodic_in,
        periodic_out,
    ),
    "retransmission_heartbeat": (
        "the same with heartbeats: 2, 3, 4 come without 5",
        heartbeat_in,
        heartbeat_out,
    ),
    "sample_miss": (
        "no recovery, 2 is put during a cut: 3 comes, and the loss of 2 is told",
        miss_in,
        miss_out,
    ),
    "retransmission_sample_miss": (
        "2, 3, 4 are put during a cut, and only 4 is still held: 4 and 5 come, and the loss of 2 and 3 is told",
        retransmission_miss_in,
        retransmission_miss_out,
    ),
    "late_joiner": (
        "1, 2, 3 are put while the ends are apart; they come before 4",
        late_in,
        late_out,
    ),
}


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_of_zenohs_advanced_publishers_and_subscribers(name: str, direction: str) -> None:
    _, into, out = SCENARIOS[name]
    run(into if direction == "in" else out)


def table(results: dict[str, tuple[str, str]]) -> str:
    """The table of the page: what became of each scenario in both directions."""
    rows = [
        f"| `test_advanced_{name}` | {what} | {' | '.join(results[name])} |"
        for name, (what, *_) in SCENARIOS.items()
    ]
    head = ["| Zenoh's test | what happens | Zenoh to reknit | reknit to Zenoh |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def test_the_page_lists_the_scenarios() -> None:
    assert table(dict.fromkeys(SCENARIOS, ("yes", "yes"))) == table_of(PAGE.read_text(), MARKS)


def result(scenario: Scenario) -> str:
    try:
        run(scenario)
    except (AssertionError, TimeoutError):
        return "no"
    return "yes"


if __name__ == "__main__":  # run all, and write the table
    found = {name: (result(into), result(out)) for name, (_, into, out) in SCENARIOS.items()}
    PAGE.write_text(with_table(PAGE.read_text(), MARKS, table(found), PAGE))
