"""Code asks the environment in which it runs, and that of a context wins over the machine's."""

from __future__ import annotations

import asyncio
import threading

import pytest

from reknit import environment
from reknit.environment import Environment


class _Fixed(Environment):
    def time_us(self) -> int:
        return 42

    def token_bytes(self, size: int) -> bytes:
        return bytes(size)


def test_without_a_context_the_machine_is_asked() -> None:
    assert environment.time_us() > 1_700_000_000_000_000
    assert environment.token_bytes(16) != environment.token_bytes(16)


def test_tasks_that_are_started_in_an_environment_run_in_it() -> None:
    async def inner() -> tuple[int, str]:
        await asyncio.sleep(0)
        return environment.time_us(), environment.token_hex(2)

    async def outer() -> tuple[int, str]:
        return await _Fixed().run(lambda: asyncio.create_task(inner()))

    assert asyncio.run(outer()) == (42, "0000")
    assert environment.time_us() != 42


@pytest.mark.real
def test_a_worker_does_its_work_in_order_beside_the_loop() -> None:
    done: list[tuple[int, str]] = []

    async def main() -> None:
        worker = environment.current().start_worker("a worker")
        for number in range(3):
            worker.put(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc]
        await worker.stop()

    asyncio.run(main())
    assert done == [(0, "a worker"), (1, "a worker"), (2, "a worker")]
