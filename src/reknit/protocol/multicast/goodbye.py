"""How a member leaves: it says goodbye until a view without it comes, or for `leave_s`."""

from __future__ import annotations

from reknit.protocol.multicast.settings import GroupSettings

NEVER = float("inf")


class Goodbye:
    """When to say goodbye again, and when to stop waiting for the view without us."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._say_at = NEVER
        self._over_at = NEVER

    @property
    def next_deadline(self) -> float:
        return min(self._say_at, self._over_at)

    def start(self, now: float) -> None:
        self._say_at, self._over_at = now, now + self._settings.leave_s

    def is_over(self, now: float) -> bool:
        """True if we waited long enough."""
        return self._over_at <= now

    def is_due(self, now: float) -> bool:
        """True if the goodbye is to be said now; it is due again later."""
        if self._say_at > now:
            return False
        self._say_at = now + self._settings.hello_s
        return True
