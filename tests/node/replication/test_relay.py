"""Relays: publisher → node → node that relays it → subscriber, on one loop."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from reknit.batch import Batch
from reknit.config import Config, NodeSettings, RecoverySettings
from reknit.errors import InvalidConfig
from reknit.node.node import Node
from reknit.node.replication.relay import parse_relay
from reknit.processes.process import free_port
from reknit.server import build_node, make_relay
from tests.node.fabric import QUICK, TOPIC, client, config, fabric, numbers, run, take, until

pytestmark = pytest.mark.real


def test_a_relay_keeps_events_with_their_source_and_seq() -> None:
    async def test() -> None:
        async with (
            fabric() as [origin],
            fabric(config(relays=(origin.urls[0],))) as [relay],
            client(origin) as session,
            client(relay) as reader,
        ):
            async with reader.subscribe("plant/**", history=True) as events:
                publisher = session.publisher(TOPIC)
                await publisher.publish_many(numbers(1, 1001))
                event = await anext(events)
                assert (event.source, event.seq, event.payload) == (publisher.source, 1, b"1")
                assert await take(events, 999) == list(range(2, 1001))
            rows = await session.ledger()
            assert [row["balanced"] for row in rows] == [True]

    run(test)


def test_a_relay_takes_only_what_matches_its_pattern() -> None:
    async def test() -> None:
        async with (
            fabric() as [origin],
            fabric(config(relays=(f"{origin.urls[0]}=plant/**",))) as [relay],
            client(origin) as session,
            client(relay) as reader,
        ):
            await session.publish("office/light", b"0")
            await session.publish(TOPIC, b"1")
            async with reader.subscribe("**", history=True) as events:
                assert await take(events, 1) == [1]

    run(test)


def test_what_was_published_while_the_relay_was_apart_comes_when_it_is_back(tmp_path: Path) -> None:
    async def test() -> None:
        port = free_port()
        async with AsyncExitStack() as stack:
            [origin] = await stack.enter_async_context(fabric())
            settings = Config(
                node=NodeSettings(name="relay", data_dir=tmp_path, listen=(f"tcp://127.0.0.1:{port}",)),
                transport=QUICK,
                recovery=RecoverySettings(relays=(origin.urls[0],)),
            )
            relay = build_node(settings)
            await relay.start()
            session = await stack.enter_async_context(client(origin))
            reader = await stack.enter_async_context(client(relay))
            events = await stack.enter_async_context(reader.subscribe("plant/**"))
            publisher = session.publisher(TOPIC)
            await publisher.publish_many(numbers(1, 11))
            assert await take(events, 10) == list(range(1, 11))
            await relay.stop()
            await publisher.publish_many(numbers(11, 1001))
            relay = build_node(settings)
            await relay.start()
            stack.push_async_callback(relay.stop)
            await publisher.publish(b"1001")
            assert await take(events, 991) == list(range(11, 1002))

    run(test)


def test_a_relay_that_forgot_everything_recovers_from_its_origin_for_its_subscribers() -> None:
    async def test() -> None:
        port = free_port()
        async with AsyncExitStack() as stack:
            [origin] = await stack.enter_async_context(fabric())
            relay = build_node(config(port, relays=(origin.urls[0],)))
            await relay.start()
            session = await stack.enter_async_context(client(origin))
            reader = await stack.enter_async_context(client(relay))
            events = await stack.enter_async_context(reader.subscribe("plant/**"))
            publisher = session.publisher(TOPIC, cache=False)
            await publisher.publish(b"1")
            assert await take(events, 1) == [1]
            reader.connection.drop()  # the subscriber is apart while the relay takes these, and forgets them
            await publisher.publish_many(numbers(2, 501))
            await until(lambda: _is_settled(origin))
            await relay.stop()
            relay = build_node(config(port, relays=(origin.urls[0],)))
            await relay.start()
            stack.push_async_callback(relay.stop)
            await publisher.publish(b"501")
            assert await take(events, 500) == list(range(2, 502))

    run(test)


def _is_settled(node: Node) -> bool:
    return all(row.in_flight == 0 for row in node.journal.ledger.rows())


def test_a_hole_in_the_relay_is_filled_from_the_origins_journal() -> None:
    async def test() -> None:
        async with fabric() as [origin], client(origin) as session:
            publisher = session.publisher(TOPIC, cache=False)
            await publisher.publish_many(numbers(1, 101))
            async with session.subscribe("**", name="relay/test/**", history=True) as before:
                await take(before, 100)  # an earlier relay of that name took these, and its journal is gone
            port = free_port()
            async with fabric(config(port)) as [alone], client(alone) as feeder:
                early = Batch.build(publisher.source, TOPIC, 1, numbers(1, 11), 0)
                feeder.connection.send_buffers([early.data])
                await until(lambda: alone.journal.end > 0)
                relay = make_relay(alone, origin.urls[0])
                await relay.start()
                await publisher.publish(b"101")
                async with feeder.subscribe(TOPIC, history=True) as events:
                    assert await take(events, 101) == list(range(1, 102))
                await relay.stop()

    run(test)


def test_a_relay_counts_as_a_cache_for_put_replies() -> None:
    async def test() -> None:
        async with fabric() as [origin], client(origin) as session:
            publisher = session.publisher(TOPIC, stored_by=2)
            kept = publisher.publish(b"1")
            await until(lambda: origin.journal.status().events == 1)
            await session.status()  # an ack for the event would have come before the answer
            assert not kept.done()
            async with fabric(config(relays=(origin.urls[0],))):
                await kept

    run(test)


@pytest.mark.parametrize("text", ["", "plant/**", "tcp://127.0.0.1:7440=a//b"])
def test_what_is_no_relay_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="relay"):
        parse_relay(text)
