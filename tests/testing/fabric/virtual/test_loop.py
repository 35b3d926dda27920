"""The event loop in virtual time: the order of callbacks, crashed and frozen hosts, deadlocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from reknit import environment
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.virtual.loop import Deadlock


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric() as made:
        yield made


def test_timers_of_the_same_moment_run_in_the_order_in_which_they_were_set(fabric: Fabric) -> None:
    ran: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(100):
            loop.call_at(5.0, ran.append, number)
        await asyncio.sleep(10.0)

    fabric.run(main())
    assert ran == list(range(100))
    assert fabric.loop.now == 10.0


def test_a_program_that_waits_for_nothing_is_reported(fabric: Fabric) -> None:
    with pytest.raises(Deadlock):
        fabric.run(asyncio.Event().wait())


def test_a_program_that_stops_the_time_is_reported(fabric: Fabric) -> None:
    """Seed 10435: a deadline of a group was due by one sum, and not yet by another, and its driver turned for ever."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_soon(again)

        again()
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="time stands still"):
        fabric.run(main())


def test_nothing_of_a_crashed_host_runs_any_more(fabric: Fabric) -> None:
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(fabric.loop.now)
            await asyncio.sleep(1.0)

    async def main() -> None:
        host = fabric.host("a")
        assert host.life is not None
        host.life.create_task(tick())
        await asyncio.sleep(2.5)
        host.crash(is_power_lost=False)
        await asyncio.sleep(10.0)

    fabric.run(main())
    assert ticks == [0.0, 1.0, 2.0]


def test_a_frozen_host_does_everything_later_and_in_order(fabric: Fabric) -> None:
    ticks: list[float] = []

    async def tick() -> None:
        for _ in range(3):
            ticks.append(fabric.loop.now)
            await asyncio.sleep(1.0)

    async def main() -> None:
        host = fabric.host("a")
        assert host.life is not None
        task = host.life.create_task(tick())
        await asyncio.sleep(0.5)
        host.life.freeze(20.0)
        await task

    fabric.run(main())
    assert ticks == [0.0, 20.5, 21.5]


def test_each_host_has_a_clock_of_its_own(fabric: Fabric) -> None:
    async def now_us() -> int:
        return environment.time_us()

    async def main() -> tuple[int, int]:
        one, two = fabric.host("a"), fabric.host("b")
        two.step_clock(-60.0)
        await asyncio.sleep(1.0)
        return await one.run(now_us()), await two.run(now_us())

    one_us, two_us = fabric.run(main())
    assert one_us - two_us == 60_000_000


def test_work_beside_the_loop_takes_virtual_time_only(fabric: Fabric) -> None:
    async def main() -> int:
        return await asyncio.to_thread(lambda: 42)

    assert fabric.run(main()) == 42
    assert fabric.loop.now > 0


def test_a_task_group_that_waits_for_ever_ends_with_the_simulation() -> None:
    ended: list[str] = []

    async def group() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.Event().wait())
        finally:
            ended.append("group")

    async def main() -> None:
        task = asyncio.create_task(group())
        await asyncio.sleep(1.0)
        assert not task.done()

    with Fabric() as made:
        made.run(main())
    assert ended == ["group"]
