"""The nodes that each source passed before a bridge or relay brought it here, so that it does not go back there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from reknit.decoding import UNREADABLE
from reknit.errors import Refused
from reknit.node.replication.remote_session import RemoteSession
from reknit.outcome import Code
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
        self,
        known: dict[str, list[str]],
        save_soon: Callable[[], None],
        sources_max: int = VIAS_MAX,
        node_name: str = "",
    ) -> None:
        self._known = known
        self._node_name = node_name
        self._save_soon = save_soon
        self._sources_max = sources_max
        self.forgotten = 0
        """How often a source could not be remembered, as there were too many."""

    def learn(self, via: Via) -> None:
        """A bridge reports the nodes that a source has passed. One that was here before is not brought by it."""
        source = via.source.hex()
        if self._node_name in via.nodes:
            return
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


async def ask_visited(session: RemoteSession, sources: Sequence[bytes]) -> dict[bytes, list[str]]:
    """Ask another node which nodes these sources passed before they came there. Raises `Refused`."""
    found = await session.ask("vias", sources=[source.hex() for source in sources])
    try:
        nodes = msgspec.convert(found, list[list[str]])
    except UNREADABLE as error:
        raise Refused(Code.INVALID_ARGUMENT, f"an answer to `vias` is not valid: {error}") from None
    if len(nodes) != len(sources):
        text = f"an answer to `vias` has {len(nodes)} rows for {len(sources)} sources"
        raise Refused(Code.INVALID_ARGUMENT, text)
    return dict(zip(sources, nodes, strict=True))


class VisitedReports:
    """Tells this node which nodes the sources that come from another node have passed, once for each."""

    def __init__(self, send: Callable[[Via], None]) -> None:
        self._send = send
        self._told: set[bytes] = set()

    async def tell(self, session: RemoteSession, sources: Iterable[bytes]) -> None:
        """Events of these come next. A relay that may only subscribe knows no more than the node that it reads."""
        new = [source for source in dict.fromkeys(sources) if source not in self._told]
        welcome = session.connection.welcome
        if not new or welcome is None:
            return
        visited: dict[bytes, list[str]] = {}
        with suppress(Refused):
            visited = await ask_visited(session, new)
        for source in new:
            self._send(Via(source, [*visited.get(source, ()), welcome.node]))
        if len(self._told) >= VIAS_MAX:
            self._told.clear()
        self._told.update(new)
