"""A connection as its user sees it, whatever carries the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reknit.errors import MalformedFrame
from reknit.frame import Buffer
from reknit.wire.codec import Item


class Connection(Protocol):
    """One side of an open connection."""

    peer: str
    """Who is at the other side, as text for people."""
    received_at: float
    """When bytes last came in, in the loop's time."""
    sent_at: float
    """When bytes last went out, in the loop's time."""
    certified: str
    """The name in the certificate that the other side showed and that was verified; empty without one."""
    is_inside: bool
    """Whether the other side is in this very process."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send these frames, in one go. After `close` it does nothing."""

    def close(self) -> None:
        """Send what is buffered, then close."""

    def abort(self) -> None:
        """Close at once."""


class Handler(Protocol):
    """Who is told what happens on a connection."""

    def opened(self, connection: Connection) -> None:
        """The connection stands."""

    def received(self, connection: Connection, items: list[Item]) -> None:
        """Messages and batches came in, in order."""

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        """The other side broke the protocol; nothing more is read from it."""

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        """The other side does not take what is sent, or takes it again."""

    def lost(self, connection: Connection) -> None:
        """The connection is gone. The last call for it."""
