"""What may be a payload, and what goes along with it: keys, headers, a ttl, a priority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import reknit
from reknit.config import Config, LimitSettings
from tests.client.node_thread import run

pytestmark = pytest.mark.real

NO_PAYLOADS: list[Any] = [5, True, None, 21.5, {}, {"temp": 21.5}, [1, 2], object(), "\ud800"]


async def received(session: reknit.Session, pattern: str, count: int) -> list[reknit.Event]:
    async with session.subscribe(pattern, history=True) as events:
        return [await anext(events) for _ in range(count)]


def test_a_value_that_is_no_payload_is_refused_and_nothing_is_stored(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            publisher = session.publisher("p/a")
            outcomes = session.publisher("p/c", outcome=True)
            calls: list[Callable[[Any], object]] = [
                lambda value: session.publish("p/b", value),
                lambda value: session.publish_many("p/b", [b"1", value]),
                publisher.publish,
                publisher.send,
                lambda value: publisher.publish_many([value], keys=["k"]),
                outcomes.publish,
            ]
            for value in NO_PAYLOADS:
                for call in calls:
                    with pytest.raises(reknit.InvalidPayload, match="Invalid payload"):
                        call(value)
            await session.publish("p/b", b"good")
            assert [event.payload for event in await received(session, "p/*", 1)] == [b"good"]

    run(program())


def test_many_payloads_are_not_made_of_one(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            values: list[Any] = ["hello", b"hello", bytearray(b"hello"), {"a": 1}, 5]
            for value in values:
                with pytest.raises(TypeError, match="publish_many takes a list"):
                    session.publish_many("p/b", value)
                with pytest.raises(TypeError, match="publish_many takes a list"):
                    session.publisher("p/b").publish_many(value, keys=["a"])

    run(program())


def test_a_blocking_session_refuses_the_same_values(url: str) -> None:
    with reknit.connect_sync(url) as session:
        for value in NO_PAYLOADS:
            with pytest.raises(reknit.InvalidPayload):
                session.publish("p/b", value)
        with pytest.raises(reknit.InvalidPayload):
            session.publish_many("p/b", "hello")


@pytest.mark.parametrize("name", ["", "sensor"])
def test_every_way_to_publish_takes_keys_headers_and_a_ttl(url: str, name: str) -> None:
    """Also in a named session, before the node has told where the source got to."""

    async def program() -> None:
        async with reknit.connect(url, name=name) as session:
            publisher = session.publisher("p/b")
            calls = [
                publisher.publish(b"0"),
                publisher.publish(b"1", key="k", headers={"a": "1"}, ttl_ms=60_000),
                publisher.publish_many([b"2", b"3"], keys=["k2", "k3"], headers=[{"a": "2"}, {"a": "3"}]),
                publisher.publish_many([b"4", b"5"], headers={"a": "all"}, ttl_ms=70_000),
                publisher.publish_many([b"6"]),
            ]
            await publisher.send(b"7", headers={"a": "7"})
            await asyncio.gather(*calls, publisher.flush())
            events = await received(session, "p/b", 8)
            assert [event.payload for event in events] == [b"%d" % n for n in range(8)]
            headers = [{}, {"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "all"}, {"a": "all"}, {}, {"a": "7"}]
            assert [event.headers for event in events] == headers
            assert [event.ttl_ms for event in events] == [0, 60_000, 0, 0, 70_000, 70_000, 0, 0]
            assert [event.key for event in events] == ["", "k", "k2", "k3", "", "", "", ""]

    run(program())


def test_events_of_another_priority_have_a_source_of_their_own(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url, name="sensor") as session:
            await session.publish("p/b", b"1", headers={"a": "1"}, key="k", ttl_ms=60_000)
            await session.publish_many("p/b", [b"2"], priority=5)
            await session.publish("p/b", b"3", priority=1)
            one, two, three = await received(session, "p/b", 3)
            assert (one.headers, one.key, one.ttl_ms) == ({"a": "1"}, "k", 60_000)
            assert [event.batch.head.priority for event in (one, two, three)] == [1, 5, 1]
            assert one.source == three.source != two.source

    run(program())


def test_a_blocking_session_publishes_the_same_fields(url: str) -> None:
    with reknit.connect_sync(url) as session:
        session.publish("p/b", b"1", headers={"a": "1"}, key="k", ttl_ms=60_000, priority=5)
        publisher = session.publisher("p/c")
        publisher.send(b"0")
        publisher.publish_many([b"1", b"2"], ["x", "y"], headers={"a": "all"})
        with session.subscribe("p/*", history=True) as events:
            found = {
                event.payload + event.topic.encode(): event for event in (next(events) for _ in range(4))
            }
    one = found[b"1p/b"]
    assert (one.headers, one.key, one.ttl_ms, one.batch.head.priority) == ({"a": "1"}, "k", 60_000, 5)
    assert [found[b"%dp/c" % n].key for n in range(3)] == ["", "x", "y"]


BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"priority": 9}, "Invalid priority 9"),
    ({"priority": True}, "Invalid priority True"),
    ({"ttl_ms": -1}, "Invalid ttl_ms -1"),
    ({"ttl_ms": 1 << 32}, "Invalid ttl_ms"),
    ({"ttl_ms": 1.5}, "Invalid ttl_ms 1.5"),
    ({"headers": {"a": 1}}, "Invalid header 'a': 1"),
    ({"headers": "a"}, "Invalid headers 'a'"),
    ({"key": 7}, "Invalid key 7"),
    ({"key": "k" * 100_000}, "too large: 100000 bytes"),
    ({"headers": {"a": "h" * 100_000}}, "too large: 100003 bytes"),
]


def test_fields_are_checked_where_they_are_given(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            for fields, complaint in BAD_FIELDS:
                with pytest.raises(reknit.LocalError, match=complaint):
                    session.publish("p/b", b"1", **fields)
            with pytest.raises(reknit.LocalError, match="1 payloads have 2 keys"):
                session.publish_many("p/b", [b"1"], keys=["a", "b"])
            await session.publish("p/b", b"good")
            [event] = await received(session, "p/b", 1)
            assert (event.payload, event.headers) == (b"good", {})

    run(program())


def test_a_publisher_with_a_bad_ttl_or_priority_is_refused(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            with pytest.raises(reknit.LocalError, match="Invalid priority"):
                session.publisher("p/b", priority=9)
            with pytest.raises(reknit.LocalError, match="Invalid ttl_ms"):
                session.publisher("p/b", ttl_ms=-1)

    run(program())


def test_long_headers_are_split_into_batches_that_a_connection_takes(url: str) -> None:
    limits = LimitSettings(
        frame_bytes_max=64 * 1024, payload_bytes_max=8_000, headers_bytes_max=8_000, batch_bytes=32 * 1024
    )

    async def program() -> None:
        async with reknit.connect(url, config=Config(limits=limits)) as session:
            headers = [{"n": str(n), "long": "h" * 7_900} for n in range(40)]
            await session.publisher("p/b").publish_many([b"x"] * 40, headers=headers)
            events = await received(session, "p/b", 40)
            assert [event.headers["n"] for event in events] == [str(n) for n in range(40)]
            assert max(event.batch.head.length for event in events) < 64 * 1024

    run(program())


def test_columns_are_decoded_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, list[Any]] = {"headers": [{"n": str(n)} for n in range(100)], "time": list(range(100))}
    batch = reknit.Batch.build(bytes(16), "a", 1, [b"x"] * 100, time_us=0, columns=columns)
    decoded: list[reknit.Batch] = []
    decode = reknit.Batch.columns

    def columns_of(self: reknit.Batch) -> dict[str, list[Any]]:
        decoded.append(self)
        return decode(self)

    monkeypatch.setattr(reknit.Batch, "columns", columns_of)
    events = batch.events()
    assert [(event.headers["n"], event.time_us) for event in events] == [(str(n), n) for n in range(100)]
    assert len(decoded) == 1
