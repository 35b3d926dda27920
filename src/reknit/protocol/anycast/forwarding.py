"""Where a delivery goes: along the best path that has room, along all paths, or into a queue."""

from __future__ import annotations

from collections.abc import Iterator

from reknit.protocol.anycast.deliveries import Deliveries
from reknit.protocol.anycast.delivery import AnycastDelivery
from reknit.protocol.anycast.inputs import DeliverLocally, ForwardToNeighbour
from reknit.protocol.anycast.joined_outcomes import JoinedOutcomes
from reknit.protocol.anycast.path import Path
from reknit.protocol.anycast.paths import Candidate, Paths, shares_of
from reknit.protocol.anycast.queues import Queues, RoomQueue, RoomQueues
from reknit.protocol.anycast.sharing import portion
from reknit.protocol.anycast.window import PATIENCE_S
from reknit.topic import Pattern


class Forwarding:
    """Sends deliveries along paths as far as there is room, and queues the others."""

    def __init__(self, paths: Paths, deliveries: Deliveries) -> None:
        self._paths = paths
        self._deliveries = deliveries
        self._queues = RoomQueues()
        self._full_since: dict[tuple[str, bool], float] = {}
        """By topic (of events, or of streams) whose deliveries wait for room: since when nothing changed."""
        self._waiting: int | None = None
        """While a queue is emptied: how many events were in it."""
        self._sent = 0
        self.repeated = 0
        """How many events were sent along a further path since the node started."""

    @property
    def waiting(self) -> Iterator[AnycastDelivery]:
        """The deliveries that wait for room on any path."""
        return iter(self._queues)

    def waiting_streams(self, topic: str) -> list[AnycastDelivery]:
        """The streams of a topic that wait for room."""
        return list(self._queues.streams.get(topic, ()))

    def forward(self, delivery: AnycastDelivery, now: float, has_waited: bool = False) -> None:
        """Send it along the best paths that have room; in parts, if there are several or the room is for a part."""
        if delivery.terms.mode == "multicast":
            self._spread(delivery, now)
            return
        rest: AnycastDelivery | None = delivery
        while rest is not None:
            delivery, rest = rest, None
            candidates = self._paths.candidates(delivery)
            with_room = self._with_room(candidates, delivery)
            if not candidates:
                self._deliveries.finish_without_path(delivery, now)
            elif not with_room:
                self._queues.add(delivery, has_waited)
                self._full_since.setdefault((delivery.topic, delivery.terms.is_stream), now)
            else:
                rest = self._share(delivery, with_room, now)

    def _with_room(
        self, candidates: list[Candidate], delivery: AnycastDelivery
    ) -> list[tuple[Candidate, int]]:
        """The candidates that take at least one event of it now, and how many at most."""
        is_balanced, waiting = delivery.is_balanced, self._waiting
        found = [(candidate, candidate[3].room(is_balanced)) for candidate in candidates]
        if is_balanced and waiting is not None:
            paths = len(candidates)
            found = [(one, min(room, portion(one[3], paths, waiting))) for one, room in found if room > 0]
        return [(candidate, room) for candidate, room in found if room > 0]

    def _share(
        self, delivery: AnycastDelivery, with_room: list[tuple[Candidate, int]], now: float
    ) -> AnycastDelivery | None:
        """Send ranges of it along the best paths, as if each event chose for itself. Returns what has no room."""
        rest: AnycastDelivery | None = delivery
        for path, count in shares_of(delivery, with_room):
            assert rest is not None, "paths get no more events than there are"
            part, rest = rest, None
            if count < part.count:
                rest = self._deliveries.split(part, part.start + count)
            self._send(part, path, now)
        return rest

    def _send(self, delivery: AnycastDelivery, path: Path, now: float) -> None:
        self._sent += 1
        if delivery.sent_at:
            self.repeated += delivery.count
        delivery.send(now, is_attempt=not path.is_neighbour)
        path.send(delivery, self._sent)
        terms = delivery.terms
        attempts = terms.attempts_before + delivery.attempts
        if not path.is_neighbour:
            self._deliveries.emit(
                DeliverLocally(
                    key=path.key,
                    topic=terms.topic,
                    source=terms.source,
                    start=delivery.start,
                    stop=delivery.stop,
                    batch=delivery.batch,
                    attempt=attempts,
                )
            )
            return
        self._deliveries.emit(
            ForwardToNeighbour(
                key=path.key,
                topic=terms.topic,
                source=terms.source,
                start=delivery.start,
                stop=delivery.stop,
                batch=delivery.batch,
                origin=terms.origin,
                mode=terms.mode,
                resend=delivery.resend,
                attempts=attempts,
                visited=sorted(delivery.visited),
                deadline=terms.deadline,
            )
        )

    # -- to all

    def _spread(self, delivery: AnycastDelivery, now: float) -> None:
        """Send one copy along every path."""
        paths = self._paths.to_all(delivery)
        if not paths:
            self._deliveries.finish_without_path(delivery, now)
            return
        join = JoinedOutcomes(len(paths) * delivery.count)
        delivery.spread()
        for path, copy in zip(paths, delivery.copies(len(paths), join), strict=True):
            path.queue(copy)
            self._send_backlog(path, now)

    def _send_backlog(self, path: Path, now: float) -> None:
        while (copy := path.next_copy()) is not None:
            self._send(copy, path, now)

    # -- what waits

    def pump(self, path: Path, now: float) -> None:
        """A path may have room: send the deliveries that wait for it."""
        if path.backlog:
            self._send_backlog(path, now)
        if self._queues.events:
            self._pump_queues(self._queues.events, path.pattern, now)
        if self._queues.streams:
            self._pump_queues(self._queues.streams, path.pattern, now)

    def look_again(self, now: float) -> None:
        """The paths changed: try deliveries that wait for room or had no path."""
        self._pump_queues(self._queues.events, None, now)
        self._pump_queues(self._queues.streams, None, now)
        for delivery in self._deliveries.parked.with_new_path(self._paths.has_path):
            self.unpark(delivery, now)

    def unpark(self, delivery: AnycastDelivery, now: float) -> None:
        """Try a parked delivery again."""
        self._deliveries.unpark(delivery)
        self.forward(delivery, now)

    def _pump_queues(self, queues: Queues, pattern: Pattern | None, now: float) -> None:
        for topic in [topic for topic in queues if pattern is None or pattern.matches(topic)]:
            self._pump_topic(queues, topic, now)

    def _pump_topic(self, queues: Queues, topic: str, now: float, in_portions: bool = True) -> None:
        queue = queues.get(topic, RoomQueue())
        self._waiting = queue.events if in_portions else None
        try:
            is_empty = self._empty(queue, now)
        finally:
            self._waiting = None
        key = topic, queues is self._queues.streams
        if is_empty:
            queues.pop(topic, None)
            self._full_since.pop(key, None)
        else:
            self._full_since[key] = now

    def _empty(self, queue: RoomQueue, now: float) -> bool:
        """Send what waits, as far as there is room. True if nothing waits any more."""
        while queue:
            delivery = queue.take()
            if not delivery.is_waiting:
                continue
            candidates = self._paths.candidates(delivery)
            if candidates and not self._with_room(candidates, delivery):
                queue.put(delivery, is_first=True)
                return False
            delivery.select_again()
            self.forward(delivery, now, has_waited=True)
        return True

    # -- while all paths are full

    def next_deadline(self) -> float | None:
        """When full paths that settle nothing get more."""
        return min(self._full_since.values()) + PATIENCE_S if self._full_since else None

    def tick(self, now: float) -> None:
        """Deliveries have waited for long: paths that settle nothing get more of them."""
        for (topic, is_stream), since in list(self._full_since.items()):
            if now >= since + PATIENCE_S:
                self._full_since[topic, is_stream] = now
                queues = self._queues.streams if is_stream else self._queues.events
                self._grow_windows(queues, topic, now)
                self._pump_topic(queues, topic, now, in_portions=False)

    def _grow_windows(self, queues: Queues, topic: str, now: float) -> None:
        first = next(iter(queues.get(topic, ())), None)
        for candidate in self._paths.candidates(first) if first is not None else ():
            window = candidate[3].credit.window
            if window is not None and candidate[3].unsettled >= window.size:
                window.grow(now)
