"""Reliable multicast with a fixed window: every member delivers every sender's events, in their order.

A sender keeps what it sent until all members have acked it, and waits when its window is full: flow control
is built in. A receiver acks what its application was handed, asks for what it lacks as soon as it sees the
gap, and keeps what others may still ask for. Work is per batch, and a batch is a range.

The driver calls `tick` at the end of every turn in which it called anything else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import assert_never

from reknit.frame import Buffer
from reknit.protocol.multicast.departed_senders import ENDED_MAX, DepartedSenders
from reknit.protocol.multicast.effects import (
    DeliverBatch,
    MulticastEffect,
    ReportLost,
    SendMessage,
    SendPieces,
)
from reknit.protocol.multicast.receiver import (
    CAPACITY_MAX,
    RANGES_MAX,
    WINDOW_BYTES_MAX,
    GroupReceiver,
    clean,
)
from reknit.protocol.multicast.retransmissions import Retransmissions
from reknit.protocol.multicast.sender import NEVER, GroupSender
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.multicast.survivor_agreement import SurvivorAgreement
from reknit.seqset import Range
from reknit.view import View
from reknit.wire.groups import (
    GroupAck,
    GroupAnnounce,
    GroupAskStart,
    GroupEnds,
    GroupGone,
    GroupHoldings,
    GroupPiece,
    GroupRecover,
    GroupStart,
    MulticastMessage,
)

ACTIVE_S = 1.0
"""Who sent something within this shares the socket buffers with us."""


class Multicast:
    """One member's machine. `me` is its id and the source of its events."""

    def __init__(
        self, me: bytes, topic: str, settings: GroupSettings, rng: Random, wall_s: float = 0.0
    ) -> None:
        self.me = me
        self.view: View | None = None
        self.receivers: dict[bytes, GroupReceiver] = {}
        self.counts = dict.fromkeys(("asked", "answered", "duplicates", "lost", "dropped"), 0)
        self._effects: list[MulticastEffect] = []
        self.sender = GroupSender(me, topic, settings, wall_s, lambda effect: self._effects.append(effect))
        self._settings = settings
        self._rng = rng
        self._answers = Retransmissions(settings.again_s_max)
        self._early: dict[bytes, GroupStart] = {}
        self.ended = DepartedSenders(settings.repeat_s)
        self._unstarted: set[bytes] = set()
        """Who left before it told us where to start."""
        self._asked_start: dict[bytes, float] = {}
        self._is_due = False

    # -- the application's side

    def send(
        self, payloads: Sequence[Buffer], now: float, ticket: Hashable = None, deadline: float = NEVER
    ) -> int:
        """How many events were taken. With a ticket the rest waits; `Sent` or `NotSent` tells its end."""
        return self.sender.send(payloads, now, ticket, deadline)

    def handed(self, source: bytes, seq: int, now: float) -> bool:
        """The application has everything of this source up to and including seq.

        True if something is to be done at once: an ack is due, or senders that waited have room.
        """
        if source == self.me:
            self.sender.acked(self.me, seq, now)
            return bool(self._effects)
        receiver = self.receivers.get(source)
        if receiver is None or not receiver.window.ack(seq):
            return False
        if receiver.departure is not None:
            return True  # nobody wants the ack, but there is room for what others still have
        receiver.owe(now)
        return receiver.is_ack_due(now)

    def close(self, now: float) -> None:
        """Release every waiting sender; nothing more is sent."""
        self.sender.close()

    # -- views

    def install(self, view: View, now: float) -> None:
        """A new view: from the membership machine, or from whoever knows the members."""
        assert self.me in view
        before, self.view = self.view, view
        self._is_due = True
        self.sender.install(view, now)
        early, self._early = self._early, {}
        for source, start in early.items():
            self._started(start, source, now)
        for receiver in self.receivers.values():
            self._depart_or_stay(receiver, view, now)
        if before is not None:
            self.ended.keep(view.ids)
            self.ended.met([member for member in view.ids if member not in before], now)
            self._unstarted -= set(view.ids)
            if len(self._unstarted) < ENDED_MAX:
                self._unstarted |= set(before.ids) - set(view.ids) - set(self.receivers)
        self._asked_start = {source: at for source, at in self._asked_start.items() if source in view}
        self._share(now)

    def _depart_or_stay(self, receiver: GroupReceiver, view: View, now: float) -> None:
        """The window of a leaver stays until the survivors have exchanged what they hold of it."""
        receiver.window.is_final = receiver.source not in view
        if receiver.source in view:
            receiver.departure = None
            return
        old = receiver.departure
        until = old.until if old is not None else now + self._settings.departed_s
        receiver.ack_at = None
        receiver.departure = SurvivorAgreement(view.stamp, frozenset(view.ids), now, until, old)

    def _share(self, now: float) -> None:
        self.sender.share_buffers(1 + sum(now - r.active_at < ACTIVE_S for r in self.receivers.values()))

    # -- the contract

    def receive(self, message: GroupPiece | MulticastMessage, peer: bytes, now: float) -> None:
        """Something came from a member."""
        if type(message) is GroupPiece:  # by far the most there are
            self._piece(message, peer, now)
            self._is_due = self._is_due or bool(self._effects)
            return
        self._is_due = True
        match message:
            case GroupPiece():
                pass
            case GroupAck():
                self.sender.acked(peer, message.seq, now)
            case GroupAnnounce():
                self._announced(message, peer, now)
            case GroupRecover():
                self._asked(message, peer, now)
            case GroupStart():
                self._started(message, peer, now)
            case GroupAskStart():
                self.sender.restart(peer, now)
            case GroupGone():
                if message.source == peer and (receiver := self._present(peer)) is not None:
                    self._skip(receiver, message.seq, now)
            case GroupHoldings():
                self._holdings(message, peer, now)
            case GroupEnds():
                self._others_ends(message, peer, now)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """The end of a turn, or of a wait: send what gathered, and whatever is due."""
        self._is_due = False
        if self.sender.outbox.waiting:
            self._share(now)
        self.sender.tick(now)
        self._effects += self._answers.take(now)
        self._effects += self.ended.tick(now)
        for receiver in list(self.receivers.values()):
            if receiver.departure is not None:
                self._exchange(receiver, receiver.departure, now)
            elif receiver.is_ack_due(now):
                self._ack(receiver)
            if receiver.ask_at is not None and receiver.ask_at <= now:
                self._ask(receiver, now)

    def next_deadline(self) -> float | None:
        """When `tick` is due; at once where something waits for the end of the turn."""
        if self._is_due or self.sender.outbox.has_open:
            return 0.0
        times = [self.sender.next_deadline(), self.ended.next_deadline()]
        for receiver in self.receivers.values():
            if receiver.departure is not None:
                times.append(min(receiver.departure.say_at, receiver.departure.until))
            times += [at for at in (receiver.ask_at, receiver.ack_at) if at is not None]
        first = min(times)
        return None if first == NEVER else first

    def take_effects(self) -> list[MulticastEffect]:
        effects, self._effects = self._effects, []
        return effects

    # -- receiving

    def _present(self, source: bytes) -> GroupReceiver | None:
        """What we have of a sender that is in the view."""
        receiver = self.receivers.get(source)
        return receiver if receiver is not None and receiver.departure is None else None

    def _piece(self, piece: GroupPiece, peer: bytes, now: float) -> None:
        receiver = self.receivers.get(piece.source)
        departure = None if receiver is None else receiver.departure
        if receiver is None or (departure is not None and not self._may_take(departure, piece, peer)):
            self.counts["dropped"] += 1
            self._ask_start(piece.source, now)
        elif receiver.take_in(piece, now):
            self._deliver(receiver, now)
        elif piece.first <= receiver.window.delivered:
            self.counts["duplicates"] += 1

    def _may_take(self, departure: SurvivorAgreement, piece: GroupPiece, peer: bytes) -> bool:
        """Of a departed sender only what the survivors agreed on, and only from them."""
        target = departure.target
        last = piece.first + piece.count - 1
        return target is not None and last <= target and self.view is not None and peer in self.view

    def _deliver(self, receiver: GroupReceiver, now: float) -> None:
        slots = receiver.window.take()
        for start, stop, held, _ in slots:
            if held is None:
                self.counts["lost"] += stop - start
                self._effects.append(ReportLost(receiver.source, start, stop))
            else:
                batch = held[0]
                if start != batch.first or stop != batch.stop:
                    batch = batch.cut(start, stop)
                self._effects.append(DeliverBatch(receiver.source, batch))
        if slots:
            receiver.delivered(now)

    def _announced(self, message: GroupAnnounce, peer: bytes, now: float) -> None:
        """A quiet sender: ask for everything up to where it got, and always ack."""
        receiver = self._present(peer)
        if receiver is None:
            self._ask_start(peer, now)
            return
        receiver.window.forget(message.stable)
        receiver.announced(message.high, now)
        if message.is_ack_wanted:
            self._ack(receiver)

    def _ack(self, receiver: GroupReceiver) -> None:
        self._effects.append(SendMessage(receiver.source, GroupAck(receiver.window.acked)))
        receiver.told_ack()

    def _started(self, start: GroupStart, source: bytes, now: float) -> None:
        """A sender fixed where we start; what we lack of it before that is lost, and reported."""
        if source == self.me:
            return
        if self.view is None or source not in self.view:
            if len(self._early) < self._settings.members_max:
                self._early[source] = start
            return
        self._unstarted.discard(source)
        receiver = self.receivers.get(source)
        if receiver is None:
            offset = self.ended.pop(source, start.seq)
            receiver = GroupReceiver(source, start, offset, self._settings, self._rng)
            self.receivers[source] = receiver
        receiver.fit(start)
        receiver.begin(start.seq)
        self._skip(receiver, start.seq, now)
        self.sender.set_buffer(source, start.buffer_bytes)
        self._share(now)
        self._ack(receiver)

    def _skip(self, receiver: GroupReceiver, seq: int, now: float) -> None:
        """Nothing up to and including seq can be had any more: move on, nobody waits for ever."""
        if seq > receiver.window.delivered:
            receiver.skip(seq)
            self._deliver(receiver, now)

    def _ask_start(self, source: bytes, now: float) -> None:
        if source == self.me or source in self.receivers or self.view is None or source not in self.view:
            return
        if self._asked_start.get(source, 0.0) <= now:
            self._asked_start[source] = now + self._settings.repeat_s
            self._effects.append(SendMessage(source, GroupAskStart()))

    # -- asking and answering

    def _ask(self, receiver: GroupReceiver, now: float) -> None:
        members = () if self.view is None else self.view.ids
        question = receiver.ask(now, [m for m in members if m not in (self.me, receiver.source)])
        if question is not None:
            self.counts["asked"] += 1
            self._effects.append(SendMessage(None, question))

    def _asked(self, message: GroupRecover, peer: bytes, now: float) -> None:
        """Anyone who holds it may answer; who is asked does. The others hear it and need not ask the same."""
        if message.asked != self.me:
            if (receiver := self.receivers.get(message.source)) is not None:
                receiver.heard(message, now)
            return
        self.counts["answered"] += 1
        for start, stop in clean(message.ranges):
            self._answer(message.source, start, stop, peer, None)
        for first, pieces in message.pieces[:RANGES_MAX]:
            self._answer(message.source, first, first + 1, peer, clean(pieces))

    def _answer(self, source: bytes, start: int, stop: int, peer: bytes, pieces: list[Range] | None) -> None:
        if source == self.me:
            window = self.sender.outbox.window
            for own in window.find(start, stop):
                assert own.value is not None
                self._answers.add(peer, own.value, self._settings.piece_bytes, pieces)
            if start <= window.acked:
                self._effects.append(SendMessage(peer, GroupGone(source, window.acked)))
        elif (receiver := self.receivers.get(source)) is not None:
            for slot in receiver.window.find(start, stop):
                assert slot.value is not None
                self._answers.add(peer, *slot.value, pieces)
            if receiver.departure is not None and (partials := receiver.partials(start, stop)):
                parts = [piece for partial in partials for piece in partial.pieces(source)]
                self._effects.append(SendPieces(peer, parts))

    # -- what departed senders left

    def _exchange(self, receiver: GroupReceiver, departure: SurvivorAgreement, now: float) -> None:
        if not departure.knows(self.me, receiver.window.delivered):
            departure.report(self.me, receiver.holdings(departure.stamp))
        is_over = now >= departure.until
        if is_over and departure.target is None:
            departure.agree()  # not all have spoken, but nobody waits for ever
        if departure.target is not None:
            self._follow(receiver, departure, departure.target, is_over, now)
        if departure.is_done or is_over:
            self._end(receiver)
        elif departure.say_at <= now:
            departure.say_at = now + self._settings.repeat_s
            self._effects.append(SendMessage(None, receiver.holdings(departure.stamp)))

    def _follow(
        self, receiver: GroupReceiver, departure: SurvivorAgreement, target: int, is_over: bool, now: float
    ) -> None:
        """Give up what nobody has, and ask for what someone has."""
        if not departure.is_given_up:
            departure.is_given_up = True
            receiver.begin(departure.start)
            receiver.give_up(departure.lost)
            self._deliver(receiver, now)
        if is_over:
            self._skip(receiver, target, now)
        if receiver.window.delivered < target:
            receiver.announced(target, now)
        if not departure.knows(self.me, receiver.window.delivered):
            departure.report(self.me, receiver.holdings(departure.stamp))
            departure.say_at = now

    def _holdings(self, message: GroupHoldings, peer: bytes, now: float) -> None:
        source = message.source
        if self.view is None or source in self.view or source == self.me or peer not in self.view:
            return  # we do not know yet that it left: this is said again
        if message.stamp != self.view.stamp:
            return  # what we say in one view decides nothing in another; this is said again, too
        if not message.is_answer and self._is_new(source):
            self._take_part(source, message.start, now)
        receiver = self.receivers.get(source)
        if receiver is not None and receiver.departure is not None:
            receiver.departure.report(peer, message)
            return
        if not message.is_answer:
            end = self.ended.get(source) or 0
            answer = GroupHoldings(source, message.stamp, end, end, end, [], [], [], is_answer=True)
            self._effects.append(SendMessage(peer, answer))
        self._effects += self._lost(self.ended.learn(source, message.delivered))

    def _is_new(self, source: bytes) -> bool:
        """It left before it told us where to start, or we had done with it before those came who are here now."""
        assert self.view is not None
        return source in self._unstarted or self.ended.is_earlier(source, self.view.stamp)

    def _take_part(self, source: bytes, start: int, now: float) -> None:
        """Take what others still have of a departed sender, and we have not had before."""
        assert self.view is not None
        self._unstarted.discard(source)
        is_known = self.ended.get(source) is not None
        offset = self.ended.pop(source, start)
        receiver = GroupReceiver(
            source, GroupStart(offset, CAPACITY_MAX, WINDOW_BYTES_MAX, 1), offset, self._settings, self._rng
        )
        receiver.untold_at = None if is_known else offset
        self.receivers[source] = receiver
        self._depart_or_stay(receiver, self.view, now)

    def _others_ends(self, message: GroupEnds, peer: bytes, now: float) -> None:
        """One that was apart from us got further with sources that are gone: ask all whether it can still be had."""
        if message.is_question:
            self._effects.append(SendMessage(peer, self.ended.answer()))
        self.ended.heard(peer)
        for source, seq in message.ends:
            own = self.ended.get(source)
            if own is None or seq <= own or self.view is None or source in self.view:
                continue
            if self.ended.is_earlier(source, self.view.stamp):
                self._take_part(source, own, now)
            else:
                self._effects += self._lost(self.ended.learn(source, seq))

    def _lost(self, lost: ReportLost | None) -> list[ReportLost]:
        self.counts["lost"] += 0 if lost is None else lost.stop - lost.start
        return [] if lost is None else [lost]

    def _end(self, receiver: GroupReceiver) -> None:
        del self.receivers[receiver.source]
        assert receiver.departure is not None
        self.ended.add(receiver.source, receiver.window.delivered, receiver.departure.stamp)
