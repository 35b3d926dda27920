"""The interface of a connection, independent of its transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reknit.credentials import Credentials
from reknit.errors import MalformedFrame
from reknit.frame import Buffer
from reknit.wire.codec import Item


class Connection(Protocol):
    """One side of an open connection."""

    peer: str
    """The other side, as text for people."""
    sent_at: float
    """When bytes were last sent, in the loop's time."""
    certified: Credentials
    """What the connection itself proves about the other side, as by a verified certificate."""
    is_inside: bool
    """Whether the other side is in the same process."""
    door: str
    """Where the other side came in, as the audit trail names it."""

    @property
    def received_at(self) -> float:
        """When bytes last arrived, in the loop's time."""

    @property
    def held_bytes(self) -> int:
        """The memory that it takes: for what was sent and not taken yet, and for the part of a message that arrived."""

    def pause_reading(self) -> None:
        """Stop reading: the kernel's buffers fill up, and the sender waits."""

    def resume_reading(self) -> None:
        """Read again."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send these frames in one call. After `close` it does nothing."""

    def close(self) -> None:
        """Send everything buffered, then close."""

    def abort(self) -> None:
        """Close at once."""


class Handler(Protocol):
    """Receives the events of a connection."""

    def opened(self, connection: Connection) -> None:
        """The connection is open."""

    def received(self, connection: Connection, items: list[Item]) -> None:
        """Messages and batches arrived, in order."""

    def malformed(self, connection: Connection, error: MalformedFrame) -> None:
        """The other side broke the protocol; nothing more is read from it."""

    def blocked(self, connection: Connection, is_blocked: bool) -> None:
        """The send buffer is full, or has room again."""

    def lost(self, connection: Connection) -> None:
        """The connection is gone. This is the last call for it."""
