"""A step of the time of day is logged once, with its size."""

from __future__ import annotations

import pytest

from reknit.environment import Environment
from reknit.node.clock_watch import ClockWatch


class Machine(Environment):
    day_s, elapsed_s = 1_700_000_000.0, 100.0

    def time_us(self) -> int:
        return int(self.day_s * 1e6)

    def elapsed(self) -> float:
        return self.elapsed_s

    def wait(self, seconds: float) -> None:
        self.day_s += seconds
        self.elapsed_s += seconds


@pytest.mark.parametrize(("step_s", "words"), [(86_400.0, "forward by 86400.0 s"), (-7.5, "back by 7.5 s")])
def test_a_step_is_logged_once(caplog: pytest.LogCaptureFixture, step_s: float, words: str) -> None:
    machine = Machine()
    watch = machine.run(ClockWatch)
    machine.wait(0.5)
    machine.run(watch.check, 0.0)
    assert caplog.messages == []
    machine.day_s += step_s
    for _ in range(3):
        machine.wait(0.5)
        machine.run(watch.check, 0.0)
    [line] = caplog.messages
    assert words in line


def test_small_corrections_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    watch = machine.run(ClockWatch)
    for _ in range(100):
        machine.wait(0.5)
        machine.day_s += 0.05
        machine.run(watch.check, 0.0)
    assert caplog.messages == []
