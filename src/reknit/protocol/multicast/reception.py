"""All senders as one member receives them: their receivers, and the events that are delivered or lost."""

from __future__ import annotations

from reknit.protocol.multicast.effects import DeliverBatch, LostEvents, MulticastEffect
from reknit.protocol.multicast.receiver import GroupReceiver


class GroupReception:
    """The receivers of one member. Effects go into a list that all parts of `Multicast` share, so that order stays."""

    def __init__(self, effects: list[MulticastEffect]) -> None:
        self.receivers: dict[bytes, GroupReceiver] = {}
        self.counts = dict.fromkeys(("asked", "answered", "duplicates", "lost", "dropped"), 0)
        self._effects = effects

    def add(self, receiver: GroupReceiver) -> None:
        """A sender is present, or its events are still available."""
        self.receivers[receiver.source] = receiver

    def remove(self, source: bytes) -> None:
        """Nothing more of this sender comes."""
        del self.receivers[source]

    def present(self, source: bytes) -> GroupReceiver | None:
        """The receiver of a sender that is in the view."""
        receiver = self.receivers.get(source)
        return receiver if receiver is not None and receiver.departure is None else None

    def deliver(self, receiver: GroupReceiver, now: float) -> None:
        """Deliver everything that comes next without a gap."""
        slots = receiver.window.take()
        for start, stop, held, _ in slots:
            if held is None:
                self.lose(LostEvents(receiver.source, start, stop))
            else:
                batch = held[0]
                if start != batch.first or stop != batch.stop:
                    batch = batch.cut(start, stop)
                self._effects.append(DeliverBatch(receiver.source, batch))
        if slots:
            receiver.delivered(now)

    def skip(self, receiver: GroupReceiver, seq: int, now: float) -> None:
        """Missing events up to and including seq are unavailable: report them as lost, and continue after them."""
        if seq > receiver.window.delivered:
            receiver.skip(seq)
            self.deliver(receiver, now)

    def lose(self, lost: LostEvents) -> None:
        """Report lost events."""
        self.counts["lost"] += lost.stop - lost.start
        self._effects.append(lost)
