"""Which events that everyone gets go where: what is subscribed to here, and on which node each source is published."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from reknit.ledger import Stream
from reknit.node.anycast.ledger import ACCOUNT

if TYPE_CHECKING:
    from reknit.node.links.links import Links

log = logging.getLogger("reknit.node")

ORIGINS_MAX: Final = 100_000
"""Of so many sources it is remembered on which node they are published."""


class Wants:
    """What a node's neighbours are to get, and why."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._announced: set[str] = set()
        self._wanted: dict[tuple[str, Stream], bool] = {}
        self._signature = (-1, -1)
        self._is_warned = False
        self.is_moved = False
        """Whether somebody subscribed, or does so no more."""

    def look(self) -> None:
        """Tell all others what is subscribed to here, if that changed. Durable subscribers count while they are away."""
        node = self._links.node
        dispatch, ledger = node.dispatch, node.journal.ledger
        signature = (len(dispatch.queues), len(ledger.accounts))
        if not self.is_moved and signature == self._signature:
            return
        self.is_moved, self._signature = False, signature
        wanted = {queue.pattern.text for queue in dispatch.queues.values()}
        wanted |= {one.pattern.text for name, one in ledger.accounts.items() if not name.startswith(ACCOUNT)}
        added = [(text, "journal") for text in sorted(wanted - self._announced)]
        removed = [(text, "journal") for text in sorted(self._announced - wanted)]
        self._announced = wanted
        if added or removed:
            self._links.interest(added, removed)

    def forget(self) -> None:
        """Ways or subscriptions changed: find out anew."""
        self._wanted.clear()

    def is_wanted(self, name: str, stream: Stream) -> bool:
        """Whether a neighbour is to get a stream from here."""
        key = (name, stream)
        found = self._wanted.get(key)
        if found is None:
            if len(self._wanted) >= ORIGINS_MAX:
                self._wanted.clear()
            found = self._wanted[key] = self._find(name, stream)
        return found

    def _find(self, name: str, stream: Stream) -> bool:
        routes = self._links.routes
        nodes = routes.destinations(stream[0], "journal")
        if not nodes or self._links.node.anycast.mode(stream[0]) != "journal":
            return False
        return name in routes.children(self.origin(stream[1]), nodes, with_lost=True)

    # -- where sources are published

    def origin(self, source: bytes) -> str:
        """The node on which a source is published, as far as it is known: here."""
        return self._links.notes.value.origins.get(source.hex(), self._links.routes.name)

    def learn(self, source: bytes, origin: str) -> None:
        """A source is published elsewhere."""
        origins, name = self._links.notes.value.origins, source.hex()
        if origin == self._links.routes.name:
            return
        if name not in origins and len(origins) >= ORIGINS_MAX:
            self._warn_of_origins()
            return
        origins[name] = origin
        self._links.notes.save_soon()

    def _warn_of_origins(self) -> None:
        if not self._is_warned:
            self._is_warned = True
            text = (
                "links brought events of more than %d sources: where further ones are published is not remembered, and "
                "their events may go to neighbours that have them, where they are dropped as known"
            )
            log.warning(text, ORIGINS_MAX)

    def declared(self, source: bytes) -> bool:
        """A publisher with a lasting source is here now; whether it was elsewhere before."""
        if self._links.notes.value.origins.pop(source.hex(), None) is None:
            return False
        self._wanted.clear()
        self._links.notes.save_soon()
        return True
