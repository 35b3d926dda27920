"""Virtual time."""

from reknit.testing.clock import START_US, Clock


def test_actions_run_by_time_and_then_in_the_order_of_their_creation() -> None:
    clock = Clock()
    seen: list[str] = []
    for name, due in (("c", 2.0), ("a", 1.0), ("b", 1.0)):
        clock.at(due, lambda name=name: seen.append(name))  # type: ignore[misc]
    clock.run(5.0)
    assert seen == ["a", "b", "c"]


def test_clock_is_at_the_end_of_the_run() -> None:
    clock = Clock()
    clock.run(3.0)
    assert clock.now == 3.0
    assert clock.now_us() == START_US + 3_000_000


def test_an_action_can_schedule_another() -> None:
    clock = Clock()
    times: list[float] = []

    def again() -> None:
        times.append(clock.now)
        clock.after(1.0, again)

    clock.after(1.0, again)
    clock.run(3.5)
    assert times == [1.0, 2.0, 3.0]


def test_a_cancelled_action_does_not_run() -> None:
    clock = Clock()
    seen: list[int] = []
    clock.after(1.0, lambda: seen.append(1)).cancel()
    clock.run(2.0)
    assert seen == []


def test_run_can_end_early() -> None:
    clock = Clock()
    seen: list[int] = []
    for due in (1.0, 2.0, 3.0):
        clock.at(due, lambda: seen.append(1))
    clock.run(10.0, lambda: len(seen) == 2)
    assert clock.now == 2.0


def test_next_due_passes_over_cancelled_actions() -> None:
    clock = Clock(100.0)
    first = clock.after(1.0, lambda: None)
    clock.after(2.0, lambda: None)
    assert clock.next_due() == 101.0
    first.cancel()
    assert clock.next_due() == 102.0
    clock.run(110.0)
    assert (clock.next_due(), clock.now, clock.steps) == (None, 110.0, 1)
