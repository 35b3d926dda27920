"""Routes as events: a route is stored on its topic's `kn_routes` like any other event, and read back on a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from reknit.batch import Batch
from reknit.connection.publish_driver import StoredFuture
from reknit.entries import Entry
from reknit.errors import Gone
from reknit.gateway.access import Access
from reknit.gateway.http.feed import TunnelFeed
from reknit.gateway.http.formats import TunnelBatch
from reknit.gateway.http.groups import TunnelGroup
from reknit.gateway.http.kn.parameters import whole_number
from reknit.gateway.http.kn.route_rights import route_objection
from reknit.gateway.http.publishers import HttpPublishers
from reknit.gateway.http.replay import is_expired
from reknit.gateway.http.scopes import TopicScope
from reknit.protocol.tunnel.topic_routes import ROUTES_MAX, ROUTES_TOPIC, TopicRoute, TopicRoutes
from reknit.store.journal import Journal

log = logging.getLogger("reknit.http")

SINCE, COUNT, POSITION, MAKER = "reknit_since", "reknit_count", "reknit_position", "reknit_maker"


class KnRouter:
    """The routes of a node, stored in its journal."""

    def __init__(
        self,
        journal: Journal,
        *,
        access: Access,
        feed: TunnelFeed,
        publishers: HttpPublishers,
        populate_events_max: int,
    ) -> None:
        self.routes = TopicRoutes()
        self._access = access
        self._journal = journal
        self._feed = feed
        self._publishers = publishers
        self._populate_events_max = populate_events_max
        self._stored_at: dict[tuple[str, str], int] = {}
        """The journal position of each route's newest event."""
        self._start = journal.start
        feed.follow_routes(self)
        self._load()

    def _load(self) -> None:
        for topic in self._journal.topics():
            if topic.endswith(f"/{ROUTES_TOPIC}"):
                entries: list[Entry] = []
                for source, last in self._journal.sources(topic).items():
                    first = self._journal.first_held(topic, source)
                    entries += self._journal.find(topic, source, first, last + 1)
                for entry in sorted(entries, key=lambda one: one.position):
                    self._apply(entry, Batch.parse(self._journal.fetch(entry)))

    # -- rights

    def review(self) -> None:
        """The rules have changed, perhaps before this start: end the routes whose makers may no longer have them."""
        ended = [route for route in self.routes.all() if self._objection(route.maker, route)]
        for route in ended:
            why = self._objection(route.maker, route)
            log.warning("the route %s to /%s ends: %s", route.uri, route.to_topic, why)
            self.routes.remove(route.from_topic, route.id)
            self.remove(route)
        if ended:
            self._feed.routes_changed()

    def _objection(self, user: str, route: TopicRoute | None) -> str:
        """Why a user may not make or delete a route; nobody in particular may."""
        if not user or route is None:
            return ""
        return route_objection(self._access, user, route.from_topic, route.to_topic)

    # -- changing

    def put(self, route: TopicRoute) -> StoredFuture:
        """Store a route. It takes effect at the position where it is stored."""
        headers = {"kn_id": route.id, SINCE: str(route.since), COUNT: str(route.count)}
        if route.position >= 0:
            headers[POSITION] = str(route.position)
        if route.location:
            headers["kn_uri"] = route.location
        if route.maker:
            headers[MAKER] = route.maker
        return self._publishers.publish(_topic(route), f"/{route.to_topic}".encode(), headers)

    def remove(self, route: TopicRoute) -> StoredFuture:
        """Delete a route: an event without a destination."""
        return self._publishers.publish(_topic(route), b"", {"kn_id": route.id, "deleted": "true"})

    @property
    def is_full(self) -> bool:
        return len(self.routes) >= ROUTES_MAX

    def renew(self) -> None:
        """Store routes again whose event retention has removed, so that the next start finds them."""
        start = self._journal.start
        if start == self._start:
            return
        self._start = start
        for route in self.routes.all():
            key = (route.from_topic, route.id)
            if self._stored_at.get(key, start) < start:
                self._stored_at[key] = start
                self.put(route)

    # -- following the journal

    def on_routes(self, entry: Entry, batch: Batch) -> None:
        """A batch on a topic of routes is in the journal."""
        if self._apply(entry, batch, is_new=True):
            self._feed.routes_changed()

    def _apply(self, entry: Entry, batch: Batch, is_new: bool = False) -> bool:
        """Take routes from the journal. The publisher of a new route needs the right to it."""
        changed = False
        from_topic = entry.head.topic.rpartition("/")[0]
        owner = self._journal.ledger.owners.get(entry.head.source, "")
        for event in batch.events():
            headers = event.headers
            id, to = headers.get("kn_id", ""), event.payload.decode("utf-8", "replace").strip("/")
            old = self.routes.get(from_topic, id)
            if is_new and self._objection(owner, old):
                continue
            if not to:
                changed = self.routes.remove(from_topic, id) or changed
                continue
            # Anyone may publish here: a header that is not a number counts as missing, and no route begins after it.
            stored, since = (whole_number(headers.get(name, "")) for name in (POSITION, SINCE))
            position = entry.position if stored is None else min(stored, entry.position)
            route = TopicRoute(
                id,
                from_topic,
                to,
                position,
                position if since is None else min(since, position),
                whole_number(headers.get(COUNT, "")) or 0,
                headers.get("kn_uri", ""),
                owner or headers.get(MAKER, ""),
            )
            if is_new and self._objection(owner, route):
                continue
            self._stored_at[from_topic, id] = entry.position
            changed = self.routes.put(route) or changed
        return changed

    # -- populations

    def populations(self, entry: Entry, group: TunnelGroup) -> Iterable[TunnelBatch]:
        """The events that a group gets when the journal passes the position where a route into its topic is stored."""
        if not isinstance(group.scope, TopicScope):
            return []
        from_topic = entry.head.topic.rpartition("/")[0]
        locations = group.scope.locations(from_topic, entry.position)
        found: list[TunnelBatch] = []
        for route in self.routes.all():
            if route.from_topic == from_topic and route.position == entry.position and route.uri in locations:
                found += self._population(route)
        return found

    def _population(self, route: TopicRoute) -> list[TunnelBatch]:
        """The last events before a route, with which it is to be populated."""
        found: list[TunnelBatch] = []
        lanes = {lane.topic: lane.position for lane in self.routes.routed_topics(route.from_topic)}
        position = max(route.since, self._journal.start)
        while position < route.position:
            try:
                run = self._journal.read(position, route.position)
            except Gone:
                position = self._journal.start
                continue
            for at, entry in enumerate(run.entries):
                topic = entry.head.topic
                if topic in lanes and entry.position >= lanes[topic] and not is_expired(entry):
                    batch = Batch(entry.head, run.cut(at, at + 1))
                    found.append(TunnelBatch(batch, self._feed.epoch, entry.position, 0, route.uri, True))
            position = run.next_position
        return last(found, min(route.count or self._populate_events_max, self._populate_events_max))


def last(items: list[TunnelBatch], count: int) -> list[TunnelBatch]:
    """The last `count` events."""
    found: list[TunnelBatch] = []
    for item in reversed(items):
        if count <= 0:
            break
        skip = max(item.skip, item.batch.count - count)
        count -= item.batch.count - skip
        found.append(msgspec.structs.replace(item, skip=skip))
    return found[::-1]


def _topic(route: TopicRoute) -> str:
    return f"{route.from_topic}/{ROUTES_TOPIC}"
