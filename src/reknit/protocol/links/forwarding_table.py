"""Which series go to which neighbour: the subscriptions of this node, and the node on which each source is published."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Final, Protocol

from reknit.ledger import ANYCAST, QUEUES, Ledger, Series
from reknit.protocol.links.followed_topics import FollowedTopics
from reknit.protocol.queues.queue import QueueKey
from reknit.protocol.routing.known_node import Interest
from reknit.protocol.routing.routes import Interests, Routes
from reknit.topic import Pattern

ORIGINS_MAX: Final = 100_000
"""How many sources are remembered with the node on which they are published."""
ORIGINS_FULL: Final = (
    f"links brought events of more than {ORIGINS_MAX} sources: the nodes of further sources are not remembered, and "
    "their events may go to neighbours that have them, where they are dropped as duplicates"
)


class SubscribedQueue(Protocol):
    """A subscriber's queue, as far as links need it."""

    @property
    def pattern(self) -> Pattern:
        """The topics that it subscribes to."""


class Origins:
    """By source, as hex: the node on which it is published. `known` outlasts a restart.

    After a crash the newest of these may be forgotten. So the origin of an `old` source, one that the journal had when
    the node started, is told to other nodes only if it is in the file, or comes up again: they may know better.

    A bridge may bring a source back to the nodes that it came from, before the links do. This node is not its origin
    then, although nobody has told it another one. `linked` has the nodes that it knows by links.
    """

    def __init__(
        self,
        known: dict[str, str],
        node_name: str,
        old: Iterable[bytes] = (),
        linked: Container[str] = (),
    ) -> None:
        self._known = known
        self._linked = linked
        self._entered: dict[bytes, tuple[str, ...]] = {}
        """Sources that came over a bridge first, and the nodes that they had passed."""
        self._unsure = {source for source in old if source.hex() not in known}
        self._node_name = node_name
        self.is_full = False
        """Whether a source could not be remembered."""

    def of(self, source: bytes) -> str:
        """The node on which a source is published; this one, as far as nothing else is known."""
        return self._known.get(source.hex(), self._node_name)

    def told(self, source: bytes) -> str | None:
        """What other nodes are told about the origin of a source; None if it may be forgotten."""
        is_back = source.hex() not in self._known and any(
            node in self._linked for node in self._entered.get(source, ())
        )
        return None if is_back or source in self._unsure else self.of(source)

    def entered(self, source: bytes, nodes: tuple[str, ...]) -> None:
        """A bridge brings a source that was not here before."""
        if len(self._entered) < ORIGINS_MAX:
            self._entered[source] = nodes

    def learn(self, source: bytes, origin: str) -> bool:
        """A source is published on another node; returns whether that is to be saved."""
        self._unsure.discard(source)
        name = source.hex()
        if origin == self._node_name:
            return False
        if name not in self._known and len(self._known) >= ORIGINS_MAX:
            self.is_full = True
            return False
        self._known[name] = origin
        return True

    def doubt(self, source: bytes) -> None:
        """A source came over a link, and nobody said from where: others are not told that it is published here."""
        if source.hex() not in self._known:
            self._unsure.add(source)

    def forget(self, source: bytes) -> bool:
        """A source is published here now; returns whether it was published elsewhere before."""
        self._unsure.discard(source)
        self._entered.pop(source, None)
        return self._known.pop(source.hex(), None) is not None


class ForwardingTable:
    """Which series a node's neighbours get."""

    def __init__(
        self,
        *,
        routes: Routes,
        queues: Mapping[QueueKey, SubscribedQueue],
        ledger: Ledger,
        origins: Origins,
        distribution: Callable[[str], str],
        followed: FollowedTopics | None = None,
        linger_s: float = 0.0,
    ) -> None:
        self.origins = origins
        self.followed = followed or FollowedTopics({}, 0.0)
        self._routes = routes
        self._queues = queues
        self._ledger = ledger
        self._distribution = distribution
        self._subscribed: set[str] = set()
        self._announced: set[Interest] = set()
        self._wanted: dict[tuple[str, Series], bool] = {}
        self._signature = (-1, -1)
        self._is_moved = self._has_left = False
        self._lingering = FollowedTopics({}, linger_s)
        """Patterns of subscribers whose connection broke: one without a name may come back, and resume where it was."""

    @property
    def is_due(self) -> bool:
        """Whether subscriptions may have changed since `changes`."""
        return self._is_moved

    def subscriptions_changed(self) -> None:
        """Somebody subscribed or unsubscribed."""
        self._is_moved = True

    def peer_left(self) -> None:
        """A connection broke, or was closed."""
        self._has_left = True

    def expire(self, now: float) -> bool:
        """Forget patterns that nobody reads any more. Returns whether the file with followed topics changed."""
        is_changed = self.followed.expire(now)
        if self._lingering.expire(now) or is_changed:
            self.subscriptions_changed()
        return is_changed

    def changes(self, now: float) -> Interests | None:
        """The subscriptions of this node that came and went since the last call. Durable subscribers that are away
        count, and so do readers of the journal.
        """
        queues = self._queues
        signature = (len(queues), len(self._ledger.accounts))
        has_left, self._has_left = self._has_left, False
        if not self._is_moved and signature == self._signature:
            return None
        self._is_moved, self._signature = False, signature
        accounts = self._ledger.accounts.items()
        wanted = {queue.pattern.text for queue in queues.values()}
        wanted |= {one.pattern.text for name, one in accounts if not name.startswith(ANYCAST)}
        wanted |= self.followed.patterns()
        for text in sorted(self._subscribed - wanted) if has_left else ():
            self._lingering.follow(text, 0)
            self._lingering.leave(text, now)
        self._subscribed = wanted
        wanted = wanted | self._lingering.patterns()
        interests: set[Interest] = {(text, "journal") for text in wanted}
        interests |= {(one.pattern.text, name) for name, one in accounts if name.startswith(QUEUES)}
        added, removed = sorted(interests - self._announced), sorted(self._announced - interests)
        self._announced = interests
        return Interests(added, removed) if added or removed else None

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

    def is_owed(self, name: str, series: Series) -> bool:
        """Whether a neighbour gets a series from here, or will when it is linked again."""
        return self._find(name, series, with_away=True)

    def _find(self, name: str, series: Series, with_away: bool = False) -> bool:
        nodes = self._routes.destinations(series[0], "journal")
        if not nodes or self._distribution(series[0]) != "journal":
            return False
        origin = self.origins.of(series[1])
        if origin not in self._routes.known:  # after a restart: the events are here, whatever way they came
            origin = self._routes.name
        return name in self._routes.children(origin, nodes, with_lost=True, with_away=with_away)

    def came(self, series: Series, told: Collection[bytes]) -> None:
        """Events came over a link, with the origins of some sources."""
        if series not in self._ledger.published and series[1] not in told:
            self.origins.doubt(series[1])

    def declared(self, source: bytes) -> bool:
        """A publisher with a lasting source is here now; returns whether it was elsewhere before."""
        if not self.origins.forget(source):
            return False
        self._wanted.clear()
        return True
