"""The events of senders that left the group: survivors agree on them, and tell those that were apart meanwhile.

install            a receiver whose sender left starts an agreement (`survivor_agreement.py`)
GroupHoldings      another survivor's report: part of the agreement, or we take part in it from now on
GroupEnds          how far another member got with senders that left while it was apart from us
tick               agreements are carried out and end; reports and questions are repeated
"""

from __future__ import annotations

from random import Random

from reknit.protocol.multicast.departed_senders import DEPARTED_MAX, DepartedSenders
from reknit.protocol.multicast.effects import MulticastEffect, SendToGroup
from reknit.protocol.multicast.receiver import GroupReceiver
from reknit.protocol.multicast.reception import GroupReception
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.multicast.survivor_agreement import SurvivorAgreement
from reknit.view import View
from reknit.wire.groups import GroupEnds, GroupHoldings


class Departures:
    """The departed senders of one member."""

    def __init__(
        self,
        me: bytes,
        settings: GroupSettings,
        rng: Random,
        reception: GroupReception,
        effects: list[MulticastEffect],
    ) -> None:
        self.senders = DepartedSenders(settings.repeat_s)
        self._me = me
        self._settings = settings
        self._rng = rng
        self._reception = reception
        self._effects = effects
        self._view: View | None = None
        self._unstarted: set[bytes] = set()
        """The members that left before they told us where to start."""

    # -- views

    def install(self, view: View, before: View | None, now: float) -> None:
        """The members changed."""
        self._view = view
        for receiver in self._reception.receivers.values():
            receiver.follow_view(view, now)
        if before is not None:
            self.senders.keep(view.ids)
            self.senders.met([member for member in view.ids if member not in before], now)
            self._unstarted -= set(view.ids)
            if len(self._unstarted) < DEPARTED_MAX:
                self._unstarted |= set(before.ids) - set(view.ids) - set(self._reception.receivers)

    def started(self, source: bytes, seq: int) -> int:
        """A sender told us where to start. Returns where we continue: after the events that we had before, or there."""
        self._unstarted.discard(source)
        return seq if source in self._reception.receivers else self.senders.pop(source, seq)

    # -- messages

    def holdings(self, message: GroupHoldings, peer: bytes, now: float) -> None:
        """Another survivor reports what it holds of a departed sender."""
        source, view = message.source, self._view
        if view is None or source in view or source == self._me or peer not in view:
            return  # we do not know yet that it left: the report is repeated
        if message.stamp != view.stamp:
            return  # a report in one view decides nothing in another; it is repeated, too
        if not message.is_answer and self._is_new(source, view):
            self._take_part(source, message.start, view, now)
        receiver = self._reception.receivers.get(source)
        if receiver is not None and receiver.departure is not None:
            receiver.departure.report(peer, message)
            return
        if not message.is_answer:
            end = self.senders.get(source) or 0
            answer = GroupHoldings(source, message.stamp, end, end, end, [], [], [], is_answer=True)
            self._effects.append(SendToGroup(peer, answer))
        self._learn(source, message.delivered)

    def ends(self, message: GroupEnds, peer: bytes, now: float) -> None:
        """A member that was apart from us reports its progress: ask all for the events that we lack."""
        if message.is_question:
            self._effects.append(SendToGroup(peer, self.senders.answer()))
        self.senders.heard(peer)
        for source, seq in message.ends:
            own = self.senders.get(source)
            if own is None or seq <= own or self._view is None or source in self._view:
                continue
            if self.senders.is_earlier(source, self._view.stamp):
                self._take_part(source, own, self._view, now)
            else:
                self._learn(source, seq)

    def _learn(self, source: bytes, seq: int) -> None:
        lost = self.senders.learn(source, seq)
        if lost is not None:
            self._reception.lose(lost)

    def _is_new(self, source: bytes, view: View) -> bool:
        """It left before it told us where to start, or we finished with it before the present members came."""
        return source in self._unstarted or self.senders.is_earlier(source, view.stamp)

    def _take_part(self, source: bytes, start: int, view: View, now: float) -> None:
        """Take events of a departed sender that others still have and we never had."""
        self._unstarted.discard(source)
        is_known = self.senders.get(source) is not None
        offset = self.senders.pop(source, start)
        receiver = GroupReceiver.of_departed(source, offset, is_known, self._settings, self._rng)
        self._reception.add(receiver)
        receiver.follow_view(view, now)

    # -- time

    def tick(self, now: float) -> None:
        """Ask members that were apart from us, if that is due."""
        self._effects += self.senders.tick(now)

    def next_deadline(self) -> float:
        """When to ask them again."""
        return self.senders.next_deadline()

    def exchange(self, receiver: GroupReceiver, departure: SurvivorAgreement, now: float) -> None:
        """Carry out the agreement about one departed sender, as far as one was reached."""
        if not departure.knows(self._me, receiver.window.delivered):
            departure.report(self._me, receiver.holdings(departure.stamp))
        is_over = now >= departure.until
        if is_over and departure.target is None:
            departure.agree()  # not all have reported, but the wait is limited
        if departure.target is not None:
            self._follow(receiver, departure, departure.target, is_over, now)
        if departure.is_done or is_over:
            self._reception.remove(receiver.source)
            self.senders.add(receiver.source, receiver.window.delivered, departure.stamp)
        elif departure.report_at <= now:
            departure.report_again(now + self._settings.repeat_s)
            self._effects.append(SendToGroup(None, receiver.holdings(departure.stamp)))

    def _follow(
        self, receiver: GroupReceiver, departure: SurvivorAgreement, target: int, is_over: bool, now: float
    ) -> None:
        """Give up events that nobody has, and request those that someone has."""
        if departure.give_up():
            receiver.begin(departure.start)
            receiver.give_up(departure.lost)
            self._reception.deliver(receiver, now)
        if is_over:
            self._reception.skip(receiver, target, now)
        if receiver.window.delivered < target:
            receiver.announced(target, now)
        if not departure.knows(self._me, receiver.window.delivered):
            departure.report(self._me, receiver.holdings(departure.stamp))
            departure.report_again(now)
