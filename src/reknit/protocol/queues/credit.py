"""Flow control: how many bytes a subscriber takes, and whether the connection to it takes any."""

from __future__ import annotations


class SubscriberCredit:
    """The credit of one queue. Both sides count totals, so that a repeated grant does no harm.

    >>> credit = SubscriberCredit(300)
    >>> credit.use(100)
    >>> credit.room, credit.grant(250), credit.grant(400), credit.room
    (200, False, True, 300)
    """

    __slots__ = ("granted", "is_blocked", "is_paused", "used")

    def __init__(self, granted: int) -> None:
        self.granted = granted
        """Bytes that the subscriber has granted in total."""
        self.used = 0
        """Bytes that were delivered within that."""
        self.is_blocked = False
        """Whether the connection to the peer is full."""
        self.is_paused = False
        """Whether the subscriber takes nothing for now."""

    @property
    def room(self) -> int:
        """How many bytes the subscriber still takes."""
        return 0 if self.is_blocked or self.is_paused else self.granted - self.used

    def grant(self, total: int) -> bool:
        """The subscriber grants `total` bytes; returns whether that is more than before."""
        if total <= self.granted:
            return False
        self.granted = total
        return True

    def pause(self, is_paused: bool) -> bool:
        """The subscriber takes nothing for now, or goes on; returns whether it goes on."""
        goes_on = self.is_paused and not is_paused
        self.is_paused = is_paused
        return goes_on

    def use(self, size: int) -> None:
        """`size` bytes are delivered; a negative size corrects an estimate that was too high."""
        self.used += size

    def block(self, is_blocked: bool) -> None:
        """The connection to the peer is full, or takes bytes again."""
        self.is_blocked = is_blocked
