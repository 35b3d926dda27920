"""How often, and for how long, a recovered event is tried: the node's rules, as the node told the subscriber.

The node did not deliver these events, so it can't count their attempts. The subscriber does, by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reknit.batch import Batch
from reknit.outcome import Code, Reason
from reknit.protocol.ttl import overdue_of
from reknit.seqset import Range
from reknit.topic import Pattern
from reknit.wire.messages import Handling

NO_HANDLING: Final = Handling("**")


class RetryRules:
    """The rules for one subscription's recovered events.

    >>> rules = RetryRules([Handling("plant/**", attempts_max=2)], never=[3])
    >>> rules.last("plant/a", 1, 0), rules.last("plant/a", 2, 14), rules.last("else", 9, 0)
    (None, (<Reason.ATTEMPTS_EXHAUSTED: 'attempts_exhausted'>, '2 attempts failed'), None)
    >>> rules.last("else", 1, 3)
    (<Reason.REJECTED: 'rejected'>, 'INVALID_ARGUMENT is never retried')
    """

    def __init__(self, handling: Sequence[Handling] = (), never: Sequence[int] = ()) -> None:
        self._rules = [(Pattern(one.pattern), one) for one in handling]
        self._default = (
            handling[-1] if handling and handling[-1].pattern == NO_HANDLING.pattern else NO_HANDLING
        )
        """For all topics that no rule is about."""
        self._never = frozenset(never)

    def of(self, topic: str) -> Handling:
        """The rule of a topic."""
        return next((one for pattern, one in self._rules if pattern.matches(topic)), self._default)

    def last(self, topic: str, failed: int, code: int) -> tuple[Reason, str] | None:
        """Why this failed attempt was the last one; None if there is another."""
        if code in self._never:
            return Reason.REJECTED, f"{Code(code).name} is never retried"
        if 0 < self.of(topic).attempts_max <= failed:
            return Reason.ATTEMPTS_EXHAUSTED, f"{failed} attempts failed"
        return None

    def overdue(self, batch: Batch, now_us: int) -> list[Range]:
        """Which events of a batch are past their ttl: they are not tried again."""
        return overdue_of(batch, self.of(batch.topic).ttl_ms, now_us)
