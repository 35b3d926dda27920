"""Which way a delivery goes: along the best path that has room, to all, or nowhere yet."""

from __future__ import annotations

from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.deliveries import NO_PATH, Deliveries
from reknit.protocol.anycast.inputs import Hand, Pass
from reknit.protocol.anycast.paths import Paths, rank
from reknit.protocol.anycast.state import Delivery, Join, Path
from reknit.protocol.anycast.waiting import Queues, Waiting
from reknit.topic import Pattern


class Forwarding:
    """Sends deliveries along paths, as far as there is room, and remembers what waits for it."""

    def __init__(self, paths: Paths, deliveries: Deliveries) -> None:
        self._paths = paths
        self._deliveries = deliveries
        self.waiting = Waiting()
        self._sent = 0

    def forward(self, delivery: Delivery, now: float, has_waited: bool = False) -> None:
        """Send it along the best path that has room; in parts, if the room is for a part."""
        if delivery.mode == "multicast":
            self._spread(delivery, now)
            return
        rest: Delivery | None = delivery
        while rest is not None:
            delivery, rest = rest, None
            candidates = self._paths.candidates(delivery)
            with_room = [candidate for candidate in candidates if candidate[3].room() > 0]
            if not candidates:
                self._deliveries.finish(delivery, Outcome.RELEASED, Code.UNAVAILABLE, NO_PATH, now)
            elif not with_room:
                self.waiting.add(delivery, has_waited)
            else:
                path = min(with_room, key=rank)[3]
                if path.room() < delivery.count and path.unit == "events":
                    rest = self._deliveries.split(delivery, delivery.start + path.room())
                self._send(delivery, path, now)

    def _send(self, delivery: Delivery, path: Path, now: float) -> None:
        self._sent += 1
        path.last_used = self._sent
        delivery.path, delivery.sent_at = path, now
        path.add(delivery)
        what = (path.key, delivery.topic, delivery.source, delivery.start, delivery.stop, delivery.batch)
        if path.is_neighbour:
            how = (delivery.origin, delivery.mode, delivery.resend, delivery.before + delivery.tries)
            visited = sorted(delivery.visited)
            self._deliveries.effects.append(Pass(*what, *how, visited, delivery.deadline))
        else:
            delivery.tries += 1
            self._deliveries.effects.append(Hand(*what, delivery.before + delivery.tries))

    # -- to all

    def _spread(self, delivery: Delivery, now: float) -> None:
        """One copy along every path."""
        paths = self._paths.to_all(delivery)
        if not paths:
            self._deliveries.finish(delivery, Outcome.RELEASED, Code.UNAVAILABLE, NO_PATH, now)
            return
        join = Join(delivery, len(paths) * delivery.count)
        delivery.is_pinned = True
        for path in paths:
            copy = Delivery(
                delivery.topic, delivery.source, delivery.start, delivery.stop, delivery.batch, delivery.size,
                delivery.up, delivery.origin, delivery.mode, False, delivery.visited, join=join,
            )  # fmt: skip
            if path.backlog or path.room() <= 0:
                path.backlog.append(copy)
            else:
                self._send_copy(copy, path, now)

    def _send_copy(self, copy: Delivery, path: Path, now: float) -> None:
        if path.unit == "events" and path.room() < copy.count:
            path.backlog.appendleft(copy.split(copy.start + path.room()))
        self._send(copy, path, now)

    # -- what waits

    def pump(self, path: Path, now: float) -> None:
        """A path may have room: give it what waits for it."""
        while path.backlog and path.room() > 0:
            self._send_copy(path.backlog.popleft(), path, now)
        if self.waiting.events:
            self._pump_queues(self.waiting.events, path.pattern, now)
        if self.waiting.streams:
            self._pump_queues(self.waiting.streams, path.pattern, now)

    def look_again(self, now: float) -> None:
        """The paths are others than before: for what waits, and for what had none."""
        self._pump_queues(self.waiting.events, None, now)
        self._pump_queues(self.waiting.streams, None, now)
        for delivery in self._deliveries.parked.awaited(self._paths.has_path):
            self.unpark(delivery, now)

    def unpark(self, delivery: Delivery, now: float) -> None:
        """Try again what everybody released."""
        self._deliveries.unpark(delivery)
        self.forward(delivery, now)

    def _pump_queues(self, queues: Queues, pattern: Pattern | None, now: float) -> None:
        for topic in [topic for topic in queues if pattern is None or pattern.matches(topic)]:
            self._pump_topic(queues, topic, now)

    def _pump_topic(self, queues: Queues, topic: str, now: float) -> None:
        queue = queues.get(topic)
        while queue:
            delivery = queue.popleft()
            if not delivery.is_waiting:
                continue
            candidates = self._paths.candidates(delivery)
            if candidates and not any(candidate[3].room() > 0 for candidate in candidates):
                queue.appendleft(delivery)
                return
            delivery.is_waiting = False
            self.forward(delivery, now, has_waited=True)
        queues.pop(topic, None)
