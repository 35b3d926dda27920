"""Publish until acknowledged: the driver's messages, and the callers that it wakes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from reknit.connection.publish_driver import PublishDriver
from reknit.errors import Closed, Refused
from reknit.frame import Buffer
from reknit.outcome import Code
from reknit.protocol.publish.publisher import Connected, Disconnected, SourcePublisher
from reknit.wire.messages import Ack, Declare, Message, Refuse

SOURCE = b"s" * 16


class Output:
    """A connection that remembers what was sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.buffers: list[Buffer] = []

    def send(self, *messages: Message) -> None:
        self.messages += messages

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self.buffers += buffers


class Made:
    """A driver, and everything that it said."""

    def __init__(self, lasting: bool = False) -> None:
        self.output = Output()
        self.stored: list[int] = []
        self.numbered = 0
        self.driver = PublishDriver(
            SourcePublisher(SOURCE, "plant/temp", lasting),
            self.output,
            on_refused=lambda error: self.driver.fail(error),
            on_stored=self.stored.append,
            on_numbered=self._numbered,
        )

    def _numbered(self) -> None:
        self.numbered += 1

    def put(self, *payloads: bytes) -> bytes:
        batch = self.driver.machine.put(payloads, time_us=0)
        self.driver.perform()
        return bytes(batch.data)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def test_batches_are_resent_after_a_reconnection_until_they_are_acknowledged() -> None:
    async def test() -> None:
        made = Made()
        first = made.put(b"1")
        assert made.output.buffers == []  # nobody is there yet
        made.driver.receive(Connected())
        second = made.put(b"2")
        assert made.output.buffers == [first, second]
        made.driver.receive(Ack(SOURCE, 1))
        made.driver.receive(Disconnected())
        made.driver.receive(Connected())
        assert made.output.buffers == [first, second, second]
        assert made.stored == [2]
        assert made.driver.first_unacked == 2

    run(test)


def test_a_waiter_is_woken_when_everything_before_it_is_stored() -> None:
    async def test() -> None:
        made = Made()
        made.driver.receive(Connected())
        waiting = []
        for payload in (b"1", b"2"):
            made.put(payload)
            waiting.append(asyncio.ensure_future(made.driver.flush()))
            await asyncio.sleep(0)
        made.driver.receive(Ack(SOURCE, 1))
        await waiting[0]
        assert not waiting[1].done()
        assert not made.driver.is_idle
        made.driver.receive(Ack(SOURCE, 2))
        await waiting[1]
        assert made.driver.is_idle
        await made.driver.flush()  # at once: nothing is left

    run(test)


def test_a_waiter_that_gave_up_harms_nobody() -> None:
    async def test() -> None:
        made = Made()
        made.driver.receive(Connected())
        made.put(b"1")
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        made.driver.wait(futures)
        futures[0].cancel()
        made.driver.receive(Ack(SOURCE, 1))
        await futures[1]

    run(test)


def test_a_lasting_source_learns_its_next_seq_from_the_node() -> None:
    async def test() -> None:
        made = Made(lasting=True)
        numbered = asyncio.ensure_future(made.driver.numbered())
        made.driver.receive(Connected())
        await asyncio.sleep(0)
        assert made.output.messages == [Declare(SOURCE, "plant/temp")]
        assert not numbered.done()
        made.driver.receive(Ack(SOURCE, 41))
        await numbered
        assert made.driver.machine.next_seq == 42
        assert made.numbered == 1

    run(test)


def test_a_refusal_is_raised_in_everyone_who_waits_and_afterwards() -> None:
    async def test() -> None:
        made = Made()
        made.driver.receive(Connected())
        made.put(b"1")
        waiting = asyncio.ensure_future(made.driver.flush())
        await asyncio.sleep(0)
        made.driver.receive(Refuse(SOURCE, 1, 2, Code.PERMISSION_DENIED, "not here"))
        for awaitable in (waiting, made.driver.flush()):
            with pytest.raises(Refused, match="not here"):
                await awaitable

    run(test)


def test_nobody_waits_for_a_number_that_never_comes() -> None:
    async def test() -> None:
        made = Made(lasting=True)
        numbered = asyncio.ensure_future(made.driver.numbered())
        await asyncio.sleep(0)
        made.driver.fail(Closed("the session"))
        with pytest.raises(Closed):
            await numbered
        await made.driver.numbered()  # at once: `error` says why

    run(test)


def test_without_an_event_loop_it_needs_a_clock() -> None:
    output = Output()
    refused: list[Refused] = []
    driver = PublishDriver(
        SourcePublisher(SOURCE, "plant/temp"), output, on_refused=refused.append, clock=lambda: 0.0
    )
    driver.receive(Connected())
    batch = driver.machine.put([b"1"], time_us=0)
    driver.perform()
    assert output.buffers == [batch.data]
    driver.receive(Ack(SOURCE, 1))
    assert not driver.machine.unacked
    assert not refused
