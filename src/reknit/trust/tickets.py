"""Tickets: let a page open one stream, where a browser can't send a token in a header.

A ticket stands in a URL, and URLs end up in logs and histories: so it lives for seconds, counts once, and is worth no
more than the identity that asked for it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final, NamedTuple

from reknit import environment
from reknit.errors import LocalError
from reknit.trust.identities import Identity, Unauthenticated
from reknit.trust.tokens import digest_of

LIFE_S: Final = 30.0
TICKETS_MAX: Final = 10_000
TICKETS_EACH_MAX: Final = 1_000
"""Tickets that wait to be used by one identity."""
SECRET_BYTES: Final = 32


class _Ticket(NamedTuple):
    identity: Identity
    expires_at: float


class TooManyTickets(LocalError):
    """As many tickets as there may be wait to be used.

    >>> print(TooManyTickets())
    too many tickets wait to be used: use them, or wait half a minute
    """

    def __str__(self) -> str:
        return "too many tickets wait to be used: use them, or wait half a minute"


class Tickets:
    """The tickets of one node.

    >>> tickets = Tickets()
    >>> ticket = tickets.issue(Identity("ann", "token", "laptop"))
    >>> tickets.redeem(ticket).name
    'ann'
    """

    def __init__(self) -> None:
        self._tickets: OrderedDict[bytes, _Ticket] = OrderedDict()
        """By hash, the oldest first."""
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tickets)

    def issue(self, identity: Identity) -> str:
        """A new ticket. Raises `TooManyTickets`."""
        self._forget_old()
        if len(self._tickets) >= TICKETS_MAX or self._counts[identity.name] >= TICKETS_EACH_MAX:
            raise TooManyTickets
        ticket = environment.token_hex(SECRET_BYTES)
        self._tickets[digest_of(ticket)] = _Ticket(identity, environment.monotonic() + LIFE_S)
        self._counts[identity.name] += 1
        return ticket

    def redeem(self, ticket: str) -> Identity:
        """The identity behind a ticket, which is used up. Raises `Unauthenticated`."""
        self._forget_old()
        found = self._tickets.pop(digest_of(ticket[: 4 * SECRET_BYTES]), None)
        if found is None:
            raise Unauthenticated(
                "this ticket was used already, is too old, or was never issued: get another one"
            )
        self._uncount(found)
        return found.identity

    def _forget_old(self) -> None:
        now = environment.monotonic()
        while self._tickets and (oldest := next(iter(self._tickets.values()))).expires_at <= now:
            self._tickets.popitem(last=False)
            self._uncount(oldest)

    def _uncount(self, ticket: _Ticket) -> None:
        name = ticket.identity.name
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]
