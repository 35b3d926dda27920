"""The attempts at an event for one subscriber. They are stored only for events that did not end at the first attempt.

`acquired` counts deliveries that came back without ending the event; `failed` counts those of them that use up one of
the allowed attempts, and `crashed` those that ended with the subscriber's process. All continue across a restart: with a
lost counter, an event would never be dead-lettered.
"""

from __future__ import annotations

from typing import Final

import msgspec

from reknit.outcome import Outcome

__all__ = ["TRIES_MAX", "Attempt", "AttemptCount"]

TRIES_MAX: Final = 16
"""How many of an event's attempts are stored one by one, the newest. The counters include all of them."""


class Attempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt that did not end an event: the time of its outcome, and the outcome.

    >>> Attempt(1_000_000, Outcome.FAILED, 14).outcome.name
    'FAILED'
    """

    time_us: int
    outcome: Outcome
    code: int = 0


class AttemptCount(msgspec.Struct, frozen=True, array_like=True):
    """How often an event was attempted, and its last attempts.

    >>> count = AttemptCount().tried(Attempt(5, Outcome.FAILED)).tried(Attempt(9, Outcome.RELEASED))
    >>> count.acquired, count.failed, len(count.tries)
    (2, 1, 2)
    """

    acquired: int = 0
    failed: int = 0
    tries: tuple[Attempt, ...] = ()
    crashed: int = 0

    def tried(self, one: Attempt) -> AttemptCount:
        """The count after one more attempt.

        >>> AttemptCount().tried(Attempt(5, Outcome.LEASE_LOST)).failed
        1
        """
        return AttemptCount(
            self.acquired + 1,
            self.failed + one.outcome.counts,
            (*self.tries, one)[-TRIES_MAX:],
            self.crashed + (one.outcome is Outcome.CRASHED),
        )
