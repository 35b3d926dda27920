"""Announced bytes: a message says how many bytes follow it, and whose they are.

`Answer`, `Deliver`, `Recovered`, `Forward` and `Carry` are followed by batches (an `Answer` also by records). The bytes
may arrive in several parts; `Announced` attributes each part to its message.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

__all__ = ["Announced"]


class Announcement(Protocol):
    """A message that announces bytes."""

    @property
    def size(self) -> int:
        """How many bytes follow."""
        ...


M = TypeVar("M", bound=Announcement)


class Announced(Generic[M]):
    """The message whose bytes are due, and how many of them.

    >>> from reknit.wire.messages import Deliver
    >>> due: Announced[Deliver] = Announced()
    >>> due.announce(Deliver(1, 300, 4096))
    >>> [due.take(size)[1] for size in (100, 200)], due.take(8)
    ([False, True], None)
    """

    __slots__ = ("message", "rest")

    def __init__(self) -> None:
        self.message: M | None = None
        self.rest = 0

    def announce(self, message: M) -> None:
        """The next `message.size` bytes belong to this message."""
        self.message, self.rest = message, message.size

    def take(self, size: int) -> tuple[M, bool] | None:
        """Bytes arrived: returns their message, and whether they are its last; None if they were not announced."""
        message = self.message
        if message is None:
            return None
        self.rest -= size
        if self.rest > 0:
            return message, False
        self.clear()
        return message, True

    def clear(self) -> None:
        """No bytes are due: the connection is gone."""
        self.message, self.rest = None, 0
