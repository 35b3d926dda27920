"""The clients of a gateway in the budget of all peers: what waits for them takes the same memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from reknit.outcome import Code
from reknit.trust.gate import Gate
from reknit.trust.identities import Identity
from reknit.trust.rules import ANONYMOUS

log = logging.getLogger("reknit.gateway")


class ClientConnection(Protocol):
    """A connection of a gateway's client."""

    @property
    def proof(self) -> Identity:
        """Who the client is."""

    @property
    def waiting_bytes(self) -> int:
        """What was sent to the client and not taken yet, and what it sent in part."""

    @property
    def is_closing(self) -> bool:
        """Whether the connection is being closed."""

    def abort(self) -> None:
        """Close at once."""


@dataclass(frozen=True, slots=True)
class BudgetedClient:
    """A client, as the budget of peers sees it (`reknit.node.peers.budget`)."""

    connection: ClientConnection
    gate: Gate

    @property
    def held_bytes(self) -> int:
        return self.connection.waiting_bytes

    @property
    def is_anonymous(self) -> bool:
        return not self.gate.is_open and self.quota_name == ANONYMOUS

    @property
    def quota_name(self) -> str:
        return self.connection.proof.name

    @property
    def is_leaving(self) -> bool:
        return self.connection.is_closing

    def end(self, code: Code, text: str) -> None:
        """Close its connection at once, and drop what it was sent: it would not read why."""
        log.warning("closing the connection of a client (%s): %s: %s", self.quota_name, code.name, text)
        self.connection.abort()
