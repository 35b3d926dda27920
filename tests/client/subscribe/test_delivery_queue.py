"""Batches that the application has not taken yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reknit.batch import Batch
from reknit.client.subscribe.delivery_queue import DeliveryQueue
from reknit.delivery import Delivery
from reknit.errors import Closed, Refused
from reknit.outcome import Code


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def batch(first: int, source: bytes = b"s" * 16, ordered_to: int = 0) -> Batch:
    made = Batch.build(source, "plant/temp", first, [b"x"], time_us=0)
    return made.delivered(Delivery(ordered_to=ordered_to))


def test_a_reader_waits_for_the_next_batch() -> None:
    async def test() -> None:
        queue = DeliveryQueue()
        reading = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0)
        assert not reading.done()
        queue.add([batch(1), batch(2)])
        assert [(await reading).first, (await queue.take()).first] == [1, 2]

    run(test)


def test_what_came_before_the_end_is_read_first() -> None:
    async def test() -> None:
        queue = DeliveryQueue()
        queue.add([batch(1)])
        queue.end(Refused(Code.PERMISSION_DENIED, "not yours"))
        queue.end(Closed("the subscription"))  # only the first reason counts
        assert (await queue.take()).first == 1
        with pytest.raises(Refused, match="not yours"):
            await queue.take()

    run(test)


def test_a_subscription_that_was_closed_ends_without_an_error() -> None:
    async def test() -> None:
        queue = DeliveryQueue()
        reading = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0)
        queue.end(Closed("the subscription"))
        with pytest.raises(StopAsyncIteration):
            await reading

    run(test)


def test_batches_behind_a_redelivered_one_leave_the_queue() -> None:
    queue = DeliveryQueue()
    given_back = batch(1, ordered_to=4)
    others = [batch(2), batch(2, b"o" * 16), batch(3), batch(4)]
    queue.add(others)
    assert queue.remove_behind(given_back) == [others[0], others[2]]
    assert queue.clear() == [others[1], others[3]]
    assert len(queue) == 0


def test_what_the_node_took_back_is_removed() -> None:
    queue = DeliveryQueue()
    queue.add([batch(1), batch(2), batch(2, b"t" * 16), batch(3)])
    removed = queue.remove_revoked(("plant/temp", b"s" * 16), 2, 4)
    assert [one.first for one in removed] == [2, 3]
    assert [(one.source[:1], one.first) for one in queue.clear()] == [(b"s", 1), (b"t", 2)]
