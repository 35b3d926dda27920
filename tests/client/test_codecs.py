"""Values in place of payloads: what is published with a codec is received as the same values, or rejected."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec
import pytest

import reknit
from reknit.client.options import PublisherKeywords, PublisherOptions, SubscribeKeywords, SubscribeOptions
from reknit.dead_letter import read_letter
from tests.client.node_thread import run


class Order(msgspec.Struct):
    number: int
    item: str = "tea"


@dataclass
class Reading:
    celsius: float


class Model:
    """As a pydantic model: `model_dump_json` and `model_validate_json`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def model_dump_json(self) -> str:
        return f'"{self.name}"'

    @classmethod
    def model_validate_json(cls, data: bytes) -> Model:
        if not data.startswith(b'"'):
            raise ValueError("1 validation error for Model")
        return cls(data.decode().strip('"'))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.name == other.name


ROUND: list[tuple[Any, Any, str]] = [
    (reknit.JSON, {"a": [1, None]}, "application/json"),
    (reknit.MsgPack, {"a": b"\xff"}, "application/msgpack"),
    (Order, Order(7), "application/json"),
    (reknit.MsgPack.of(Order), Order(7), "application/msgpack"),
    (Reading, Reading(21.5), "application/json"),
    (list[Order], [Order(1), Order(2)], "application/json"),
    (Model, Model("seven"), "application/json"),
]


@pytest.mark.real
def test_what_is_published_with_a_codec_arrives_as_the_same_value(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            for number, (codec, value, content_type) in enumerate(ROUND):
                topic = f"c/{number}"
                async with session.subscribe(topic, codec=codec) as events:
                    publisher = session.publisher(topic, codec=codec)
                    await publisher.publish(value, headers={"n": "1"}, key="k")
                    await publisher.publish_many([value], headers=[{"n": "2"}])
                    await publisher.send(value)
                    await session.publish(topic, value, codec=codec)
                    await session.publish_many(topic, [value], codec=codec)
                    got = [await anext(events) for _ in range(5)]
                assert [event.payload for event in got] == [value] * 5
                assert [event.headers.get("n") for event in got] == ["1", "2", None, None, None]
                assert {event.headers["content-type"] for event in got} == {content_type}
                assert got[0].key == "k"

    run(program())


@pytest.mark.real
def test_what_does_not_decode_is_a_dead_letter_with_the_reason_and_the_rest_goes_on(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            async with session.subscribe("c/orders", name="shop", codec=Order) as orders:
                await session.publish_many(
                    "c/orders", [b'{"number":1}', b'{"number":"x"}', b"{", b'{"number":4}']
                )
                assert [(await anext(orders)).payload.number for _ in range(2)] == [1, 4]
                assert orders.rejected == 2
            async with session.subscribe("reknit/dead-letters", history=True) as letters:
                texts = [read_letter((await anext(letters)).payload).text for _ in range(2)]
            assert "JSON of Order: Expected `int`, got `str`" in texts[0]
            assert "JSON of Order: Input data was truncated" in texts[1]
            [row] = await session.ledger("c/orders")
            assert (row["accepted"], row["dead_lettered"], row["in_flight"]) == (2, 2, 0)

    run(program())


@pytest.mark.real
def test_a_blocking_session_takes_the_same_codecs(url: str) -> None:
    with reknit.connect_sync(url) as session:
        with session.subscribe("c/orders", codec=Order) as orders:
            session.publisher("c/orders", codec=Order).publish(Order(1), headers={"a": "1"})
            session.publish("c/orders", Order(2), codec=Order)
            session.publish("c/orders", b"no order")
            session.publisher("c/orders", codec=Order).publish_many([Order(3)])
            numbers = {}
            for order in orders:
                numbers[order.payload.number] = order.headers
                if len(numbers) == 3:
                    break
            assert orders.rejected <= 1
        assert numbers[1] == {"content-type": "application/json", "a": "1"}
        assert set(numbers) == {1, 2, 3}


@pytest.mark.real
def test_a_value_of_another_type_is_refused_where_it_is_published(url: str) -> None:
    async def program() -> None:
        async with reknit.connect(url) as session:
            publisher = session.publisher("c/orders", codec=Order)
            wrong: Any
            for wrong in (Reading(1.0), {"number": 1}):
                with pytest.raises(reknit.InvalidPayload, match="takes Order"):
                    publisher.publish(wrong)
            with pytest.raises(reknit.InvalidPayload, match="can't be written as JSON"):
                session.publish("c/orders", object(), codec=reknit.JSON)
            with pytest.raises(reknit.InvalidPayload, match="publish_many takes a list"):
                publisher.publish_many(wrong)
            codec: Any = "json"
            with pytest.raises(reknit.LocalError, match="Invalid codec 'json'"):
                session.publisher("c/orders", codec=codec)
            with pytest.raises(reknit.LocalError, match="Invalid codec 'json'"):
                session.subscribe("c/orders", codec=codec)

    run(program())


@pytest.mark.real
def test_leaving_a_typed_subscription_by_an_error_leaves_its_event_unsettled(url: str) -> None:
    async def fail_at_the_first(session: reknit.Session) -> None:
        async with session.subscribe("c/orders", name="shop", codec=Order) as orders:
            async for order in orders:
                raise KeyError(order.payload.number)

    async def program() -> None:
        async with reknit.connect(url) as session:
            publisher = session.publisher("c/orders", codec=Order)
            async with session.subscribe("c/orders", name="shop", codec=Order) as orders:
                await asyncio.gather(publisher.publish(Order(1)), publisher.publish(Order(2)))
                assert (await anext(orders)).payload == Order(1)
                await orders.pause()
                assert orders.is_paused
                await orders.resume()
            with pytest.raises(KeyError):
                await fail_at_the_first(session)
            async with session.subscribe("c/orders", name="shop", codec=Order) as orders:
                assert (await anext(orders)).payload == Order(2)

    run(program())


def test_the_keywords_for_type_checkers_are_the_options() -> None:
    assert get_type_hints(SubscribeKeywords) == get_type_hints(SubscribeOptions)
    named = {"resend_released": bool, "outcome": bool}
    assert {**get_type_hints(PublisherKeywords), **named} == get_type_hints(PublisherOptions)
