"""When to retry: full jitter under a ceiling that doubles."""

from __future__ import annotations

from random import Random

from reknit.backoff import Backoff
from reknit.protocol.dispatch.retry import Retry


def test_delays_are_anything_up_to_the_ceiling() -> None:
    policy, rng = Retry(1.0, 8.0), Random(1)
    for attempt, ceiling in ((1, 1.0), (2, 2.0), (4, 8.0), (50, 8.0)):
        delays = [policy.delay_s(attempt, rng) for _ in range(2000)]
        assert 0.0 <= min(delays) < 0.05 * ceiling
        assert 0.95 * ceiling < max(delays) <= ceiling
        assert 0.45 * ceiling < sum(delays) / len(delays) < 0.55 * ceiling


def test_code_with_its_own_back_off_uses_that() -> None:
    policy = Retry(1.0, 8.0, codes={14: Backoff(100.0, 400.0)})
    assert [policy.ceiling_s(attempt, 14) for attempt in (1, 2, 3, 4)] == [100.0, 200.0, 400.0, 400.0]
    assert policy.ceiling_s(1, 13) == 1.0


def test_attempts_are_unlimited_unless_a_limit_is_set() -> None:
    assert not Retry().is_exhausted(10**9)
    assert Retry(attempts_max=3).is_exhausted(3)
    assert not Retry(attempts_max=3).is_exhausted(4, attempts_max=5)
