"""Which call waits for the outcome of which events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reknit.client.publish.outcome_tracker import OutcomeTracker
from reknit.errors import Closed, Full, Rejected, Released
from reknit.outcome import Outcome
from reknit.wire.outcomes import PathThere, RangeOutcome, Told

SOURCE = b"s" * 16


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def told(*rows: tuple[int, int, Outcome]) -> Told:
    return Told(SOURCE, [RangeOutcome(start, stop, int(outcome)) for start, stop, outcome in rows])


def tracker(waiting_max: int = 100) -> OutcomeTracker:
    return OutcomeTracker("orders/x", SOURCE, waiting_max)


def test_a_call_ends_when_all_of_its_events_have_an_outcome() -> None:
    async def test() -> None:
        made = tracker()
        one, two = made.add(0, 2), made.add(2, 3)
        made.number(11, 5)
        assert made.unresolved == 5
        made.receive(told((12, 15, Outcome.ACCEPTED)))
        assert not one.done()
        made.receive(told((11, 12, Outcome.ACCEPTED)))
        assert await one is Outcome.ACCEPTED
        assert not two.done()
        made.receive(told((15, 16, Outcome.ACCEPTED)))
        assert await two is Outcome.ACCEPTED
        assert made.unresolved == 0

    run(test)


def test_the_error_is_that_of_the_worst_outcome_and_says_which_events() -> None:
    async def test() -> None:
        made = tracker()
        call = made.add(0, 4)
        made.number(1, 4)
        made.receive(told((1, 2, Outcome.RELEASED), (2, 3, Outcome.REJECTED), (3, 5, Outcome.ACCEPTED)))
        with pytest.raises(Rejected) as caught:
            await call
        assert (caught.value.start, caught.value.stop) == (2, 3)

    run(test)


def test_an_outcome_that_is_reported_twice_counts_once() -> None:
    async def test() -> None:
        made = tracker()
        call = made.add(0, 2)
        made.number(1, 2)
        made.receive(told((1, 2, Outcome.RELEASED)))
        made.receive(told((1, 2, Outcome.ACCEPTED)))
        assert not call.done()
        made.receive(told((2, 3, Outcome.ACCEPTED)))
        with pytest.raises(Released):
            await call

    run(test)


def test_progress_is_not_an_outcome() -> None:
    async def test() -> None:
        made = tracker()
        made.add(0, 1)
        made.number(1, 1)
        made.receive(told((1, 2, Outcome.RECEIVED)))
        assert made.unresolved == 1

    run(test)


def test_on_a_topic_without_distribution_stored_is_accepted() -> None:
    async def test() -> None:
        made = tracker()
        call = made.add(0, 1)
        made.number(1, 1)
        made.stored(2)
        assert not call.done()
        made.path_changed(PathThere(SOURCE, is_there=True, is_journal=True))
        made.stored(2)
        assert await call is Outcome.ACCEPTED

    run(test)


def test_the_number_of_events_without_an_outcome_is_limited() -> None:
    async def test() -> None:
        made = tracker(waiting_max=3)
        made.add(0, 3)
        with pytest.raises(Full, match="publish_waiting_max"):
            made.add(3, 1)

    run(test)


def test_a_failure_is_raised_in_every_call_and_every_waiter() -> None:
    async def test() -> None:
        made = tracker()
        sent = made.add(0, 1)
        made.number(1, 1)
        unsent = made.add(0, 1)
        waiting = asyncio.ensure_future(made.changed())
        await asyncio.sleep(0)
        made.fail(Closed("the publisher"))
        for awaitable in (sent, unsent, waiting):
            with pytest.raises(Closed):
                await awaitable

    run(test)
