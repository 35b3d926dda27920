"""Which series go to which neighbour: the subscriptions of this node, and the node on which each source is published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from reknit.ledger import ANYCAST, Series
from reknit.node.core.core import Core
from reknit.protocol.routing.known_node import Interest
from reknit.protocol.routing.routes import Routes

log = logging.getLogger("reknit.node")

ORIGINS_MAX: Final = 100_000
"""How many sources are remembered with the node on which they are published."""


class Origins:
    """By source, as hex: the node on which it is published. `save_soon` writes `known` to a file.

    After a crash the newest of these may be forgotten. So the origin of an `old` source, one that the journal had when
    the node started, is told to other nodes only if it is in the file, or comes up again: they may know better.
    """

    def __init__(
        self, known: dict[str, str], node_name: str, save_soon: Callable[[], None], old: Iterable[bytes] = ()
    ) -> None:
        self._known = known
        self._unsure = {source for source in old if source.hex() not in known}
        self._node_name = node_name
        self._save_soon = save_soon
        self._is_warned = False

    def of(self, source: bytes) -> str:
        """The node on which a source is published; this one, as far as nothing else is known."""
        return self._known.get(source.hex(), self._node_name)

    def told(self, source: bytes) -> str | None:
        """What other nodes are told about the origin of a source; None if it may be forgotten."""
        return None if source in self._unsure else self.of(source)

    def learn(self, source: bytes, origin: str) -> None:
        """A source is published on another node."""
        self._unsure.discard(source)
        name = source.hex()
        if origin == self._node_name:
            return
        if name not in self._known and len(self._known) >= ORIGINS_MAX:
            self._warn()
            return
        self._known[name] = origin
        self._save_soon()

    def _warn(self) -> None:
        if not self._is_warned:
            self._is_warned = True
            text = (
                "links brought events of more than %d sources: the nodes of further sources are not remembered, and "
                "their events may go to neighbours that have them, where they are dropped as duplicates"
            )
            log.warning(text, ORIGINS_MAX)

    def forget(self, source: bytes) -> bool:
        """A source is published here now; returns whether it was published elsewhere before."""
        self._unsure.discard(source)
        if self._known.pop(source.hex(), None) is None:
            return False
        self._save_soon()
        return True


class ForwardingTable:
    """Which series a node's neighbours get."""

    def __init__(
        self,
        *,
        routes: Routes,
        core: Core,
        origins: Origins,
        distribution: Callable[[str], str],
        announce: Callable[[list[Interest], list[Interest]], None],
    ) -> None:
        self.origins = origins
        self._routes = routes
        self._dispatch = core.dispatch
        self._ledger = core.journal.ledger
        self._distribution = distribution
        self._announce = announce
        self._announced: set[str] = set()
        self._wanted: dict[tuple[str, Series], bool] = {}
        self._signature = (-1, -1)
        self._is_moved = False

    @property
    def is_due(self) -> bool:
        """Whether subscriptions may have changed since `announce_changes`."""
        return self._is_moved

    def subscriptions_changed(self) -> None:
        """Somebody subscribed or unsubscribed."""
        self._is_moved = True

    def announce_changes(self) -> None:
        """Tell all nodes the subscriptions of this one, if they changed. Durable subscribers that are away count."""
        queues = self._dispatch.queues
        signature = (len(queues), len(self._ledger.accounts))
        if not self._is_moved and signature == self._signature:
            return
        self._is_moved, self._signature = False, signature
        accounts = self._ledger.accounts.items()
        wanted = {queue.pattern.text for queue in queues.values()}
        wanted |= {one.pattern.text for name, one in accounts if not name.startswith(ANYCAST)}
        added = [(text, "journal") for text in sorted(wanted - self._announced)]
        removed = [(text, "journal") for text in sorted(self._announced - wanted)]
        self._announced = wanted
        if added or removed:
            self._announce(added, removed)

    def forget(self) -> None:
        """Routes or subscriptions changed: decide anew."""
        self._wanted.clear()

    def is_wanted(self, name: str, series: Series) -> bool:
        """Whether a neighbour gets a series from here."""
        key = (name, series)
        found = self._wanted.get(key)
        if found is None:
            if len(self._wanted) >= ORIGINS_MAX:
                self._wanted.clear()
            found = self._wanted[key] = self._find(name, series)
        return found

    def _find(self, name: str, series: Series) -> bool:
        nodes = self._routes.destinations(series[0], "journal")
        if not nodes or self._distribution(series[0]) != "journal":
            return False
        return name in self._routes.children(self.origins.of(series[1]), nodes, with_lost=True)

    def declared(self, source: bytes) -> bool:
        """A publisher with a lasting source is here now; returns whether it was elsewhere before."""
        if not self.origins.forget(source):
            return False
        self._wanted.clear()
        return True
