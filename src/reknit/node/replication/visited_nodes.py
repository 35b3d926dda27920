"""The nodes that each source passed before a bridge brought it here, so that its events do not go back there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from reknit.wire.links import Via

log = logging.getLogger("reknit.node")

VIAS_MAX: Final = 100_000
"""How many sources are remembered."""


class VisitedNodes:
    """By source, as hex. `save_soon` writes `known` to a file, so that it outlasts a restart.

    >>> visited = VisitedNodes({}, lambda: None, sources_max=1)
    >>> visited.learn(Via(b"one", ["a", "b"]))
    >>> visited.learn(Via(b"two", ["a"]))
    >>> visited.of([b"one".hex(), b"two".hex()]), visited.forgotten
    ([['a', 'b'], []], 1)
    """

    def __init__(
        self, known: dict[str, list[str]], save_soon: Callable[[], None], sources_max: int = VIAS_MAX
    ) -> None:
        self._known = known
        self._save_soon = save_soon
        self._sources_max = sources_max
        self.forgotten = 0
        """How often a source could not be remembered, as there were too many."""

    def learn(self, via: Via) -> None:
        """A bridge reports the nodes that a source has passed."""
        source = via.source.hex()
        if source not in self._known and len(self._known) >= self._sources_max:
            self._forget()
            return
        self._known[source] = via.nodes
        self._save_soon()

    def _forget(self) -> None:
        if not self.forgotten:
            log.warning(
                "bridges brought events of more than %d sources: the nodes that further ones passed are not remembered, "
                "and their events may go back there, where they are dropped as duplicates",
                self._sources_max,
            )
        self.forgotten += 1

    def of(self, sources: list[str]) -> list[list[str]]:
        """The nodes that each of these sources passed before it came here."""
        return [self._known.get(source, []) for source in sources]

    def status(self) -> dict[str, int]:
        """How many sources are remembered, and how often one could not be."""
        return {"sources": len(self._known), "forgotten": self.forgotten}
