"""Reliable multicast with a fixed window: every member delivers every sender's events, in their order.

A sender retains its events until all members have acked them, and waits when its window is full: flow control is
built in. A receiver acks the events that its application has, requests a gap as soon as it sees it, and retains what
others may still request. Work is per batch, and a batch is a range.

Inputs, and what each does:

    GroupPiece       a batch of the sender completes -> DeliverBatch; of a departed sender only if survivors agreed
    GroupAck         the sender's window moves -> waiting sends are served
    GroupAnnounce    gaps up to the sender's last seq are requested; GroupAck
    GroupRecover     for us: SendBatch, SendPieces or GroupGone; for another member: we need not request the same
    GroupStart       a new sender: we start after its seq -> LostEvents before it, GroupAck
    GroupAskStart    GroupStart again
    GroupGone        events that the sender has no more -> LostEvents
    GroupHoldings, GroupEnds    the events of departed senders (`departures.py`)

Messages from or about members that are not in the view are counted as dropped or ignored: they are repeated, or
their sender is told where to start. The driver calls `tick` at the end of every turn in which it called anything else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import assert_never

from reknit.frame import Buffer
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.multicast.departures import Departures
from reknit.protocol.multicast.effects import MulticastEffect, SendPieces, SendToGroup
from reknit.protocol.multicast.gap_requests import RANGES_MAX, clean
from reknit.protocol.multicast.receiver import GroupReceiver
from reknit.protocol.multicast.reception import GroupReception
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
"""A member that sent something within this time shares the socket buffers with us."""


class Multicast:
    """One member's machine. `me` is its id, and the source of its events."""

    def __init__(
        self, me: bytes, topic: str, settings: GroupSettings, rng: Random, wall_s: float = 0.0
    ) -> None:
        self.me = me
        self.view: View | None = None
        self._effects: list[MulticastEffect] = []
        self.sender = GroupSender(me, topic, settings, wall_s, self._effects.append)
        self._reception = GroupReception(self._effects)
        self._departures = Departures(me, settings, rng, self._reception, self._effects)
        self._retransmissions = Retransmissions(settings.again_s_max)
        self._settings = settings
        self._rng = rng
        self._early: dict[bytes, GroupStart] = {}
        """From senders whose view we do not have yet."""
        self._asked_start: dict[bytes, float] = {}
        """The senders that we asked where to start, and when to ask again."""
        self._is_due = False

    # -- questions

    @property
    def counts(self) -> dict[str, int]:
        """How often things happened: asked, answered, duplicates, lost, dropped."""
        return self._reception.counts

    @property
    def receivers(self) -> dict[bytes, GroupReceiver]:
        """The other members as senders, and departed ones whose events are still exchanged."""
        return self._reception.receivers

    def departed(self, source: bytes) -> int | None:
        """The last seq that was delivered of a sender that is gone; None if it is not known."""
        return self._departures.senders.get(source)

    # -- the application's side

    def send(
        self, payloads: Sequence[Buffer], now: float, ticket: Hashable = None, deadline: float = NEVER
    ) -> int:
        """Returns how many events were taken. With a ticket the rest waits until `SendDone` or `SendFailed`."""
        return self.sender.send(payloads, now, ticket, deadline)

    def mark_delivered(self, source: bytes, seq: int, now: float) -> bool:
        """The application has everything of this source up to and including seq.

        True if something is to be done at once: an ack is due, or waiting sends have room.
        """
        if source == self.me:
            self.sender.acked(self.me, seq, now)
            return bool(self._effects)
        receiver = self._reception.receivers.get(source)
        if receiver is None or not receiver.window.ack(seq):
            return False
        if receiver.departure is not None:
            return True  # nobody waits for the ack, but there is room for what others still have
        receiver.owe_ack(now)
        return receiver.is_ack_due(now)

    def close(self, now: float) -> None:
        """Fail all waiting sends; nothing more is sent."""
        self.sender.close()

    # -- views

    def install(self, view: View, now: float) -> None:
        """A new view: from the membership machine, or from another source that knows the members."""
        assert self.me in view
        before, self.view = self.view, view
        self._is_due = True
        self.sender.install(view, now)
        early, self._early = self._early, {}
        for source, start in early.items():
            self._started(start, source, now)
        self._departures.install(view, before, now)
        self._asked_start = {source: at for source, at in self._asked_start.items() if source in view}
        self._share(now)

    def _share(self, now: float) -> None:
        receivers = self._reception.receivers.values()
        self.sender.share_buffers(1 + sum(now - r.active_at < ACTIVE_S for r in receivers))

    # -- the contract

    def receive(self, message: GroupPiece | MulticastMessage, peer: Peer, now: float) -> None:
        """A message from a member."""
        if type(message) is GroupPiece:  # by far the most frequent
            self._piece(message, peer, now)
            self._is_due = self._is_due or bool(self._effects)
            return
        assert isinstance(peer, bytes), "members are known by their ids"
        self._is_due = True
        match message:
            case GroupPiece():
                pass
            case GroupAck():
                self.sender.acked(peer, message.seq, now)
            case GroupAnnounce():
                self._announced(message, peer, now)
            case GroupRecover():
                self._recover(message, peer, now)
            case GroupStart():
                self._started(message, peer, now)
            case GroupAskStart():
                self.sender.restart(peer, now)
            case GroupGone():
                if message.source == peer and (receiver := self._reception.present(peer)) is not None:
                    self._reception.skip(receiver, message.seq, now)
            case GroupHoldings():
                self._departures.holdings(message, peer, now)
            case GroupEnds():
                self._departures.ends(message, peer, now)
            case _:
                assert_never(message)

    def tick(self, now: float) -> None:
        """The end of a turn, or of a wait: send the open batch, and everything that is due."""
        self._is_due = False
        if self.sender.outbox.waiting:
            self._share(now)
        self.sender.tick(now)
        self._effects += self._retransmissions.take(now)
        self._departures.tick(now)
        for receiver in list(self._reception.receivers.values()):
            if receiver.departure is not None:
                self._departures.exchange(receiver, receiver.departure, now)
            elif receiver.is_ack_due(now):
                self._ack(receiver)
            if receiver.requests.due_at is not None and receiver.requests.due_at <= now:
                self._request(receiver, now)

    def next_deadline(self) -> float | None:
        """When `tick` is due; at once if something waits for the end of the turn."""
        if self._is_due or self.sender.outbox.has_open:
            return 0.0
        times = [self.sender.next_deadline(), self._departures.next_deadline()]
        for receiver in self._reception.receivers.values():
            if receiver.departure is not None:
                times.append(min(receiver.departure.report_at, receiver.departure.until))
            times += [at for at in (receiver.requests.due_at, receiver.ack.due_at) if at is not None]
        first = min(times)
        return None if first == NEVER else first

    def take_effects(self) -> list[MulticastEffect]:
        """Return the effects, in order, and forget them."""
        effects = self._effects.copy()
        self._effects.clear()  # the parts of this machine keep the list
        return effects

    # -- receiving

    def _piece(self, piece: GroupPiece, peer: Peer, now: float) -> None:
        receiver = self._reception.receivers.get(piece.source)
        departure = None if receiver is None else receiver.departure
        if receiver is None or (departure is not None and not self._may_take(departure, piece, peer)):
            self._reception.counts["dropped"] += 1
            self._ask_start(piece.source, now)
        elif receiver.take_in(piece, now):
            self._reception.deliver(receiver, now)
        elif piece.first <= receiver.window.delivered:
            self._reception.counts["duplicates"] += 1

    def _may_take(self, departure: SurvivorAgreement, piece: GroupPiece, peer: Peer) -> bool:
        """Of a departed sender only the events that the survivors agreed on, and only from them."""
        target = departure.target
        last = piece.first + piece.count - 1
        return target is not None and last <= target and self.view is not None and peer in self.view

    def _announced(self, message: GroupAnnounce, peer: bytes, now: float) -> None:
        """A quiet sender: request everything up to its last seq, and ack if it wants that."""
        receiver = self._reception.present(peer)
        if receiver is None:
            self._ask_start(peer, now)
            return
        receiver.window.forget(message.stable)
        receiver.announced(message.high, now)
        if message.is_ack_wanted:
            self._ack(receiver)

    def _ack(self, receiver: GroupReceiver) -> None:
        self._effects.append(SendToGroup(receiver.source, GroupAck(receiver.window.acked)))
        receiver.ack_sent()

    def _started(self, start: GroupStart, source: bytes, now: float) -> None:
        """A sender fixed where we start. Events before that which we lack are lost, and reported."""
        if source == self.me:
            return
        if self.view is None or source not in self.view:
            if len(self._early) < self._settings.members_max:
                self._early[source] = start
            return
        offset = self._departures.started(source, start.seq)
        receiver = self._reception.receivers.get(source)
        if receiver is None:
            receiver = GroupReceiver(source, start, offset, self._settings, self._rng)
            self._reception.add(receiver)
        receiver.fit(start)
        receiver.begin(start.seq)
        self._reception.skip(receiver, start.seq, now)
        self.sender.set_buffer(source, start.buffer_bytes)
        self._share(now)
        self._ack(receiver)

    def _ask_start(self, source: bytes, now: float) -> None:
        if source == self.me or source in self._reception.receivers:
            return
        if self.view is None or source not in self.view:
            return
        if self._asked_start.get(source, 0.0) <= now:
            self._asked_start[source] = now + self._settings.repeat_s
            self._effects.append(SendToGroup(source, GroupAskStart()))

    # -- requests and retransmissions

    def _request(self, receiver: GroupReceiver, now: float) -> None:
        members = () if self.view is None else self.view.ids
        request = receiver.request(now, [m for m in members if m not in (self.me, receiver.source)])
        if request is not None:
            self._reception.counts["asked"] += 1
            self._effects.append(SendToGroup(None, request))

    def _recover(self, message: GroupRecover, peer: bytes, now: float) -> None:
        """The member that was asked answers. The others hear the request, and need not send the same."""
        if message.asked != self.me:
            if (receiver := self._reception.receivers.get(message.source)) is not None:
                receiver.heard(message, now)
            return
        self._reception.counts["answered"] += 1
        for start, stop in clean(message.ranges):
            self._retransmit(message.source, start, stop, peer, None)
        for first, pieces in message.pieces[:RANGES_MAX]:
            self._retransmit(message.source, first, first + 1, peer, clean(pieces))

    def _retransmit(
        self, source: bytes, start: int, stop: int, peer: bytes, pieces: list[Range] | None
    ) -> None:
        if source == self.me:
            window = self.sender.outbox.window
            for own in window.find(start, stop):
                assert own.value is not None
                self._retransmissions.add(peer, own.value, self._settings.piece_bytes, pieces)
            if start <= window.acked:
                self._effects.append(SendToGroup(peer, GroupGone(source, window.acked)))
        elif (receiver := self._reception.receivers.get(source)) is not None:
            for slot in receiver.window.find(start, stop):
                assert slot.value is not None
                self._retransmissions.add(peer, *slot.value, pieces)
            if receiver.departure is not None and (partials := receiver.partials(start, stop)):
                parts = [piece for partial in partials for piece in partial.pieces(source)]
                self._effects.append(SendPieces(peer, parts))


_: type[Machine[GroupPiece | MulticastMessage, MulticastEffect]] = Multicast
