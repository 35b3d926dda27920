"""Failed attempts slow down an address, and nobody else; memory and work have limits."""

from __future__ import annotations

import pytest

from reknit import environment
from reknit.trust import attempts as trust
from reknit.trust.attempts import COUNTED_MAX, FORGIVE_S, FREE, WAIT_S_MAX, WAITING_MAX, FailedAttempts


class Clock(environment.Environment):
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def waits(attempts: FailedAttempts, count: int, address: str = "192.0.2.7") -> list[float | None]:
    found = []
    for _ in range(count):
        found.append(attempts.failed(address, "http"))
        attempts.answered(address)
    return found


def test_the_first_are_free_and_then_each_waits_twice_as_long_up_to_a_limit() -> None:
    def test() -> None:
        attempts = FailedAttempts()
        assert waits(attempts, FREE) == [0.0] * FREE
        assert waits(attempts, 6) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, WAIT_S_MAX])
        assert waits(attempts, 50) == [WAIT_S_MAX] * 50
        assert waits(attempts, 1, "192.0.2.8") == [0.0], "another address does not wait"

    Clock().run(test)


def test_an_address_is_forgiven_within_a_minute_whatever_it_did() -> None:
    clock = Clock()

    def test() -> None:
        attempts = FailedAttempts()
        waits(attempts, 10_000)
        assert attempts.before("192.0.2.7") == WAIT_S_MAX
        clock.now += FORGIVE_S * (COUNTED_MAX - FREE)
        assert attempts.before("192.0.2.7") == 0.0
        assert clock.now - 1_000 < 60

    clock.run(test)


def test_only_so_many_refusals_of_an_address_wait_at_a_time() -> None:
    def test() -> None:
        attempts = FailedAttempts()
        waits(attempts, COUNTED_MAX)
        assert [attempts.failed("192.0.2.7", "tcp") for _ in range(WAITING_MAX)] == [WAIT_S_MAX] * WAITING_MAX
        assert attempts.failed("192.0.2.7", "tcp") is None
        assert attempts.before("192.0.2.7") is None
        assert attempts.totals()["dropped"] == 2
        attempts.answered("192.0.2.7")
        assert attempts.failed("192.0.2.7", "tcp") == WAIT_S_MAX

    Clock().run(test)


def test_only_so_many_addresses_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "ADDRESSES_MAX", 100)
    attempts = FailedAttempts()
    waits(attempts, COUNTED_MAX)
    for number in range(1_000):
        attempts.failed(f"198.51.{number // 250}.{number % 250}", "tcp")
    assert attempts.totals() == {
        "failed": {"http": COUNTED_MAX, "tcp": 1_000},
        "slowed": COUNTED_MAX - FREE,
        "dropped": 0,
        "addresses": 100,
    }
    attempts.answered("192.0.2.7")
    assert attempts.before("192.0.2.7") == 0.0


def test_a_network_of_ipv6_is_one_address_and_a_mapped_one_is_that_of_ipv4() -> None:
    def test() -> None:
        attempts = FailedAttempts()
        for number in range(COUNTED_MAX):
            attempts.failed(f"2001:db8::{number:x}", "tcp")
        assert attempts.before("2001:db8::ffff") == WAIT_S_MAX
        assert attempts.before("2001:db8:0:1::1") == 0.0
        for _ in range(COUNTED_MAX):
            attempts.failed("::ffff:192.0.2.1", "tcp")
        assert attempts.before("192.0.2.1") == WAIT_S_MAX

    Clock().run(test)


def test_asking_about_an_address_without_failures_is_not_remembered() -> None:
    attempts = FailedAttempts()
    assert attempts.before("192.0.2.7") == 0.0
    assert attempts.totals()["addresses"] == 0
