"""Anycast: each event goes to one of those who subscribe, wherever they are, and its outcome comes back.

A delivery on one node, as specifications call it:

    NEW -select-> FORWARDED(path)                 no path -> RELEASED upstream
    FORWARDED:
      RECEIVED                    -> PINNED: no further path is tried
      ACCEPTED, REJECTED, MODIFIED -> upstream, done
      RELEASED, to be resent      -> this path is excluded for this delivery -> select again
      RELEASED otherwise          -> upstream
      path lost, not yet sent     -> select again
      path lost, sent, unsettled  -> MODIFIED: in doubt. Never RELEASED, which promises that it was not processed

Nothing is sent that a path has no room for: it waits here, for whichever path has room first. The search is depth
first. A delivery carries the nodes that have it or have had it, so each is tried at most once, and no loop can form
even while nodes do not agree on the routes.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final, assert_never

import msgspec

from reknit.batch import SEQ_MAX
from reknit.event import FLAG_STREAM
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast_messages import (
    Attach,
    Detach,
    Effect,
    Grant,
    Hand,
    Input,
    NeighbourDown,
    NeighbourUp,
    NewRoutes,
    Offered,
    Pass,
    Resolve,
    Returns,
    Rows,
    Stall,
    Tried,
    Withdraw,
)
from reknit.protocol.anycast_state import GONE, HERE, Delivery, Join, Path, Unit
from reknit.protocol.link_messages import Return
from reknit.protocol.machine import Peer
from reknit.protocol.messages import Row
from reknit.protocol.outcome_messages import Fate
from reknit.protocol.retry import Retry
from reknit.protocol.routes import Routes
from reknit.topic import Pattern, TopicIndex

NO_PATH: Final = "nobody subscribes to it who has not released it"
IN_DOUBT: Final = "the path was lost with it on the way: whether it was processed is not known"

STALE_MIN: Final = 64

Candidate = tuple[int, int, int, Path]


@dataclass(slots=True)
class Limits:
    """How much a neighbour has at a time, and how soon this node tries again what everybody released."""

    link_events: int = 65_536
    link_bytes: int = 16 << 20
    retry: Retry | None = None


class Anycast:
    """All deliveries of one node.

    >>> from reknit.batch import Batch
    >>> anycast = Anycast("a", Routes("a", 1), Random(1))
    >>> anycast.receive(Attach(Pattern("orders"), "events", 10, "first"), "one", 0.0)
    >>> batch = Batch.build(b"s" * 16, "orders", 1, [b"x"], time_us=0)
    >>> anycast.receive(Offered(batch, "balanced", resend=True), HERE, 0.0)
    >>> [hand] = anycast.take_effects()
    >>> anycast.receive(Rows([Row("orders", b"s" * 16, 1, 2, Outcome.ACCEPTED)]), hand.key, 0.1)
    >>> Outcome(anycast.take_effects()[-1].fate.outcome).name
    'ACCEPTED'
    """

    def __init__(self, name: str, routes: Routes, rng: Random, limits: Limits | None = None) -> None:
        self.name = name
        self._routes = routes
        self._rng = rng
        self._limits = limits or Limits()
        self._retry = self._limits.retry or Retry()
        self._paths: dict[Peer, Path] = {}
        self._neighbours: dict[str, Path] = {}
        self._index: TopicIndex[Path] = TopicIndex()
        self._waiting: dict[str, deque[Delivery]] = {}
        self._waiting_streams: dict[str, deque[Delivery]] = {}
        """Apart, since not everyone takes them: nothing else waits behind them."""
        self._parked: list[tuple[float, int, Delivery]] = []
        self._nobody: dict[str, list[Delivery]] = {}
        """Of the parked, those for which there was no path at all, by topic."""
        self._deadlines: list[tuple[float, int, Delivery]] = []
        self._stale = 0
        """How many of those have ended since; they are cleared away before they are the most of it."""
        self._count = 0
        self._ids = 0
        self.held_bytes = 0
        """Of events that were published here: in memory, because they wait or are on their way."""
        self.parked = 0
        self._effects: list[Effect] = []

    # -- questions

    @property
    def has_effects(self) -> bool:
        """Whether there is something to be done."""
        return bool(self._effects)

    def has_path(self, topic: str, is_stream: bool = False) -> bool:
        """Whether anyone is there who may take an event (or a stream), with or without room for it."""
        if any(path.takes_streams or not is_stream for path in self._index.match(topic)):
            return True
        ways = self._routes.ways()
        return any(
            node in ways and ways[node].first in self._neighbours
            for node in self._routes.destinations(topic, "stream" if is_stream else "any")
        )

    def unsettled(self, key: Peer) -> int:
        """How many events a path has and has not settled."""
        path = self._paths.get(key) or self._neighbours.get(str(key))
        return path.unsettled if path else 0

    def waiting(self, topic_of: Pattern | None = None) -> int:
        """How many events wait for room."""
        return sum(
            delivery.count
            for topic, queue in self._queues()
            if topic_of is None or topic_of.matches(topic)
            for delivery in queue
            if delivery.is_waiting
        )

    def records(self) -> int:
        """How many deliveries are remembered here, in any state: 0 when all is settled."""
        sent = sum(1 for path in [*self._paths.values(), *self._neighbours.values()] for _ in path)
        waiting = sum(d.is_waiting for _, queue in self._queues() for d in queue)
        backlog = sum(len(path.backlog) for path in self._paths.values())
        return sent + waiting + backlog + self.parked

    def _queues(self) -> list[tuple[str, deque[Delivery]]]:
        return [*self._waiting.items(), *self._waiting_streams.items()]

    def paths(self) -> list[Path]:
        """All that are alive."""
        return [*self._paths.values(), *self._neighbours.values()]

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a publisher or subscriber of this node, from a neighbour (its name), or about the links."""
        match message:
            case Offered():
                self._offer(message, peer, now)
            case Rows(rows=rows):
                self._settle(peer, rows, now)
            case Returns(rows=returns):
                self._returned(str(peer), returns, now)
            case Grant(total=total):
                self._grant(peer, total, now)
            case Attach():
                self._attach(message, peer, now)
            case Detach(is_clean=is_clean):
                self._detach(peer, is_clean, now)
            case Stall(is_blocked=is_blocked):
                self._stall(peer, is_blocked, now)
            case NeighbourUp():
                self._neighbour_up(str(peer), now)
            case NeighbourDown():
                self._neighbour_down(str(peer), now)
            case NewRoutes():
                self._look_again(now)
            case Withdraw():
                self._withdraw(message, now)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """Try again what is due, and end what is too old."""
        while self._deadlines and self._deadlines[0][0] <= now:
            delivery = heapq.heappop(self._deadlines)[2]
            if delivery.path is None and not delivery.is_done and not delivery.is_pinned:
                self._expire(delivery, now)
        while self._parked and self._parked[0][0] <= now:
            delivery = heapq.heappop(self._parked)[2]
            if delivery.is_parked:
                self._unpark(delivery, now)

    def next_deadline(self) -> float | None:
        """The next try, or the next end."""
        for heap in (self._parked, self._deadlines):
            while heap and (heap[0][2].is_done or (heap is self._parked and not heap[0][2].is_parked)):
                heapq.heappop(heap)
        return min([heap[0][0] for heap in (self._parked, self._deadlines) if heap], default=None)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- paths come and go

    def _new_path(self, key: Peer, name: str, is_neighbour: bool, unit: Unit, granted: int) -> Path:
        self._ids += 1
        return Path(self._ids, key, name, is_neighbour, unit, granted=granted)

    def _attach(self, message: Attach, key: Peer, now: float) -> None:
        assert key not in self._paths, "a path is attached once"
        path = self._new_path(key, message.name, False, message.unit, message.credit)
        path.pattern, path.takes_streams = message.pattern, message.takes_streams
        self._paths[key] = path
        self._index.add(message.pattern, path)
        self._look_again(now)

    def _grant(self, key: Peer, total: int, now: float) -> None:
        path = self._paths.get(key)
        if path is not None and total != path.granted:
            path.granted = total
            self._pump(path, now)

    def _stall(self, peer: Peer, is_blocked: bool, now: float) -> None:
        path = self._paths.get(peer) or self._neighbours.get(str(peer))
        if path is not None:
            path.is_blocked = is_blocked
            self._pump(path, now)

    def _detach(self, key: Peer, is_clean: bool, now: float) -> None:
        path = self._paths.pop(key, None)
        if path is None or path.pattern is None:
            return
        self._index.remove(path.pattern, path)
        self._lose(path, is_clean, now)

    def _neighbour_up(self, name: str, now: float) -> None:
        assert name not in self._neighbours, "one link to a neighbour"
        path = self._new_path(name, name, True, "unsettled", self._limits.link_events)
        path.bytes_max, path.takes_streams = self._limits.link_bytes, True
        self._neighbours[name] = path
        self._look_again(now)

    def _neighbour_down(self, name: str, now: float) -> None:
        path = self._neighbours.pop(name, None)
        if path is None:
            return
        self._forget_upstream(name)
        self._lose(path, False, now)

    def _forget_upstream(self, name: str) -> None:
        """What came from there is in doubt there by now: what was not sent on is not sent on any more."""
        for _, queue in self._queues():
            for delivery in queue:
                if delivery.up == name and delivery.is_waiting:
                    self._end(delivery)
        for path in self.paths():
            for delivery in path:
                origin = delivery.join.parent if delivery.join is not None else delivery
                if origin.up == name:
                    origin.up = GONE
                    delivery.resend = False

    def _lose(self, path: Path, is_clean: bool, now: float) -> None:
        """What is with it was released, or is in doubt; what was not sent goes another way."""
        taken = path.take_all()
        for delivery in taken:
            if is_clean:
                self._released(delivery, path, Fate(delivery.start, delivery.stop, Outcome.RELEASED), (), now)
            else:
                self._try_ended(delivery, path, Outcome.MODIFIED, IN_DOUBT)
                self._finish(delivery, Outcome.MODIFIED, Code.UNKNOWN, IN_DOUBT, now, path=path.name)
        backlog, path.backlog = path.backlog, deque()
        for delivery in backlog:
            self._finish(delivery, Outcome.RELEASED, Code.UNAVAILABLE, "it left before it was sent", now)
        self._look_again(now)

    # -- select

    def _offer(self, message: Offered, up: Peer, now: float) -> None:
        head = message.batch.head
        delivery = Delivery(
            head.topic, head.source, head.first, head.stop, message.batch, head.length, up,
            message.origin or self.name, message.mode, message.resend or message.keeps,
            frozenset((*message.visited, self.name)), message.keeps, message.deadline, before=message.attempts,
        )  # fmt: skip
        if head.flags and head.flags & FLAG_STREAM:
            delivery.is_stream = True
        if up == HERE:
            self.held_bytes += delivery.size
        self._watch(delivery)
        self._forward(delivery, now)

    def _watch(self, delivery: Delivery) -> None:
        if delivery.deadline is not None:
            self._count += 1
            heapq.heappush(self._deadlines, (delivery.deadline, self._count, delivery))

    def _unwatch(self) -> None:
        """One that had a deadline has ended long before it: what it carries is not held until then."""
        self._stale += 1
        if self._stale > STALE_MIN and 2 * self._stale > len(self._deadlines):
            self._deadlines = [row for row in self._deadlines if not row[2].is_done]
            heapq.heapify(self._deadlines)
            self._stale = 0

    def _candidates(self, delivery: Delivery) -> list[Candidate]:
        """(how good, how far, how long ago, path), the best first by comparison."""
        is_closest = delivery.mode == "closest"
        found = [
            (0 if is_closest else path.unsettled, 0, path.last_used, path)
            for path in self._index.match(delivery.topic)
            if path.id not in delivery.excluded
        ]
        if not delivery.is_stream:
            nodes = self._routes.destinations(delivery.topic, "any")
        else:
            found = [candidate for candidate in found if candidate[3].takes_streams]
            nodes = self._routes.destinations(delivery.topic, "stream")
        ways = self._routes.ways(delivery.visited) if nodes else {}
        for node in nodes:
            way = ways.get(node)
            path = self._neighbours.get(way.first) if way is not None else None
            if way is not None and path is not None:
                value = way.cost if is_closest else path.unsettled + way.cost
                found.append((value, way.cost, path.last_used, path))
        return found

    def _forward(self, delivery: Delivery, now: float, has_waited: bool = False) -> None:
        """Send it along the best path that has room; in parts, if the room is for a part."""
        if delivery.mode == "multicast":
            self._spread(delivery, now)
            return
        rest: Delivery | None = delivery
        while rest is not None:
            delivery, rest = rest, None
            candidates = self._candidates(delivery)
            with_room = [candidate for candidate in candidates if candidate[3].room() > 0]
            if not candidates:
                self._finish(delivery, Outcome.RELEASED, Code.UNAVAILABLE, NO_PATH, now)
            elif not with_room:
                self._wait(delivery, has_waited)
            else:
                path = min(with_room, key=_rank)[3]
                if path.room() < delivery.count and path.unit == "events":
                    rest = self._split(delivery, delivery.start + path.room())
                self._send(delivery, path, now)

    def _split(self, delivery: Delivery, at: int) -> Delivery:
        rest = delivery.split(at)
        self._watch(rest)
        return rest

    def _wait(self, delivery: Delivery, has_waited: bool = False) -> None:
        """Wait for room: the rest of what has waited before all that came later, so that order stays."""
        delivery.is_waiting = True
        waiting = self._waiting_streams if delivery.is_stream else self._waiting
        queue = waiting.setdefault(delivery.topic, deque())
        if has_waited:
            queue.appendleft(delivery)
        else:
            queue.append(delivery)

    def _send(self, delivery: Delivery, path: Path, now: float) -> None:
        self._count += 1
        path.last_used = self._count
        delivery.path, delivery.sent_at = path, now
        path.add(delivery)
        what = (path.key, delivery.topic, delivery.source, delivery.start, delivery.stop, delivery.batch)
        if path.is_neighbour:
            self._effects.append(
                Pass(
                    *what,
                    delivery.origin,
                    delivery.mode,
                    delivery.resend,
                    delivery.before + delivery.tries,
                    sorted(delivery.visited),
                    delivery.deadline,
                )
            )
        else:
            delivery.tries += 1
            self._effects.append(Hand(*what, delivery.before + delivery.tries))

    # -- waiting

    def _pump(self, path: Path, now: float) -> None:
        """A path may have room: give it what waits for it."""
        while path.backlog and path.room() > 0:
            self._send_copy(path.backlog.popleft(), path, now)
        if self._waiting:
            self._pump_waiting(self._waiting, path.pattern, now)
        if self._waiting_streams:
            self._pump_waiting(self._waiting_streams, path.pattern, now)

    def _pump_waiting(self, waiting: dict[str, deque[Delivery]], pattern: Pattern | None, now: float) -> None:
        for topic in [topic for topic in waiting if pattern is None or pattern.matches(topic)]:
            self._pump_topic(waiting, topic, now)

    def _pump_topic(self, waiting: dict[str, deque[Delivery]], topic: str, now: float) -> None:
        queue = waiting.get(topic)
        while queue:
            delivery = queue.popleft()
            if not delivery.is_waiting:
                continue
            candidates = self._candidates(delivery)
            if candidates and not any(candidate[3].room() > 0 for candidate in candidates):
                queue.appendleft(delivery)
                return
            delivery.is_waiting = False
            self._forward(delivery, now, has_waited=True)
        waiting.pop(topic, None)

    def _look_again(self, now: float) -> None:
        """The paths are others than before: for what waits, and for what had none."""
        for waiting in (self._waiting, self._waiting_streams):
            for topic in list(waiting):
                self._pump_topic(waiting, topic, now)
        for topic in [topic for topic in self._nobody if self.has_path(topic)]:
            for delivery in self._nobody.pop(topic):
                if delivery.is_parked:
                    self._unpark(delivery, now)

    # -- to all

    def _spread(self, delivery: Delivery, now: float) -> None:
        """One copy to every subscriber here and to every neighbour that leads to some."""
        nodes = [node for node in self._routes.destinations(delivery.topic, "any") if node != self.name]
        hops = [hop for hop in self._routes.children(delivery.origin, nodes) if hop not in delivery.visited]
        paths = [
            *self._index.match(delivery.topic),
            *(self._neighbours[hop] for hop in hops if hop in self._neighbours),
        ]
        if not paths:
            self._finish(delivery, Outcome.RELEASED, Code.UNAVAILABLE, NO_PATH, now)
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

    # -- outcomes

    def _settle(self, key: Peer, rows: list[Row], now: float) -> None:
        path = self._paths.get(key)
        if path is None:
            return
        for row in rows:
            for delivery in path.take((row.topic, row.source), row.start, row.stop):
                outcome = Outcome.MODIFIED if row.outcome == Outcome.FAILED else row.outcome
                fate = Fate(delivery.start, delivery.stop, outcome, row.code, row.text)
                self._outcome(delivery, path, fate, (), now)
        self._pump(path, now)

    def _returned(self, name: str, rows: list[Return], now: float) -> None:
        path = self._neighbours.get(name)
        if path is None:
            return
        for row in rows:
            for delivery in path.take((row.topic, row.source), row.fate.start, row.fate.stop):
                fate = msgspec.structs.replace(row.fate, start=delivery.start, stop=delivery.stop)
                self._outcome(delivery, path, fate, row.visited, now)
        self._pump(path, now)

    def _outcome(
        self, delivery: Delivery, path: Path, fate: Fate, visited: list[str] | tuple[str, ...], now: float
    ) -> None:
        match fate.outcome:
            case Outcome.RECEIVED:
                delivery.is_pinned, delivery.resend = True, False
                path.put_back(delivery)
                if delivery.join is None:
                    self._tell(delivery, fate, path)
            case Outcome.RELEASED:
                self._released(delivery, path, fate, visited, now)
            case Outcome.ACCEPTED | Outcome.REJECTED | Outcome.MODIFIED:
                self._try_ended(delivery, path, Outcome(fate.outcome), fate.text)
                if path.is_neighbour:
                    delivery.tries += fate.attempts
                where = (fate.node or self.name, fate.path or path.name)
                self._finish(delivery, Outcome(fate.outcome), fate.code, fate.text, now, *where)
            case _:
                path.put_back(delivery)  # no outcome that we know: it is still unsettled

    def _released(
        self, delivery: Delivery, path: Path, fate: Fate, visited: list[str] | tuple[str, ...], now: float
    ) -> None:
        self._try_ended(delivery, path, Outcome.RELEASED, fate.text)
        if path.is_neighbour:
            delivery.tries += fate.attempts
            delivery.visited = delivery.visited.union(visited, (path.name,))
        else:
            delivery.excluded |= {path.id}
        delivery.path = None
        if delivery.deadline is not None and now >= delivery.deadline:
            self._expire(delivery, now)
        elif delivery.resend and delivery.join is None:
            self._forward(delivery, now)
        else:
            where = (fate.node or self.name, fate.path or path.name)
            self._finish(delivery, Outcome.RELEASED, fate.code, fate.text, now, *where)

    def _try_ended(self, delivery: Delivery, path: Path, outcome: Outcome, text: str) -> None:
        self._effects.append(
            Tried(
                delivery.topic,
                delivery.source,
                delivery.start,
                delivery.stop,
                path.name,
                delivery.sent_at,
                outcome,
                text,
            )
        )

    def _finish(
        self,
        delivery: Delivery,
        outcome: Outcome,
        code: int,
        text: str,
        now: float,
        node: str = "",
        path: str = "",
    ) -> None:
        """It has its outcome: upstream is told, unless this node is the one who wants it delivered."""
        fate = Fate(
            delivery.start, delivery.stop, outcome, code, text, node or self.name, path, delivery.tries
        )  # fmt: skip
        if delivery.join is not None:
            delivery.is_done = True
            if delivery.join.add(fate):
                self._finish_joined(delivery.join, now)
        elif delivery.keeps and outcome in (Outcome.RELEASED, Outcome.MODIFIED):
            self._park(delivery, now, is_nobody=text is NO_PATH and not delivery.excluded)
        else:
            self._tell(delivery, fate, delivery.path)
            self._end(delivery)

    def _finish_joined(self, join: Join, now: float) -> None:
        rest: Delivery | None = join.parent
        for fate in join.joined():
            assert rest is not None, "the copies' outcomes cover the whole"
            delivery, rest = rest, rest.split(fate.stop) if fate.stop < rest.stop else None
            delivery.tries = fate.attempts
            outcome = Outcome(fate.outcome)
            self._finish(delivery, outcome, fate.code, fate.text, now, fate.node, fate.path)

    def _tell(self, delivery: Delivery, fate: Fate, path: Path | None) -> None:
        if delivery.up == GONE:
            return
        where = (
            fate
            if fate.node
            else msgspec.structs.replace(fate, node=self.name, path=path.name if path else "")
        )
        self._effects.append(
            Resolve(
                delivery.up, delivery.topic, delivery.source, where, sorted(delivery.visited), delivery.keeps
            )
        )

    def _withdraw(self, message: Withdraw, now: float) -> None:
        """It is nobody's any more, wherever it is."""
        for path in self.paths():
            for delivery in path.take((message.topic, message.source), 1, SEQ_MAX):
                self._try_ended(delivery, path, Outcome.MODIFIED, message.text)
                self._end(delivery)
                self._pump(path, now)
        for delivery in self._waiting_streams.get(message.topic, ()):
            if delivery.source == message.source:
                self._end(delivery)

    def _end(self, delivery: Delivery) -> None:
        delivery.is_done, delivery.is_waiting, delivery.path = True, False, None
        if delivery.deadline is not None:
            self._unwatch()
        if delivery.is_parked:
            delivery.is_parked = False
            self.parked -= 1
        elif delivery.up == HERE:
            self.held_bytes -= delivery.size

    # -- what this node tries itself until somebody takes it

    def _park(self, delivery: Delivery, now: float, is_nobody: bool) -> None:
        delivery.rounds += 1
        delivery.path, delivery.batch, delivery.is_parked = None, None, True
        self.held_bytes -= delivery.size
        self.parked += 1
        if is_nobody:
            self._nobody.setdefault(delivery.topic, []).append(delivery)
            return
        self._count += 1
        due = now + self._retry.delay_s(delivery.rounds, self._rng)
        heapq.heappush(self._parked, (due, self._count, delivery))

    def _unpark(self, delivery: Delivery, now: float) -> None:
        delivery.is_parked, delivery.is_pinned, delivery.resend = False, False, True
        delivery.excluded, delivery.visited = frozenset(), frozenset((self.name,))
        self.parked -= 1
        self.held_bytes += delivery.size
        self._forward(delivery, now)

    def _expire(self, delivery: Delivery, now: float) -> None:
        fate = Fate(
            delivery.start, delivery.stop, Outcome.REJECTED, Code.DEADLINE_EXCEEDED, "its ttl ran out",
            self.name, "", delivery.tries,
        )  # fmt: skip
        self._tell(delivery, fate, None)
        self._end(delivery)


def _rank(candidate: Candidate) -> tuple[int, int, int, str, int]:
    """Better, then nearer, then longer ago, then by name where nodes are concerned, then older."""
    value, cost, used, path = candidate
    return value, cost, used, path.name if path.is_neighbour else "", path.id
