"""Where sources have been before a bridge brought them here: so that they do not go back there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from reknit.wire.links import Via

log = logging.getLogger("reknit.node")

VIAS_MAX: Final = 100_000
"""Of so many sources it is remembered."""


class Vias:
    """By source, as hex; `known` outlasts a restart where `save_soon` sees to it.

    >>> vias = Vias({}, lambda: None, sources_max=1)
    >>> vias.learn(Via(b"one", ["a", "b"]))
    >>> vias.learn(Via(b"two", ["a"]))
    >>> vias.of([b"one".hex(), b"two".hex()]), vias.forgotten
    ([['a', 'b'], []], 1)
    """

    def __init__(
        self, known: dict[str, list[str]], save_soon: Callable[[], None], sources_max: int = VIAS_MAX
    ) -> None:
        self._known = known
        self._save_soon = save_soon
        self._sources_max = sources_max
        self.forgotten = 0
        """How often it was told of a source and there was no place left to remember it."""

    def learn(self, via: Via) -> None:
        """A bridge tells where a source has been."""
        source = via.source.hex()
        if source not in self._known and len(self._known) >= self._sources_max:
            self._forget()
            return
        self._known[source] = via.nodes
        self._save_soon()

    def _forget(self) -> None:
        if not self.forgotten:
            log.warning(
                "bridges brought events of more than %d sources: where further ones have been is not remembered, "
                "and their events may go back there, where they are dropped as known",
                self._sources_max,
            )
        self.forgotten += 1

    def of(self, sources: list[str]) -> list[list[str]]:
        """Where each of these sources has been before it came here."""
        return [self._known.get(source, []) for source in sources]

    def status(self) -> dict[str, int]:
        """How many sources are remembered, and how often one could not be."""
        return {"sources": len(self._known), "forgotten": self.forgotten}
