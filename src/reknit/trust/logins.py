"""Everyone who is connected with an identity that can end: by its expiry, or because its proof was revoked."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Final, Protocol

from reknit.trust.identities import Identity

SPARE: Final = 64
"""Deadlines of clients that have left may be this many more than those of clients that are there."""


class Client(Protocol):
    """A connection of somebody, at any door."""

    @property
    def proof(self) -> Identity:
        """Who it is, and how that was proven."""

    def expel(self, why: str) -> None:
        """Close the connection with UNAUTHENTICATED and the reason."""


class Judge(Protocol):
    """Knows which proofs hold."""

    def objection(self, identity: Identity) -> str:
        """Why an identity no longer holds; empty if it does."""

    def expires_us(self, identity: Identity) -> int:
        """When it will expire, as far as is known now; 0 for never."""


class Logins:
    """The clients of all doors. Deadlines are in a heap: time costs nothing for those that are not due."""

    def __init__(self) -> None:
        self._clients: dict[Client, int] = {}
        """Each with the number of its login."""
        self._numbers = count(1)
        self._deadlines: list[tuple[int, int, Client]] = []

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, client: Client) -> None:
        """Somebody has connected. One who has proven nothing has nothing to lose."""
        if not client.proof.means:
            return
        self._clients[client] = next(self._numbers)
        self._schedule(client, client.proof.expires_us)

    def _schedule(self, client: Client, expires_us: int) -> None:
        if expires_us:
            heapq.heappush(self._deadlines, (expires_us, self._clients[client], client))

    def remove(self, client: Client) -> None:
        """A connection is gone."""
        self._clients.pop(client, None)
        if len(self._deadlines) > 2 * len(self._clients) + SPARE:
            self._deadlines = [one for one in self._deadlines if self._is_current(one)]
            heapq.heapify(self._deadlines)

    def _is_current(self, deadline: tuple[int, int, Client]) -> bool:
        _, number, client = deadline
        return self._clients.get(client) == number

    def check(self, judge: Judge) -> None:
        """Proofs have changed: disconnect those to whom there is an objection. Others may have new deadlines."""
        self._deadlines = []
        for client in list(self._clients):
            if why := judge.objection(client.proof):
                self._expel(client, why)
            else:
                self._schedule(client, judge.expires_us(client.proof))

    def expire(self, now_us: int, judge: Judge) -> None:
        """Disconnect those whose time is over."""
        while self._deadlines and self._deadlines[0][0] <= now_us:
            due = heapq.heappop(self._deadlines)
            if self._is_current(due) and (why := judge.objection(due[2].proof)):
                self._expel(due[2], why)

    def _expel(self, client: Client, why: str) -> None:
        self.remove(client)
        client.expel(why)
