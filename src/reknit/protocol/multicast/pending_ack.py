"""When a member acks a sender's events: soon, or at once after a quarter of the window."""

from __future__ import annotations

from typing import Any

from reknit.protocol.multicast.window import Window


class PendingAck:
    """The ack that is due to one sender. `acked` and `bytes_acked` are those of the window."""

    def __init__(self, offset: int, ack_s: float, bytes_max: int) -> None:
        self.due_at: float | None = None
        self.sent = offset
        """The last ack that was sent."""
        self._sent_bytes = 0
        self._ack_s = ack_s
        self._bytes_max = bytes_max
        """An ack is due after this many bytes."""

    def note(self, acked: int, now: float) -> None:
        """The application has more: an ack is due soon."""
        if self.due_at is None and acked > self.sent:
            self.due_at = now + self._ack_s

    def is_due(self, window: Window[Any], now: float) -> bool:
        """True after a quarter of the window or of the socket buffers, or when the ack was due for long enough."""
        return (
            (self.due_at is not None and self.due_at <= now)
            or window.acked - self.sent >= max(1, window.capacity // 4)
            or window.bytes_acked - self._sent_bytes >= self._bytes_max
        )

    def was_sent(self, acked: int, bytes_acked: int) -> None:
        """An ack was sent."""
        self.sent, self._sent_bytes, self.due_at = acked, bytes_acked, None

    def cancel(self) -> None:
        """The sender is gone: nobody waits for the ack."""
        self.due_at = None
