"""The publishing window: what happens at its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reknit.client.publish.window import PublishWindow
from reknit.config import LimitSettings
from reknit.errors import Closed, Full
from reknit.protocol.publish.publisher import Connected, SourcePublisher
from reknit.wire.messages import Ack

SOURCE = b"s" * 16


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def made(waits: bool = True) -> tuple[SourcePublisher, PublishWindow]:
    machine = SourcePublisher(SOURCE, "plant/temp")
    machine.receive(Connected(), "node", 0.0)
    limits = LimitSettings(publish_window_bytes=1_000, publish_waiting_max=5)
    count = lambda: sum(batch.count for batch in machine.unacked)  # noqa: E731
    return machine, PublishWindow(machine, limits, waits=waits, count_unstored=count)


def test_events_that_wait_for_a_batch_count_too() -> None:
    _, window = made()
    assert not window.is_full(999)
    assert window.is_full(1_000)


def test_a_publisher_that_does_not_wait_gets_an_error() -> None:
    machine, window = made(waits=False)
    window.admit(0)
    machine.put([bytes(1_000)], time_us=0)
    with pytest.raises(Full, match="publish_window_bytes"):
        window.admit(0)


def test_calls_beyond_the_window_are_limited() -> None:
    machine, window = made()
    machine.put([bytes(1_000)], time_us=0)
    for _ in range(5):
        window.admit(0)
        machine.put([b"1"], time_us=0)
    with pytest.raises(Full, match="publish_waiting_max"):
        window.admit(0)


def test_waiters_are_woken_when_there_is_room() -> None:
    async def test() -> None:
        machine, window = made()
        machine.put([bytes(1_000)], time_us=0)
        machine.put([bytes(1_000)], time_us=0)
        waiting = window.wait()
        machine.receive(Ack(SOURCE, 1), "node", 0.0)
        window.acknowledged()
        assert not waiting.done()
        machine.receive(Ack(SOURCE, 2), "node", 0.0)
        window.acknowledged()
        await waiting

    run(test)


def test_a_failure_is_raised_in_every_waiter() -> None:
    async def test() -> None:
        _, window = made()
        waiting = window.wait()
        window.fail(Closed("the publisher"))
        with pytest.raises(Closed):
            await waiting

    run(test)
