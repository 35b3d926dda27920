"""How often an event was tried for one subscriber: kept only for events that did not end with the first attempt.

`acquired` counts hand-overs that came back without an end, `failed` those of them that count against the attempts
which are allowed. Both go on across a restart: a counter that is lost is a dead letter that never comes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from reknit.outcome import Outcome

__all__ = ["TRIES_MAX", "Tally", "Try"]

TRIES_MAX: Final = 16
"""So many of an event's attempts are remembered one by one, the newest; the counters know of all."""


class Try(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt that did not end an event: when its outcome came, and what it was.

    >>> Try(1_000_000, Outcome.FAILED, 14).outcome.name
    'FAILED'
    """

    time_us: int
    outcome: Outcome
    code: int = 0


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an event's attempts.

    >>> tally = Tally().tried(Try(5, Outcome.FAILED)).tried(Try(9, Outcome.RELEASED))
    >>> tally.acquired, tally.failed, len(tally.tries)
    (2, 1, 2)
    """

    acquired: int = 0
    failed: int = 0
    tries: tuple[Try, ...] = ()

    def tried(self, one: Try) -> Tally:
        """The tally after one more attempt.

        >>> Tally().tried(Try(5, Outcome.LEASE_LOST)).failed
        1
        """
        return Tally(self.acquired + 1, self.failed + one.outcome.counts, (*self.tries, one)[-TRIES_MAX:])
