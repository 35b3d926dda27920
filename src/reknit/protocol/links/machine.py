"""The machine of links: the connections between this node and its neighbours, and the messages on them.

A line is one connection. The first one to a neighbour counts, and another one takes its place when it is lost.

    LineOpened         -> Link: this node introduces itself
    Link               -> not possible: DismissLine; the first line to this neighbour: it is up; else the line is a spare
      up                  Routes, anycast and the flows are told; OpenStore, then Pull for the events that were missed
    LineLost           the line that counts -> down, and up again over a spare
      down                Routes, streams and anycast are told; events wait in the journal
    LineBlocked        -> anycast waits
    LinkState, Announce, AskWhole, Beat   -> Routes
    Forward, Carry     the next batches belong to it
    Frames             of a Forward -> anycast or streams; of a Carry -> StoreBatches
    BatchStored        -> Got, when everything up to a position is durable here
    Carry with losses  -> RecordLosses, when everything before it is durable here
    LossesRecorded     -> Got with their number
    Pull, Got          -> Carry, as far as the window allows
    Returned, Recorded, Piece, Room, Abort   -> anycast and streams
    from other parts: Interests, SubscriptionsChanged -> Announce to all; ForwardBatch -> Forward; ReturnOutcome ->
                      Returned; SendToNeighbour; SourceDeclared: the source is published here now;
                      SourceEntered: it came over a bridge
    MadeDurable, NextTurn          -> Carry of what is new
    EventsRemoved, EventsLost      -> Carry of what neighbours will not get any more

A message that is not valid dismisses its line. Messages of a line that was dismissed, or before its Link, are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from reknit.batch import Batch
from reknit.config import LinkSettings
from reknit.entries import Removed
from reknit.outcome import Code
from reknit.protocol.anycast import inputs as anycast
from reknit.protocol.links.checks import objection, unsound
from reknit.protocol.links.flows import FollowedJournal, IncomingFlow, OutgoingFlow
from reknit.protocol.links.forwarding_table import ORIGINS_FULL, ForwardingTable
from reknit.protocol.links.forwards import header_of, offers_of
from reknit.protocol.links.inputs import (
    BatchStored,
    CloseLine,
    DismissLine,
    Effect,
    EventsLost,
    EventsRemoved,
    LineBlocked,
    LineLost,
    LineOpened,
    LinkNote,
    LossesRecorded,
    OpenStore,
    Pass,
    RecordLosses,
    SaveLinks,
    SendFrames,
    SendOnLine,
    StoreBatches,
    StoreOpened,
)
from reknit.protocol.links.lines import Line, Lines
from reknit.protocol.links.memory import LinkMemory
from reknit.protocol.links.missed_events import SERIES_FULL, MissedEvents
from reknit.protocol.links.returns import Returns
from reknit.protocol.links.route_review import RouteReview
from reknit.protocol.machine import MadeDurable, NextTurn, Peer, earliest
from reknit.protocol.routing import routes as routing
from reknit.protocol.routing.routes import Routes
from reknit.protocol.streams.inputs import UpstreamGone
from reknit.wire.codec import Frames, encode
from reknit.wire.links import (
    Announce,
    AskWhole,
    Beat,
    Carry,
    Forward,
    Got,
    Link,
    LinkState,
    Pull,
    Recorded,
    Returned,
)
from reknit.wire.messages import Message
from reknit.wire.streams import Abort, Piece, Room


class LinkMachine:
    """All links of one node. It has more than 15 attributes: what it is given, and one for each thing it decides."""

    def __init__(
        self,
        *,
        settings: LinkSettings,
        introduce: Callable[[int], Link],
        epoch: str,
        routes: Routes,
        table: ForwardingTable,
        memory: LinkMemory,
        journal: FollowedJournal,
        now_us: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._introduce = introduce
        """How this node introduces itself, given the cost of the line."""
        self._epoch = epoch
        self.routes = routes
        self.table = table
        self._memory = memory
        self._missed = MissedEvents(memory)
        self._journal = journal
        self._now_us = now_us
        self._began_us = now_us()
        self.lines = Lines()
        self.outgoing: dict[str, OutgoingFlow] = {}
        """Events to each neighbour that there ever was."""
        self.incoming: dict[str, IncomingFlow] = {}
        """Events from each neighbour that there ever was."""
        self._returns = Returns()
        self._review = RouteReview()
        self._is_grown = False
        """Whether more of the journal is durable, or may be read, since the last `take_effects`."""
        self._is_warned = False
        self._now = 0.0
        self._effects: list[Effect] = []

    # -- the contract

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """From a line, from another part (about a neighbour, by name), or from the journal."""
        self._now = now
        match message:
            case LineOpened(cost=cost):
                self.lines.open(peer, cost, is_ours=True)
                self._effects.append(SendOnLine(peer, self._introduce(cost)))
            case LineLost():
                self._lost(peer)
            case LineBlocked(is_blocked=is_blocked):
                if (line := self.lines.get(peer)) is not None and line.name:
                    self._pass(anycast.Stall(is_blocked), line.name)
            case MadeDurable() | NextTurn():
                self._is_grown = True
            case StoreOpened():
                self._store_opened(str(peer))
            case BatchStored(batch=batch):
                self._acknowledge(str(peer), self.incoming[str(peer)].stored(batch))
            case EventsRemoved(removed=removed, start=start):
                self._removed(removed, start)
            case EventsLost(lost=lost):
                self._miss([lost], self._journal.end, self._linked_before(self._journal.end + 1))
            case LossesRecorded(number=number):
                self._recorded(str(peer), number)
            case routing.Interests():
                self.routes.receive(message, self.routes.name, now)
            case routing.SubscriptionsChanged():
                self.table.subscriptions_changed()
            case routing.SourceDeclared(source=source):
                self._declared(source)
            case routing.SourceEntered(source=source, nodes=nodes):
                self.table.origins.entered(source, nodes)
            case anycast.ForwardBatch():
                self._forward(message)
            case anycast.ReturnOutcome():
                self._returns.add(str(peer), message)
            case routing.SendToNeighbour(peer=name, message=content):
                self._say(str(name), content)
            case _:
                self._receive_on_line(message, peer)

    def tick(self, now: float) -> None:
        """Send heartbeats, and drop neighbours that send none. Forget topics that nobody reads any more."""
        self._now = now
        if self.table.expire(now):
            self._effects.append(SaveLinks(is_urgent=False))
        self.routes.tick(now)
        self._review_routes()

    def next_deadline(self) -> float | None:
        """When the next heartbeat is due, or another look at the routes."""
        return earliest((self.routes.next_deadline(), self._review.next_deadline()))

    @property
    def has_effects(self) -> bool:
        """Whether `take_effects` returns some. A node that never had a line announces nothing."""
        if self._effects or not self.lines.were_there:
            return bool(self._effects)
        return self._is_grown or bool(self._returns) or self.routes.has_effects or self.table.is_due

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order: what there was, changes of routes, outcomes, new events."""
        changes = self.table.changes(self._now)
        if changes is not None:
            self.routes.receive(changes, self.routes.name, self._now)
        self._tell_routes()
        for name, returned in self._returns.take():
            self._say(name, returned)
        if self._is_grown:
            self._is_grown = False
            for flow in self.outgoing.values():
                flow.pump()
        effects, self._effects = self._effects, []
        return effects

    # -- lines

    def _receive_on_line(self, message: Any, peer: Peer) -> None:
        line = self.lines.get(peer) or self.lines.open(peer, self._settings.cost, is_ours=False)
        if line.is_dismissed:
            return
        if isinstance(message, Link):
            self._greeted(message, line)
        elif problem := unsound(message):
            self._dismiss(line, Code.INVALID_ARGUMENT, problem)
        elif line.name:
            self._receive_from_neighbour(message, line, line.name)

    def _receive_from_neighbour(self, message: Any, line: Line, name: str) -> None:
        match message:
            case LinkState() | Announce() | AskWhole() | Beat():
                self.routes.receive(message, name, self._now)
            case Forward():
                line.has_forwards = True
                line.announced.announce(message)
            case Carry(size=size):
                line.announced.announce(message)
                if size == 0:
                    self._carried(name, message, [], True)
            case Frames():
                self._take_frames(message, line, name)
            case Piece() | Room() | Abort():
                self._pass(message, name)
            case Returned(rows=rows, number=number):
                self._pass(anycast.NeighbourOutcomes(rows, number), name)
            case Recorded(number=number):
                self._pass(anycast.NeighbourRecorded(number), name)
            case Pull():
                if self.outgoing[name].pull(message, line.id):
                    self._note(logging.ERROR, f"{name} missed events that retention has removed")
            case Got(position=position, number=number):
                if number and self._missed.recorded(name, number):
                    self._effects.append(SaveLinks(is_urgent=False))
                self.outgoing[name].got(position)
            case _:
                self._note(logging.DEBUG, f"ignored {message!r}")

    def _greeted(self, hello: Link, line: Line) -> None:
        if line.hello is not None:
            self._dismiss(line, Code.INVALID_ARGUMENT, "a node introduces itself once on a connection")
            return
        problem = objection(hello, self.routes.name, self._settings, self.lines.neighbours())
        if problem:
            self._dismiss(line, Code.FAILED_PRECONDITION, problem)
            return
        if not line.is_ours:
            self._effects.append(SendOnLine(line.id, self._introduce(line.cost)))
        for old in self.lines.all_to(hello.node):
            if old.hello is not None and old.hello.instance != hello.instance:
                self._close(old)  # it led to the process before a restart, and nobody has noticed yet
        if self.lines.introduced(line, hello):
            self._up(hello.node, line)

    def _dismiss(self, line: Line, code: Code, text: str) -> None:
        line.is_dismissed = True
        self._effects.append(DismissLine(line.id, code, text))

    def _up(self, name: str, line: Line) -> None:
        assert line.hello is not None
        self._note(logging.INFO, f"linked to {name}")
        flow = self.outgoing.get(name)
        if flow is None:
            flow = self.outgoing[name] = OutgoingFlow(
                name,
                window_bytes=self._settings.window_bytes,
                epoch=self._epoch,
                journal=self._journal,
                table=self.table,
                missed=self._missed,
                emit=lambda effect: self._effects.append(effect),
            )
        flow.up(self._first_position(name, line.hello.journal))
        self.routes.receive(routing.LinkUp(line.cost), name, self._now)
        self._pass(anycast.NeighbourUp(line.hello.confirms), name)
        self._pull(name, line)

    def _first_position(self, name: str, journal: str) -> int:
        """From where on a neighbour with this journal gets events, if it has no position of its own.

        Where there was another way to it, or to the nodes behind it, recent events may be on that way, and go no further
        there because this link is shorter. So they are carried here too: what has arrived is dropped as a duplicate.
        The same holds for what was on its way over a neighbour that comes back with another disk.
        """
        start = self._journal.end
        if self._memory.is_replaced(name, journal, self._epoch):
            self._missed.forget(name)
            start = self._position_since(
                self.outgoing[name].lost_us if name in self.outgoing else self._began_us
            )
        elif self.routes.reachable():
            start = self._position_since(self._now_us())
        first, is_new = self._memory.first_linked(name, journal, self._epoch, start, self._journal.end)
        if is_new:
            self._effects.append(SaveLinks(is_urgent=True))
        return first

    def _position_since(self, changed_us: int) -> int:
        """From where on events may be on a way that is not theirs any more, if ways changed at this time."""
        since_us = changed_us - int(self._settings.heal_s * 1e6)
        return max(self._journal.position_at(since_us), self._journal.start)

    def _lost(self, peer: Peer) -> None:
        line = self.lines.get(peer)
        if line is not None:
            self._retire(line)
            self.lines.lose(peer)

    def _close(self, line: Line) -> None:
        line.is_dismissed = True
        self._effects.append(CloseLine(line.id))
        self._retire(line)

    def _retire(self, line: Line) -> None:
        """A line is gone, or being closed; another one to the same node may take its place.

        Outcomes are in doubt when the line that counts is lost. Another one may count for the other node: the line on
        which it forwards events. That is closed, too, so that the other node knows.
        """
        name = line.name
        was_first = bool(name) and self.lines.first(name) is line
        self.lines.retire(line)
        if name:
            self.outgoing[name].lost(line.id, self._now_us())
        if was_first:
            self._down(name)
            for spare in self.lines.all_to(name):
                if spare.has_forwards:
                    self._close(spare)
            following = self.lines.first(name)
            if following is not None:
                self._up(name, following)

    def _down(self, name: str) -> None:
        self._note(logging.INFO, f"the link to {name} is gone")
        self._returns.drop(name)
        self.routes.receive(routing.LinkDown(), name, self._now)
        self._tell_routes()
        self._pass(UpstreamGone(is_final=True), name)
        self._pass(anycast.NeighbourDown(), name)

    # -- what goes out

    def _say(self, name: str, message: Message) -> None:
        """Send a message to a neighbour, if it is still connected."""
        line = self.lines.first(name)
        if line is not None:
            self._effects.append(SendOnLine(line.id, message))

    def _pass(self, message: Any, name: str) -> None:
        self._effects.append(Pass(message, name))

    def _note(self, level: int, text: str) -> None:
        self._effects.append(LinkNote(level, text))

    def _tell_routes(self) -> None:
        is_new = has_new_routes = False
        met: list[str] = []
        for effect in self.routes.take_effects():
            match effect:
                case routing.SendToNeighbour(peer=peer, message=message):
                    self._say(str(peer), message)
                case routing.DropLink(peer=peer):
                    self._note(logging.WARNING, f"{peer} sent nothing for too long: the link is closed")
                    self._effects += [CloseLine(line.id) for line in self.lines.all_to(str(peer))]
                case routing.Rerouted(has_new_routes=yes, met=node):
                    is_new, has_new_routes = True, has_new_routes or yes
                    met += [node] if node in self.outgoing else []
        if is_new:
            self.table.forget()
            self._review.changed(has_new_routes=has_new_routes, now=self._now)
        for node in met:  # it may have asked before it was known what it wants
            self.outgoing[node].look_back(self.outgoing[node].pulled)
        self._review_routes()

    def _review_routes(self) -> None:
        """Look at the routes again, if that is due: what waits for one, who is remembered, and what is sent again."""
        has_new_routes = self._review.take(self._now)
        if has_new_routes is None:
            return
        self._pass(anycast.RoutesChanged(), self.routes.name)
        changed, reachable = self.routes.take_changed(), self.routes.reachable()
        if self._memory.remember_nodes(changed, reachable, self._now_us()):
            self._effects.append(SaveLinks(is_urgent=False))
        if has_new_routes:
            position = self._position_since(self._now_us())
            for flow in self.outgoing.values():
                flow.look_back(position)

    def _forward(self, message: anycast.ForwardBatch) -> None:
        """Forward events to a neighbour, after all messages about routes."""
        self._tell_routes()
        line = self.lines.first(str(message.wanted.key))
        if line is not None:  # else it was lost in this turn, and anycast will be told next
            header = encode(header_of(message, self._now))
            self._effects.append(SendFrames(line.id, [header, message.batch.data]))

    def _declared(self, source: bytes) -> None:
        """A publisher with a lasting source is here now, wherever it was before."""
        if self.table.declared(source):
            self._effects.append(SaveLinks(is_urgent=False))
            for flow in self.outgoing.values():
                flow.forget_origin(source)

    # -- what comes in

    def _take_frames(self, frames: Frames, line: Line, name: str) -> None:
        announced = line.announced.take(len(frames.data))
        if announced is None:
            self._note(logging.ERROR, f"{name} sent batches that were not announced: dropped")
            return
        message, is_last = announced
        if isinstance(message, Carry):
            self._carried(name, message, frames.batches(), is_last)
            return
        for offered in offers_of(message, frames.batches(), self._now):
            self._pass(offered, name)

    def _pull(self, name: str, line: Line) -> None:
        """Request the events that were missed, once they can be stored."""
        flow = self.incoming.get(name)
        if flow is None:
            self.incoming[name] = IncomingFlow()
            self._effects.append(OpenStore(name, line.id))
        elif flow.is_open:
            flow.pulled()
            self._effects.append(SendOnLine(line.id, Pull(*self._memory.position(name))))

    def _store_opened(self, name: str) -> None:
        self.incoming[name].opened()
        line = self.lines.first(name)
        if line is not None:
            self._pull(name, line)

    def _carried(self, name: str, carry: Carry, batches: list[Batch], is_last: bool) -> None:
        """Batches arrived. They are acknowledged when they are durable in this node's journal."""
        flow = self.incoming[name]
        if not flow.is_open:
            return  # nothing was requested yet
        learnt = [self.table.origins.learn(source, origin) for source, origin in carry.origins]
        if any(learnt):
            self._effects.append(SaveLinks(is_urgent=False))
        if self.table.origins.is_full and not self._is_warned:
            self._is_warned = True
            self._note(logging.WARNING, ORIGINS_FULL)
        told = {source for source, _ in carry.origins}
        for lost in carry.missed:
            self.table.came((lost.topic, lost.source), told)
        for batch in batches:
            self.table.came((batch.topic, batch.source), told)
            self.outgoing[name].came((batch.topic, batch.source), batch.stop)
        if carry.missed:
            flow.miss(carry)
        position = flow.take(carry.position, batches, is_last)
        if batches:
            self._effects.append(StoreBatches(name, batches))
        self._acknowledge(name, position)

    # -- what can't be carried

    def _linked_before(self, position: int) -> list[str]:
        """The neighbours that get the events before a position of this journal, linked or not."""
        first = self._memory.first.items()
        return [name for name, (_, epoch, at) in first if epoch == self._epoch and at < position]

    def _removed(self, removed: Sequence[Removed], start: int) -> None:
        """Retention removed events. Those that a neighbour does not have yet will never come there."""
        flows = {name: self.outgoing.get(name) for name in self._linked_before(start)}
        self._miss(
            removed, start, [name for name, flow in flows.items() if flow is None or flow.reached < start]
        )

    def _miss(self, gone: Sequence[Removed], position: int, names: Sequence[str]) -> None:
        is_new = False
        for name in names:
            flow = self.outgoing.get(name)
            for one in gone:
                series = (one.topic, one.source)
                first = max(one.start, flow.stored(series) if flow is not None else 0)
                if first < one.stop and self.table.is_owed(name, series):
                    is_new |= self._missed.note(name, Removed(*series, first, one.stop), position)
        if is_new:
            self._is_grown = True
            self._effects.append(SaveLinks(is_urgent=True))
        if self._missed.is_full:
            self._missed.is_full = False
            self._note(logging.ERROR, SERIES_FULL)

    def _recorded(self, name: str, number: int) -> None:
        """Losses that a neighbour told are durable here."""
        line = self.lines.first(name)
        if line is not None and line.hello is not None:
            epoch, position = self._memory.position(name)
            is_known = epoch == line.hello.journal
            self._effects.append(SendOnLine(line.id, Got(max(position, 0) if is_known else 0, number)))

    def _acknowledge(self, name: str, position: int) -> None:
        for carry in self.incoming[name].take_missed():
            self._effects.append(RecordLosses(name, carry.number, carry.missed))
        line = self.lines.first(name)
        if position >= 0 and line is not None and line.hello is not None:
            is_urgent = self._memory.reached(name, line.hello.journal, position)
            self._effects.append(SaveLinks(is_urgent))
            self._effects.append(SendOnLine(line.id, Got(position)))
