"""When a node looks at its routes again: at once after one change, and at intervals while many nodes come and go."""

from __future__ import annotations

from typing import Final

REVIEW_S: Final = 0.05
"""Routes to a thousand nodes take some ten milliseconds, and when all of these start there are thousands of changes."""


class RouteReview:
    """Gathers changes of routes that follow each other closely.

    >>> review = RouteReview()
    >>> review.changed(has_new_routes=True, now=1.0)
    >>> review.take(1.0), review.take(1.0)
    (True, None)
    >>> review.changed(has_new_routes=False, now=1.01)
    >>> review.take(1.01), review.next_deadline(), review.take(1.05)
    (None, 1.05, False)
    """

    def __init__(self) -> None:
        self._due: float | None = None
        self._has_new_routes = False
        self._not_before = float("-inf")

    def changed(self, *, has_new_routes: bool, now: float) -> None:
        """Routes or what nodes subscribe to changed."""
        self._has_new_routes = self._has_new_routes or has_new_routes
        if self._due is None:
            self._due = max(now, self._not_before)

    def take(self, now: float) -> bool | None:
        """Whether there are new routes since the last time, if it is time to look; None if not."""
        if self._due is None or now < self._due:
            return None
        has_new_routes, self._has_new_routes = self._has_new_routes, False
        self._due, self._not_before = None, now + REVIEW_S
        return has_new_routes

    def next_deadline(self) -> float | None:
        """When it is time to look, if something changed."""
        return self._due
