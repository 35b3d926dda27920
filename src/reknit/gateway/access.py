"""Access through a gateway: the questions that it asks the node's gate, or a hook of your own."""

from __future__ import annotations

from typing import Protocol

from reknit.address import Address
from reknit.credentials import Credentials
from reknit.topic import Pattern
from reknit.trust.identities import Identity


class Access(Protocol):
    """The hook. A gateway asks it whenever a tunnel is opened or resumed. `reknit.trust.gate.Gate` is one.

    A replay therefore contains only what the user may read at that time.
    """

    def identify(self, token: str, certified: Credentials) -> Identity:
        """The user of a token, or without one ("") of what the connection proves. Raises `Unauthenticated`."""

    def readable(self, name: str) -> tuple[Pattern, ...] | None:
        """The topics that a user may read. None means all topics."""

    def may_publish(self, name: str, topic: str) -> bool:
        """Whether a user may publish on a topic."""

    def may_be(self, name: str, source: Address) -> bool:
        """Whether events from an address may come from a user."""
