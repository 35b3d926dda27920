"""A stuck event loop is noticed once, with the place where it is; a suspended process is not stuck."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from reknit.environment import Environment
from reknit.node import watchdog
from reknit.node.watchdog import LoopPulse, Watchdog


def looks(pulse: LoopPulse, begin: float, end: float) -> list[float]:
    """What a look every quarter of a second finds."""
    found, now = [], begin
    while now <= end:
        found.append(pulse.look(now))
        now += 0.25
    return [stuck_s for stuck_s in found if stuck_s]


def test_a_loop_that_beats_is_not_stuck() -> None:
    pulse = LoopPulse(0.0)
    for step in range(1, 100):
        pulse.beat(step / 4)
        assert pulse.look(step / 4 + 0.1) == 0.0


def test_a_stuck_loop_is_noticed_once_and_its_end_is_told() -> None:
    pulse = LoopPulse(0.0)
    assert looks(pulse, 0.25, 5.0) == [1.25]
    assert pulse.beat(5.5) == 5.5
    assert pulse.beat(5.75) == 0.0
    assert looks(pulse, 6.0, 8.0) == [1.25], "and again when it is stuck again"


def test_a_suspended_process_is_not_stuck() -> None:
    pulse = LoopPulse(0.0)
    assert looks(pulse, 0.25, 0.5) == []
    assert pulse.look(20.5) == 0.0, "the thread did not look either"
    assert pulse.beat(20.6) == 0.0
    assert pulse.look(20.75) == 0.0


def block_until(noticed: threading.Event) -> None:
    """Keep the event loop until somebody has noticed."""
    assert noticed.wait(60)


def test_the_place_where_the_loop_is_stuck_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "BEAT_S", 0.01)
    monkeypatch.setattr(watchdog, "STUCK_S", 0.2)
    noticed, lines = threading.Event(), list[str]()

    class Noticing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            noticed.set()

    handler = Noticing()

    async def test() -> None:
        dog = Watchdog()
        await dog.start()
        block_until(noticed)
        await dog.stop()

    watchdog.log.addHandler(handler)
    try:
        asyncio.run(test())
    finally:
        watchdog.log.removeHandler(handler)
    assert "is stuck" in lines[0]
    assert "block_until" in lines[0]


def test_there_is_no_watchdog_where_time_is_not_real() -> None:
    class Virtual(Environment):
        """As the simulator's."""

    async def test() -> None:
        before = threading.active_count()
        dog = Watchdog()
        await dog.start()
        assert threading.active_count() == before
        await dog.stop()

    Virtual().run(asyncio.run, test())
