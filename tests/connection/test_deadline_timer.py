"""The timer of a machine: when it fires, without waiting for it."""

from __future__ import annotations

import asyncio

from reknit.connection.deadline_timer import NEVER, DeadlineTimer


async def turns() -> None:
    """Yield to the event loop until every call that is due has run."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_it_fires_at_the_earliest_deadline_and_may_be_set_again() -> None:
    async def main() -> None:
        fired = asyncio.Event()
        timer = DeadlineTimer(fired.set)
        timer.set(1_000.0, now=0.0)
        assert timer.at == 1_000.0
        timer.set(2_000.0, now=0.0)
        assert timer.at == 1_000.0  # the earlier one stays
        timer.set(0.001, now=0.0)
        await fired.wait()
        assert timer.at == NEVER
        timer.set(5_000.0, now=0.001)
        assert timer.at == 5_000.0
        timer.cancel()

    asyncio.run(main())


def test_an_overdue_call_is_moved_to_the_deadline_that_is_known_now() -> None:
    async def main() -> None:
        fired: list[bool] = []
        timer = DeadlineTimer(lambda: fired.append(True))
        timer.set(1.0, now=1.0)  # due, but the loop has not come to it
        timer.set(1_000.0, now=2.0)
        assert timer.at == 1_000.0
        await turns()
        assert not fired
        timer.cancel()

    asyncio.run(main())


def test_a_cancelled_timer_does_not_fire() -> None:
    async def main() -> None:
        fired: list[bool] = []
        timer = DeadlineTimer(lambda: fired.append(True))
        timer.set(0.0, now=0.0)
        timer.cancel()
        await turns()
        assert not fired
        assert timer.at == NEVER

    asyncio.run(main())
