"""Routes as events: a route is kept on its topic's `kn_routes` like any other event, and read back on a restart."""

from __future__ import annotations

from collections.abc import Iterable

from reknit.batch import Batch
from reknit.entries import Entry
from reknit.errors import Gone
from reknit.gateway.http.feed import Feed, Group, is_expired
from reknit.gateway.http.formats import Parcel
from reknit.gateway.http.inlet import Inlet, Kept
from reknit.gateway.http.scope import TopicScope
from reknit.protocol.tunnel.topic_routes import ROUTES_MAX, ROUTES_TOPIC, TopicRoute, TopicRoutes
from reknit.store.journal import Journal

SINCE, COUNT, POSITION = "reknit_since", "reknit_count", "reknit_position"


class Router:
    """The routes of a node, kept in its journal."""

    def __init__(self, journal: Journal, feed: Feed, inlet: Inlet, populate_events_max: int) -> None:
        self.routes = TopicRoutes()
        self._journal = journal
        self._feed = feed
        self._inlet = inlet
        self._populate_events_max = populate_events_max
        self._kept_at: dict[tuple[str, str], int] = {}
        """Where each route's newest event is."""
        self._start = journal.start
        feed.on_routes = self._on_routes
        feed.populations = self.populations
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

    # -- changing

    def put(self, route: TopicRoute) -> Kept:
        """Keep a route. It counts from where it is kept."""
        headers = {"kn_id": route.id, SINCE: str(route.since), COUNT: str(route.count)}
        if route.position >= 0:
            headers[POSITION] = str(route.position)
        if route.location:
            headers["kn_uri"] = route.location
        return self._inlet.publish(_topic(route), f"/{route.to_topic}".encode(), headers)

    def remove(self, route: TopicRoute) -> Kept:
        """Delete a route: an event without a destination."""
        return self._inlet.publish(_topic(route), b"", {"kn_id": route.id, "deleted": "true"})

    @property
    def is_full(self) -> bool:
        return len(self.routes) >= ROUTES_MAX

    def renew(self) -> None:
        """Keep those again whose event retention has removed, so that the next start finds them."""
        start = self._journal.start
        if start == self._start:
            return
        self._start = start
        for route in self.routes.all():
            key = (route.from_topic, route.id)
            if self._kept_at.get(key, start) < start:
                self._kept_at[key] = start
                self.put(route)

    # -- what the journal says

    def _on_routes(self, entry: Entry, batch: Batch) -> None:
        if self._apply(entry, batch):
            self._feed.routes_changed()

    def _apply(self, entry: Entry, batch: Batch) -> bool:
        changed = False
        from_topic = entry.head.topic.rpartition("/")[0]
        for event in batch.events():
            headers = event.headers
            id, to = headers.get("kn_id", ""), event.payload.decode("utf-8", "replace").strip("/")
            if not to:
                changed = self.routes.remove(from_topic, id) or changed
                continue
            position = int(headers.get(POSITION, entry.position))
            since = int(headers.get(SINCE, position))
            count = int(headers.get(COUNT, 0))
            route = TopicRoute(
                id,
                from_topic,
                to,
                position,
                since if since >= 0 else position,
                count,
                headers.get("kn_uri", ""),
            )
            self._kept_at[from_topic, id] = entry.position
            changed = self.routes.put(route) or changed
        return changed

    # -- populating

    def populations(self, entry: Entry, group: Group) -> Iterable[Parcel]:
        """What a group gets as the journal passes the place where a route into its topic was kept."""
        if not isinstance(group.scope, TopicScope):
            return []
        from_topic = entry.head.topic.rpartition("/")[0]
        locations = group.scope.locations(from_topic, entry.position)
        found: list[Parcel] = []
        for route in self.routes.all():
            if route.from_topic == from_topic and route.position == entry.position and route.uri in locations:
                found += self._population(route)
        return found

    def _population(self, route: TopicRoute) -> list[Parcel]:
        """The last events before a route that it was to be populated with."""
        parcels: list[Parcel] = []
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
                    parcels.append(Parcel(batch, self._feed.epoch, entry.position, 0, route.uri, True))
            position = run.next_position
        return last(parcels, min(route.count or self._populate_events_max, self._populate_events_max))


def last(parcels: list[Parcel], count: int) -> list[Parcel]:
    """The last so many events."""
    kept: list[Parcel] = []
    for parcel in reversed(parcels):
        if count <= 0:
            break
        skip = max(parcel.skip, parcel.batch.count - count)
        count -= parcel.batch.count - skip
        kept.append(
            Parcel(parcel.batch, parcel.epoch, parcel.position, skip, parcel.location, parcel.is_population)
        )
    return kept[::-1]


def _topic(route: TopicRoute) -> str:
    return f"{route.from_topic}/{ROUTES_TOPIC}"
