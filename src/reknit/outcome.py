"""Outcomes of events, and the reasons for them.

An attempt has an `Outcome`, and an event may have many attempts. A pair of event and subscriber has one `FinalOutcome`.
The set of `Reason`s is closed, so that programs can compare them; each has the google.rpc `Code` that RPC peers expect.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

__all__ = ["CODE_OF", "Code", "FinalOutcome", "Outcome", "Reason", "code_name"]


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


def code_name(code: int) -> str:
    """The name of a google.rpc code, as errors print it; a peer may send a number that has no name.

    >>> code_name(7), code_name(99)
    ('PERMISSION_DENIED', 'code 99')
    """
    return _NAMES.get(code, f"code {code}")


_NAMES = {int(code): code.name for code in Code}


class Outcome(IntEnum):
    """The outcome of one attempt, as a subscriber or a path reports it.

    >>> print(Outcome.ACCEPTED, f"{Outcome.RELEASED:>9}", Outcome.RELEASED.is_final, Outcome.RELEASED.counts)
    ACCEPTED  RELEASED False False
    """

    ACCEPTED = 1
    """The event was processed."""
    RELEASED = 2
    """The event was not processed: try the next path. This does not count as a failed attempt."""
    FAILED = 3
    """Processing failed: deliver the event again after a back-off."""
    REJECTED = 4
    """The event can never be processed: dead-letter it."""
    MODIFIED = 5
    """AMQP: released, and counted as a failed attempt."""
    RECEIVED = 6
    """Processing takes longer: renew the lease."""
    LEASE_LOST = 7
    """The lease ran out; counts as a failed attempt. Only a node reports this, never a subscriber."""
    CRASHED = 8
    """The subscriber's process ended while it had only this event. Only a node reports this; it is counted apart."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, form: str) -> str:
        return format(self.name, form)

    @property
    def is_final(self) -> bool:
        """True if no further attempt follows.

        >>> [outcome.name for outcome in Outcome if outcome.is_final]
        ['ACCEPTED', 'REJECTED']
        """
        return self in (Outcome.ACCEPTED, Outcome.REJECTED)

    @property
    def counts(self) -> bool:
        """True if it uses up one of the allowed attempts.

        >>> [outcome.name for outcome in Outcome if outcome.counts]
        ['FAILED', 'MODIFIED', 'LEASE_LOST']
        """
        return self in (Outcome.FAILED, Outcome.MODIFIED, Outcome.LEASE_LOST)


class FinalOutcome(IntEnum):
    """How an event ended for a subscriber. Each pair of event and subscriber ends once.

    >>> [outcome.name for outcome in FinalOutcome]
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
    """It failed as often as the configuration allows."""
    CRASHED = "crashed"
    """The process of its subscriber ended too often while it had only this event."""
    REJECTED = "rejected"
    """The subscriber refused it permanently."""
    NO_ROUTE = "no_route"
    """No path leads to a subscriber that would take it."""
    MALFORMED = "malformed"
    """It could not be read."""
    DENIED = "denied"
    """The publisher or the subscriber lacks the permission."""
    UNAUTHENTICATED = "unauthenticated"
    """The sender is not the one that it claims to be."""
    INTERNAL = "internal"
    """A fault in reknit itself."""
    RETENTION = "retention"
    """Retention removed it before it was delivered."""
    GONE = "gone"
    """Nobody has it any more, and retention did not remove it here: a node forgot it, or caches let go of it."""
    DAMAGED = "damaged"
    """Its bytes in the journal are damaged: a file was changed, or the disk returns other bytes than were written."""

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
    Reason.CRASHED: Code.ABORTED,
    Reason.REJECTED: Code.FAILED_PRECONDITION,
    Reason.NO_ROUTE: Code.UNAVAILABLE,
    Reason.MALFORMED: Code.INVALID_ARGUMENT,
    Reason.DENIED: Code.PERMISSION_DENIED,
    Reason.UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Reason.INTERNAL: Code.INTERNAL,
    Reason.RETENTION: Code.DATA_LOSS,
    Reason.GONE: Code.DATA_LOSS,
    Reason.DAMAGED: Code.DATA_LOSS,
}
"""The code of each reason. A subscriber that rejects an event may give another code instead."""
