"""What can't be carried between reknit and Zenoh is told in the log: once for each topic and reason."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger("reknit.zenoh")

NOTICES_MAX: Final = 1_000
"""How many are told."""


class Notices:
    """Tells each once.

    >>> notices = Notices()
    >>> notices.tell("plant/a", "is too long"), notices.tell("plant/a", "is too long"), notices.count
    (True, False, 2)
    """

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self.count = 0
        """How often there was a reason to tell."""

    def tell(self, topic: str, text: str, events: int = 1) -> bool:
        """Tell it, unless it was told. Returns whether it was not."""
        self.count += events
        if (topic, text) in self._told or len(self._told) >= NOTICES_MAX:
            return False
        self._told.add((topic, text))
        log.warning("%r: %s", topic, text)
        return True
