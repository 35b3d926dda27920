"""A node's anycast: takes events of topics with a distribution from the journal, gives each to who should have it, and
tells its publisher what became of it.

The machine decides (`reknit.protocol.anycast`); this gives it the journal, connections, gateways and the ledger.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from reknit.batch import Batch
from reknit.errors import Gone, InvalidConfig, InvalidTopic
from reknit.event import FLAG_STREAM
from reknit.ledger import Stream
from reknit.node.anycast_ends import FeedOfSenders, GatewayReceiver, GatewaySender
from reknit.node.bookings import Bookings
from reknit.node.delivering import OnHanded, OnPath, OnResults, StreamTaker
from reknit.node.peers import PeerState
from reknit.node.streams import DISTRIBUTIONS, Here, NodeStreams
from reknit.node.trail import Attempt, Trail
from reknit.outcome import Code, End, Outcome
from reknit.protocol import anycast as machines
from reknit.protocol.anycast_messages import (
    Attach,
    Detach,
    Grant,
    Hand,
    Input,
    Offered,
    Pass,
    Resolve,
    Rows,
    Stall,
    Tried,
)
from reknit.protocol.anycast_state import HERE
from reknit.protocol.codec import encode
from reknit.protocol.machine import Peer
from reknit.protocol.messages import (
    Credit,
    Deliver,
    Fate,
    PathThere,
    Refuse,
    Return,
    Row,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    Told,
    Unsubscribe,
    Unsubscribed,
    Want,
)
from reknit.protocol.retry import Retry
from reknit.seqset import SeqSet
from reknit.topic import Pattern

if TYPE_CHECKING:
    from random import Random

    from reknit.node.node import Node

JOURNAL: Final = "journal"
BOOK_S: Final = 0.02
"""Ends go into the journal together, so often."""
FLOOR_S: Final = 5.0
"""How often it is written down how far everything has ended, without an end to go with it."""
READ_BYTES: Final = 1 << 20


class Wanting(msgspec.Struct):
    """Who wants to hear of a source's events: a connection, or a gateway's sender."""

    topic: str
    resend: bool
    peer: int = 0
    sender: GatewaySender | None = None
    has_path: bool | None = None


class NodeAnycast:
    """All anycast of one node; `node.anycast`."""

    def __init__(self, node: Node, rng: Random) -> None:
        config = node.config
        self._node = node
        self._rules = [rule for rule in config.topics if rule.distribution != JOURNAL]
        self._check_rules()
        dispatch = config.dispatch
        retry = Retry(dispatch.retry_backoff_s_min, dispatch.retry_backoff_s_max)
        limits = machines.Limits(config.links.window_events, config.links.window_bytes, retry)
        self.machine = machines.Anycast(node.name, node.links.routes, rng, limits)
        self.trail = Trail(config.anycast.trail_attempts_max)
        self.bookings = Bookings(node.core, [rule.pattern for rule in self._rules])
        self.is_on = bool(self._rules)
        self.streams = NodeStreams(node)
        self._under_way = self.streams.topics
        self._stream_takers: set[Peer] = set()
        self._modes: dict[str, str] = {}
        self._subs: dict[tuple[int, int], Pattern] = {}
        self._wanting: dict[bytes, Wanting] = {}
        self._told: dict[bytes, list[Fate]] = {}
        self._paths_moved = False
        self._cursor = self._resumed_to = node.journal.end
        self._feed = FeedOfSenders(node, self._kept_of_sender, self._refused_of_sender)
        self._is_scheduled = False
        self._booking: asyncio.TimerHandle | None = None
        self._flooring: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        # The least interrupted of several looks at both clocks, so that nodes agree on what came first.
        self._zero_us = max(time.time_ns() // 1000 - time.monotonic_ns() // 1000 for _ in range(9))

    def _time_us(self, at: float) -> int:
        return self._zero_us + int(at * 1e6)

    def _check_rules(self) -> None:
        """An account's pattern says which topics it is about: no other rule may take some of them out."""
        topics = self._node.config.topics
        for at, rule in enumerate(topics):
            for before in topics[:at]:
                differs = before.distribution != rule.distribution and rule.distribution != JOURNAL
                if differs and before.pattern.intersects(rule.pattern):
                    text = f"has topics in common with {before.pattern.text!r} before it, which is {before.distribution}"
                    origin = dict(self._node.config.origins).get("topics", "code")
                    raise InvalidConfig(f"topics[{at}].distribution", origin, text)

    def start(self) -> None:
        """Open the accounts, and take up what was on its way when the node stopped."""
        if self.is_on:
            self._cursor = self.bookings.open(self._now())
            self._flooring = self._loop.call_later(FLOOR_S, self._move_floor)
            self.kept()

    async def stop(self) -> None:
        """Write down what ended."""
        for timer in (self._booking, self._flooring):
            if timer is not None:
                timer.cancel()
        self._book()
        self.streams.close()
        await self._feed.close()

    def _now(self) -> float:
        return time.monotonic()  # the loop's clock, which may be coarser

    # -- distributions

    def mode(self, topic: str) -> str:
        """How a topic is distributed."""
        if not self.is_on:
            return JOURNAL
        mode = self._modes.get(topic)
        if mode is None:
            if len(self._modes) >= self._node.config.limits.subscriptions_max:
                self._modes.clear()
            mode = self._modes[topic] = self._node.config.topic(topic).distribution
        return mode

    def distribution(self, pattern: str) -> str:
        """How the topics that match are distributed; see `reknit.node.delivering`."""
        for rule in self._rules:
            if rule.pattern.includes(Pattern(pattern)):
                return rule.distribution
        return JOURNAL

    def takes_streams(self, topic: str) -> bool:
        """Whether an event of the topic may go in pieces, and somebody is there who takes it so."""
        return self.mode(topic) in DISTRIBUTIONS and self.machine.has_path(topic, is_stream=True)

    # -- connections

    def take(self, item: Credit | Settle | Subscribe | Unsubscribe, peer: PeerState) -> bool:
        """Whether this was for here: about a subscription that shares events with others."""
        key = (peer.id, item.sub)
        if isinstance(item, Subscribe):
            return self.is_on and self._subscribe(item, peer)
        if key not in self._subs:
            return False
        match item:
            case Credit(total=total):
                self.give(Grant(total), key)
            case Settle(number=number, rows=rows):
                self.give(Rows(self.streams.checked(rows) if self._under_way else rows), key)
                peer.send(Settled(item.sub, number))
            case Unsubscribe():
                self._drop(key, is_clean=True)
                peer.send(Unsubscribed(item.sub, is_forgotten=item.forget))
        return True

    def _subscribe(self, request: Subscribe, peer: PeerState) -> bool:
        start = request.start
        is_past = start.history or start.position is not None or start.checkpoint is not None
        try:
            watches = bool(request.name) or is_past or self.distribution(request.pattern) == JOURNAL
        except InvalidTopic:
            return False
        if watches:
            return False
        key, pattern = (peer.id, request.sub), Pattern(request.pattern)
        if key in self._subs:
            text = f"subscription {request.sub} is there already on this connection"
            peer.send(Unsubscribed(request.sub, Code.ALREADY_EXISTS, text))
            return True
        subscriptions_max = self._node.config.limits.subscriptions_max
        if len(self._subs) >= subscriptions_max:
            text = f"the node has {subscriptions_max} subscriptions (limits.subscriptions_max)"
            peer.send(Unsubscribed(request.sub, Code.RESOURCE_EXHAUSTED, text))
            return True
        peer.send(Subscribed(request.sub, self._node.journal.end, False, is_shared=True))
        self._subs[key] = pattern
        self.attach(key, Attach(pattern, "bytes", request.credit, str(peer), request.takes_streams))
        return True

    def _drop(self, key: tuple[int, int], is_clean: bool) -> None:
        self.detach(key, self._subs.pop(key), is_clean)

    def attach(self, key: Peer, message: Attach) -> None:
        """A new path: everyone hears of it."""
        if message.takes_streams:
            self._stream_takers.add(key)
        self._node.links.interest(self._interests(key, message.pattern), [])
        self.give(message, key)
        self._paths_moved = True

    def detach(self, key: Peer, pattern: Pattern, is_clean: bool) -> None:
        """A path is gone."""
        self._node.links.interest([], self._interests(key, pattern))
        self._stream_takers.discard(key)
        self.give(Detach(is_clean), key)
        self._paths_moved = True

    def _interests(self, key: Peer, pattern: Pattern) -> list[tuple[str, str]]:
        modes = ("any", "stream") if key in self._stream_takers else ("any",)
        return [(pattern.text, mode) for mode in modes]

    def left(self, peer_id: int) -> None:
        """A connection is gone, with what it had in hand."""
        for key in [key for key in self._subs if key[0] == peer_id]:
            self._drop(key, is_clean=False)
        for source in [source for source, who in self._wanting.items() if who.peer == peer_id]:
            del self._wanting[source]
        if self._under_way:
            self.streams.left(peer_id)

    def blocked(self, peer_id: int, is_blocked: bool) -> None:
        """A connection takes nothing for now, or takes something again."""
        for key in self._subs:
            if key[0] == peer_id:
                self.give(Stall(is_blocked), key)

    def want(self, want: Want, peer: PeerState) -> None:
        """A publisher wants to hear what becomes of its events; what is known already is told at once."""
        self._book()
        is_journal = self.mode(want.topic) == JOURNAL
        sources_max = self._node.config.limits.sources_max
        if want.source not in self._wanting and len(self._wanting) >= sources_max:
            text = f"the node tells outcomes to {sources_max} sources already (limits.sources_max)"
            peer.send(Refuse(want.source, 1, 1, Code.RESOURCE_EXHAUSTED, text))
            return
        self._wanting[want.source] = Wanting(want.topic, want.resend, peer.id)
        stream = (want.topic, want.source)
        if not is_journal:
            self._tell_past(stream, want)
        peer.send(PathThere(want.source, is_journal or self.machine.has_path(want.topic), is_journal))
        self._wanting[want.source].has_path = is_journal or self.machine.has_path(want.topic)

    def _tell_past(self, stream: Stream, want: Want) -> None:
        stop = max(want.kept + 1, want.first)
        for start, end, how in self.bookings.ends(stream, want.first, stop):
            is_accepted = how is End.ACCEPTED
            outcome = Outcome.ACCEPTED if is_accepted else Outcome.MODIFIED
            text = "" if is_accepted else "it ended meanwhile, see the dead letters"
            self._tell(stream[1], Fate(start, end, outcome, 0, text, self._node.name))
        published = self._node.journal.ledger.published.get(stream)
        text = "this node's journal does not have it"
        if want.first < stop:
            missing = published.missing(want.first, stop) if published else [(want.first, stop)]
            for start, end in missing:
                self._tell(stream[1], Fate(start, end, Outcome.MODIFIED, Code.UNKNOWN, text, self._node.name))

    # -- gateways

    def sender(
        self,
        topic: str,
        on_results: OnResults,
        on_path: OnPath | None = None,
        resend_released: bool = False,
        source: bytes | None = None,
    ) -> GatewaySender:
        """Somebody who offers events on a topic; see `reknit.node.delivering`."""
        is_journal = self.mode(topic) == JOURNAL
        there = is_journal or self.machine.has_path(topic)
        sender = GatewaySender(self._feed, topic, on_results, on_path, source, there, is_journal)
        self._wanting[sender.source] = Wanting(topic, resend_released, sender=sender, has_path=there)
        sender.on_close = lambda: self._wanting.pop(sender.source, None)
        return sender

    def _kept_of_sender(self, batch: Batch) -> None:
        """On a topic of the journal, durable is all that there is to it."""
        who = self._wanting.get(batch.source)
        if who is not None and who.sender is not None and self.mode(batch.topic) == JOURNAL:
            fate = Fate(batch.first, batch.stop, Outcome.ACCEPTED, node=self._node.name)
            self._tell(batch.source, fate)
            self.soon()

    def _refused_of_sender(self, batch: Batch, code: int, text: str) -> None:
        """The node will never take it: its sender hears why."""
        self._tell(batch.source, Fate(batch.first, batch.stop, Outcome.REJECTED, code, text, self._node.name))
        self.soon()

    def receiver(
        self, pattern: str, on_handed: OnHanded, name: str = "", streams: StreamTaker | None = None
    ) -> GatewayReceiver:
        """Somebody who takes events; see `reknit.node.delivering`."""
        receiver = GatewayReceiver(self, Pattern(pattern), on_handed, streams)
        how = (0, name or f"gateway {id(receiver):x}", streams is not None)
        self.attach(receiver, Attach(receiver.pattern, "events", *how))
        self.soon()
        return receiver

    # -- the machine

    def give(self, message: Input, peer: Peer) -> None:
        """Tell the machine; what it wants is done in this turn of the loop, or the next."""
        self.machine.receive(message, peer, self._now())

    def soon(self) -> None:
        """See to what the machine wants when the loop comes round: for calls that don't come from a connection."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._come_round)

    def _come_round(self) -> None:
        self._is_scheduled = False
        self._node.run_machines()

    def kept(self) -> None:
        """More of the journal is durable: offer what is to be delivered, as far as there is room for it in memory."""
        config, journal, now = self._node.config.anycast, self._node.journal, self._now()
        while (
            self.is_on
            and self._cursor < journal.end
            and self.machine.held_bytes < config.held_bytes_max
            and self.machine.parked < config.parked_max
        ):
            try:
                run = journal.read(self._cursor, journal.end, READ_BYTES)
            except Gone:
                self._cursor = journal.start
                continue
            for index, entry in enumerate(run.entries):
                mode = self.mode(entry.head.topic)
                if mode != JOURNAL:
                    self._offer(Batch(entry.head, run.cut(index, index + 1), entry.position), mode, now)
            self._cursor = run.next_position

    def _offer(self, batch: Batch, mode: str, now: float) -> None:
        stream, head = (batch.topic, batch.source), batch.head
        who = self._wanting.get(batch.source)
        deadline = None
        if head.ttl_ms:
            deadline = now + (head.time_us + head.ttl_ms * 1000 - time.time_ns() // 1000) / 1e6
        resend, keeps = (who.resend, False) if who is not None else (True, True)
        ranges = [(head.first, head.stop)]
        if batch.position < self._resumed_to:
            ranges = self.bookings.owed(stream, *ranges[0])
        for start, stop in ranges:
            self.bookings.start(batch.position, stream, start, stop)
            offered = Offered(batch.cut(start, stop), mode, resend, keeps=keeps, deadline=deadline)
            self.give(offered, HERE)

    def run(self, now: float) -> None:
        """Do what the machine wants, and tell those who wait."""
        while effects := self.machine.take_effects():
            for effect in effects:
                match effect:
                    case Hand():
                        self._hand(effect, now)
                    case Pass():
                        self._pass(effect, now)
                    case Resolve():
                        self._resolve(effect)
                    case Tried():
                        self._tried(effect)
            self.kept()
        if self._paths_moved:
            self._tell_paths()
        if self._told:
            self._tell_all()
        if self.bookings.is_due and self._booking is None:
            self._booking = self._loop.call_later(BOOK_S, self._book_later)

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""
        return bool(self.machine.has_effects or self._paths_moved or self._told)

    def _load(self, effect: Hand | Pass) -> Batch | None:
        """The events, cut to the range; None if retention removed them meanwhile."""
        if effect.batch is not None:
            if effect.batch.head.flags & FLAG_STREAM and effect.source not in self._under_way:
                return None  # it was given up within this very turn
            return effect.batch.cut(effect.start, effect.stop)
        found = self._node.find(effect.topic, effect.source, effect.start, effect.stop)
        if len(found) == 1 and found[0].count == effect.stop - effect.start:
            return found[0]
        return None

    def _hand(self, effect: Hand, now: float) -> None:
        batch = self._load(effect)
        if batch is None:
            self._vanish(effect)
        elif isinstance(effect.key, GatewayReceiver):
            effect.key.hand(batch, effect.attempt)
        else:
            assert isinstance(effect.key, tuple)
            peer_id, sub = effect.key
            header = Deliver(sub, batch.head.length, -1, effect.attempt)
            self._node.peers.send_buffers(peer_id, [encode(header), batch.data])
        if batch is not None and batch.head.flags & FLAG_STREAM:
            self.streams.handed(batch.source, effect.key)

    def _vanish(self, effect: Hand | Pass) -> None:
        text = "retention removed it before it was delivered"
        fate = Fate(effect.start, effect.stop, Outcome.REJECTED, Code.DATA_LOSS, text, self._node.name)
        if isinstance(effect, Pass):
            row = Return(effect.topic, effect.source, fate, [])
            self._node.links.returned_here(str(effect.key), row)
        else:
            row_ = Row(effect.topic, effect.source, effect.start, effect.stop, fate.outcome, fate.code, text)
            self.give(Rows([row_]), effect.key)

    def _pass(self, effect: Pass, now: float) -> None:
        batch = self._load(effect)
        if batch is None:
            self._vanish(effect)
        else:
            self._node.links.forward(effect, batch, now)
            if batch.head.flags & FLAG_STREAM:
                self.streams.handed(batch.source, effect.key)

    def _resolve(self, effect: Resolve) -> None:
        if effect.source in self._under_way:
            self.streams.resolved(effect)
        if effect.up != HERE:
            if isinstance(effect.up, Here):
                return
            self._node.links.give_back(
                str(effect.up), Return(effect.topic, effect.source, effect.fate, effect.visited)
            )
            return
        if effect.fate.outcome != Outcome.RECEIVED:
            self.bookings.end(effect.topic, effect.source, effect.fate)
        if not effect.keeps or effect.source in self._wanting:
            self._tell(effect.source, effect.fate)

    def _tried(self, effect: Tried) -> None:
        if effect.source in self._under_way:
            self.streams.tried(effect.source)
        now_us = max(time.time_ns() // 1000, self._time_us(effect.sent_at))
        self.trail.add(
            Attempt(
                effect.topic,
                effect.source,
                effect.start,
                effect.stop,
                self._node.name,
                effect.path,
                effect.path in self._node.links.routes.known,
                self._time_us(effect.sent_at),
                now_us,
                effect.outcome,
                effect.text,
            )
        )

    def status(self) -> dict[str, Any]:
        """How many deliveries are remembered in any state, and what each path has."""
        paths = [
            {"path": path.name, "is_node": path.is_neighbour, "unsettled": path.unsettled}
            for path in self.machine.paths()
        ]
        held = {"held_bytes": self.machine.held_bytes, "parked": self.machine.parked}
        waiting = self.machine.waiting()
        counts = {"records": self.machine.records(), "waiting": waiting}
        return {**counts, "paths": paths, **held, "streams": self.streams.status()}

    def attempts(self, source: bytes, seq: int) -> dict[str, Any]:
        """The attempts at one event on this node, those that have not ended last, and where its neighbours are."""
        attempts = [*self.trail.of(source, seq), *self._open_attempts(source, seq)]
        urls = {one.path: self._node.links.url(one.path) for one in attempts if one.is_node}
        return {"node": self._node.name, "attempts": [one.row() for one in attempts], "urls": urls}

    def _open_attempts(self, source: bytes, seq: int) -> list[Attempt]:
        return [
            Attempt(
                one.topic,
                source,
                one.start,
                one.stop,
                self._node.name,
                path.name,
                path.is_neighbour,
                self._time_us(one.sent_at),
                0,
                Outcome.RECEIVED if one.is_pinned else 0,
                "",
            )
            for path in self.machine.paths()
            for one in path
            if one.source == source and one.start <= seq < one.stop
        ]

    # -- telling

    def _tell(self, source: bytes, fate: Fate) -> None:
        if source in self._wanting:
            self._told.setdefault(source, []).append(fate)

    def _tell_all(self) -> None:
        told, self._told = self._told, {}
        for source, fates in told.items():
            who = self._wanting.get(source)
            if who is None:
                continue
            if who.sender is not None:
                who.sender.tell(fates)
            elif (peer := self._node.peers.get(who.peer)) is not None:
                peer.send(Told(source, fates))

    def paths_moved(self) -> None:
        """Paths elsewhere came or went."""
        self._paths_moved = True

    def _tell_paths(self) -> None:
        self._paths_moved = False
        known: dict[str, bool] = {}
        for source, who in self._wanting.items():
            there = known.get(who.topic)
            if there is None:
                is_journal = self.mode(who.topic) == JOURNAL
                there = known[who.topic] = is_journal or self.machine.has_path(who.topic)
            if there == who.has_path:
                continue
            who.has_path = there
            if who.sender is not None:
                who.sender.path(there)
            elif (peer := self._node.peers.get(who.peer)) is not None:
                peer.send(PathThere(source, there))

    # -- the ledger

    def in_hand(self) -> dict[str, dict[Stream, SeqSet]]:
        """For every account what is under way, where all that is kept has been looked at."""
        self._book()
        return self.bookings.in_hand() if self._cursor >= self._node.journal.end else {}

    def _book_later(self) -> None:
        self._booking = None
        self._book()
        self._node.run_machines()

    def _move_floor(self) -> None:
        """Let retention remove what nobody here waits for, also while nothing is delivered."""
        self._flooring = self._loop.call_later(FLOOR_S, self._move_floor)
        self.bookings.move_floor(self._cursor, self._now())
        self._node.run_machines()

    def _book(self) -> None:
        if self.bookings.is_due:
            self.bookings.flush(self._cursor, self._now())
