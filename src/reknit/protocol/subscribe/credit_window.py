"""Credit: how many bytes the node may send ahead of the application.

The window covers what was delivered and not taken by the application. Recovered bytes are outside the credit, and
bounded by a window of the same size.
"""

from __future__ import annotations


class CreditWindow:
    """The credit of one subscription.

    >>> window = CreditWindow(1000)
    >>> window.connect()
    1000
    >>> window.deliver(400)
    >>> window.take(100), window.take(300), window.grant()
    (False, True, 1400)
    """

    __slots__ = ("_buffered", "_grant_from", "_granted", "_owed", "_recovered", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._grant_from = size // 4
        self._buffered = 0
        """Bytes that were delivered within the credit and that the application has not taken."""
        self._granted = 0
        """Bytes that were granted in total on this connection."""
        self._owed = 0
        """Bytes that the application took and that are not granted again yet."""
        self._recovered = 0
        """Recovered bytes that the application has not taken."""

    def connect(self) -> int:
        """A connection begins; returns the bytes to grant on it."""
        self._granted = max(self.size - self._buffered, 0)
        self._owed = min(self.size - self._buffered, 0)
        return self._granted

    def deliver(self, size: int) -> None:
        """Bytes arrived within the credit, for the application."""
        self._buffered += size

    def take(self, size: int) -> bool:
        """The application took bytes, or they were dropped while buffered; returns whether a grant is due."""
        self._buffered -= size
        self._owed += size
        return self._owed >= self._grant_from

    def drop(self, size: int) -> None:
        """Bytes arrived within the credit that the application does not get."""
        self._owed += size

    @property
    def is_grant_due(self) -> bool:
        """Whether a quarter of the window is free and not granted."""
        return self._owed >= self._grant_from

    def grant(self) -> int:
        """Grant the free bytes; returns the new total."""
        self._granted += self._owed
        self._owed = 0
        return self._granted

    @property
    def granted(self) -> int:
        """The bytes that were granted in total on this connection."""
        return self._granted

    def clear(self) -> None:
        """Nothing is buffered any more."""
        self._buffered = self._owed = 0

    def without_buffer(self) -> CreditWindow:
        """The same credit on the current connection, with nothing buffered."""
        window = CreditWindow(self.size)
        window._granted, window._owed = self._granted, self._owed
        return window

    # -- recovered events

    def deliver_recovered(self, size: int) -> None:
        """Recovered bytes go to the application."""
        self._recovered += size

    def take_recovered(self, size: int) -> None:
        """The application took recovered bytes."""
        self._recovered -= size

    @property
    def is_full_of_recovered(self) -> bool:
        return self._recovered >= self.size
