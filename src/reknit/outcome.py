"""What became of an event: the answer to one attempt, the end of it all, and why.

An attempt has an `Outcome`, and an event may have many attempts. A pair of event and subscriber has one
`End`. A `Reason` is closed, so that a program can read it, and each has the google.rpc `Code` that RPC peers
expect.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

__all__ = ["CODE_OF", "Code", "End", "Outcome", "Reason"]


class Code(IntEnum):
    """The google.rpc codes.

    >>> Code(8)
    <Code.RESOURCE_EXHAUSTED: 8>
    """

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Outcome(IntEnum):
    """What a subscriber, or a path, said about one attempt.

    >>> Outcome.RELEASED.is_final, Outcome.RELEASED.counts
    (False, False)
    """

    ACCEPTED = 1
    """Done."""
    RELEASED = 2
    """Not for me: try the next path. The event was not looked at, so this is no failed attempt."""
    FAILED = 3
    """I tried and could not: hand it over again after a back-off."""
    REJECTED = 4
    """Never try this again: a dead letter."""
    MODIFIED = 5
    """Released with a change for the next attempt, which counts as failed (AMQP)."""
    RECEIVED = 6
    """Still at it: the lease is extended."""
    LEASE_LOST = 7
    """Held past its lease without a word: counts as failed. The node says this, never a subscriber."""

    @property
    def is_final(self) -> bool:
        """True if no further attempt follows.

        >>> [outcome.name for outcome in Outcome if outcome.is_final]
        ['ACCEPTED', 'REJECTED']
        """
        return self in (Outcome.ACCEPTED, Outcome.REJECTED)

    @property
    def counts(self) -> bool:
        """True if it uses up one of the attempts that are allowed.

        >>> [outcome.name for outcome in Outcome if outcome.counts]
        ['FAILED', 'MODIFIED', 'LEASE_LOST']
        """
        return self in (Outcome.FAILED, Outcome.MODIFIED, Outcome.LEASE_LOST)


class End(IntEnum):
    """How a pair of event and subscriber ended; each ends once.

    >>> [end.name for end in End]
    ['ACCEPTED', 'DEAD_LETTERED', 'LOST']
    """

    ACCEPTED = 1
    DEAD_LETTERED = 2
    LOST = 3


class Reason(StrEnum):
    """Why an event ended undelivered. The set is closed; text for people goes beside it.

    >>> Reason("expired").code
    <Code.DEADLINE_EXCEEDED: 4>
    """

    EXPIRED = "expired"
    """Its ttl ran out."""
    EGRESS_FULL = "egress_full"
    """The subscriber's queue was at its limit."""
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    """It failed as often as is allowed."""
    REJECTED = "rejected"
    """The subscriber refused it for good."""
    NO_ROUTE = "no_route"
    """No path leads to anyone who would take it."""
    MALFORMED = "malformed"
    """It could not be read."""
    DENIED = "denied"
    """The publisher or the subscriber may not."""
    UNAUTHENTICATED = "unauthenticated"
    """Who sent it is not who it says."""
    INTERNAL = "internal"
    """A fault of reknit's own."""
    RETENTION = "retention"
    """Retention removed it before it was delivered."""

    @property
    def code(self) -> Code:
        """The google.rpc code that goes with the reason.

        >>> Reason.EGRESS_FULL.code.name
        'RESOURCE_EXHAUSTED'
        """
        return CODE_OF[self]


CODE_OF: dict[Reason, Code] = {
    Reason.EXPIRED: Code.DEADLINE_EXCEEDED,
    Reason.EGRESS_FULL: Code.RESOURCE_EXHAUSTED,
    Reason.ATTEMPTS_EXHAUSTED: Code.ABORTED,
    Reason.REJECTED: Code.FAILED_PRECONDITION,
    Reason.NO_ROUTE: Code.UNAVAILABLE,
    Reason.MALFORMED: Code.INVALID_ARGUMENT,
    Reason.DENIED: Code.PERMISSION_DENIED,
    Reason.UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Reason.INTERNAL: Code.INTERNAL,
    Reason.RETENTION: Code.DATA_LOSS,
}
"""The code of each reason. A subscriber that rejects may name another one instead."""
