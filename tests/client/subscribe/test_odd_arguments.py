"""A number that no message can have is refused where the application says it: its connection stays."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from reknit.errors import LocalError
from tests.node.fabric import TOPIC, client, fabric, run

pytestmark = pytest.mark.real


def test_odd_codes_and_delays_are_refused_and_the_event_can_still_be_settled() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session, session.subscribe(TOPIC) as events:
            await session.publish(TOPIC, b"1")
            event = await anext(events)
            for code in (-1, 17, 500):
                with pytest.raises(LocalError, match=r"google\.rpc codes are from 0 to 16"):
                    await event.reject(code)
            for delay_s in (-1.0, math.nan, math.inf):
                with pytest.raises(LocalError, match="Invalid delay_s"):
                    await event.fail(delay_s)
            await event.accept()

    run(test)


@pytest.mark.parametrize("history", [-1, -0.5, math.nan, timedelta(seconds=-1)])
def test_a_negative_history_is_refused(history: int | float | timedelta) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            with pytest.raises(LocalError, match="Invalid history"):
                async with session.subscribe(TOPIC, history=history):
                    pass

    run(test)


@pytest.mark.parametrize("history", [1 << 70, math.inf, timedelta.max])
def test_a_history_longer_than_any_is_everything(history: int | float | timedelta) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            await session.publish(TOPIC, b"1")
            async with session.subscribe(TOPIC, history=history) as events:
                assert (await anext(events)).payload == b"1"

    run(test)
