"""One sender, seen from a member: its window, the pieces of incomplete batches, its gaps and its ack."""

from __future__ import annotations

from random import Random

from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.protocol.multicast.gap_requests import RANGES_MAX, BatchPieces, GapRequests, clean
from reknit.protocol.multicast.pending_ack import PendingAck
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.multicast.survivor_agreement import SurvivorAgreement
from reknit.protocol.multicast.window import Window
from reknit.seqset import Range, SeqSet
from reknit.view import View
from reknit.wire.groups import GroupHoldings, GroupPiece, GroupRecover, GroupStart
from reknit.wire.pieces import Partial, parse_batch

HOLDINGS_MAX = 256
"""How many ranges, and how many incomplete batches, are reported to other survivors; the rest counts as lost."""
CAPACITY_MAX = 1 << 20
WINDOW_BYTES_MAX = 256 << 20
"""The most that we hold for one sender, even if its window is larger."""
UNKNOWN_START = GroupStart(0, CAPACITY_MAX, WINDOW_BYTES_MAX, 1)
"""For a sender that left before it told us where to start."""

Held = tuple[Batch, int]
"""A batch, and the size of the pieces that its sender cut it into."""


class GroupReceiver:
    """The receiving side for one sender."""

    def __init__(
        self, source: bytes, start: GroupStart, offset: int, settings: GroupSettings, rng: Random
    ) -> None:
        self.source = source
        self.window = Window[Held](1, offset)
        self.fit(start)
        self.departure: SurvivorAgreement | None = None
        """The agreement about its events, if the sender is not in the view."""
        self.active_at = float("-inf")
        """When something new of it came last."""
        buffer_bytes = min(start.buffer_bytes, settings.buffer_bytes)
        ack_bytes = max(1, min(self.window.bytes_max, buffer_bytes) // 4)
        self.ack = PendingAck(offset, settings.ack_s, ack_bytes)
        self.requests = GapRequests(settings, rng)
        self._departed_s = settings.departed_s
        self._unconfirmed_start: int | None = None
        """Where we began, if the sender was gone before it told us where to start."""
        self._partials: dict[int, Partial] = {}
        self._announced = offset
        self._given_up = SeqSet()
        """Events that none of the survivors of this sender has."""
        self._seen = 0
        """The highest first seq of any batch of which something came: everything before it was sent."""

    @classmethod
    def of_departed(
        cls, source: bytes, offset: int, is_known: bool, settings: GroupSettings, rng: Random
    ) -> GroupReceiver:
        """For a sender that is gone; where it is not known, others will say where to start."""
        receiver = cls(source, UNKNOWN_START, offset, settings, rng)
        receiver._unconfirmed_start = None if is_known else offset
        return receiver

    def fit(self, start: GroupStart) -> None:
        """Hold as much as the sender's own window, within limits."""
        self.window.resize(
            min(max(start.capacity, 1), CAPACITY_MAX), min(max(start.window_bytes, 1), WINDOW_BYTES_MAX)
        )

    def follow_view(self, view: View, now: float) -> None:
        """In a new view the sender stays; or it is gone, and the survivors agree on which of its events to deliver."""
        is_gone = self.source not in view
        self.window.set_final(is_gone)
        if not is_gone:
            self.departure = None
            return
        before = self.departure
        until = before.until if before is not None else now + self._departed_s
        self.ack.cancel()
        self.departure = SurvivorAgreement(view.stamp, frozenset(view.ids), now, until, before)

    # -- receiving

    def take_in(self, piece: GroupPiece, now: float) -> bool:
        """Take a piece. True if its batch is complete and in the window now."""
        partial = self._partials.get(piece.first)
        if partial is not None:
            return partial.add(piece) and self._whole(piece, partial.join(), now)
        stop = piece.first + piece.count
        window = self.window
        if window.covers(piece.first, stop) or stop - 1 - window.acked > window.capacity:
            return False
        self.active_at = now
        self._seen = max(self._seen, piece.first)
        if piece.length <= piece.size:
            return self._whole(piece, piece.data, now)
        if window.bytes + self._partial_bytes() + piece.length <= window.bytes_max:
            partial = self._partials[piece.first] = Partial(piece)
            partial.add(piece)
        self._notice(now)
        return False

    def _whole(self, piece: GroupPiece, data: Buffer, now: float) -> bool:
        self._partials.pop(piece.first, None)
        batch = parse_batch(piece, data)
        stop = piece.first + piece.count
        added = batch is not None and self.window.add(piece.first, stop, (batch, piece.size), piece.length)
        self.window.forget(piece.stable)
        self._notice(now)
        return added

    def _partial_bytes(self) -> int:
        return sum(partial.length for partial in self._partials.values())

    def delivered(self, now: float) -> None:
        """Events were delivered: their pieces are not needed any more."""
        self.requests.progressed(self.window.delivered, now)
        if self._partials:
            for first in [first for first in self._partials if first <= self.window.delivered]:
                del self._partials[first]

    def announced(self, high: int, now: float) -> None:
        """The sender announced its last seq. Events without room are requested later."""
        high = min(high, self.window.acked + self.window.capacity)
        self._announced = max(self._announced, high)
        self._notice(now)

    def skip(self, seq: int) -> None:
        """Everything missing up to and including seq is lost."""
        self.window.skip(seq)
        for first in [first for first in self._partials if first <= seq]:
            del self._partials[first]

    # -- after the sender is gone

    def begin(self, seq: int) -> None:
        """Start after seq, which is known now. If we had nothing yet, the events up to seq were not for us."""
        if self._unconfirmed_start == self.window.delivered < seq:
            is_final = self.window.is_final
            self.window = Window[Held](self.window.capacity, seq, self.window.bytes_max)
            self.window.set_final(is_final)
        self._unconfirmed_start = None

    def holdings(self, stamp: int) -> GroupHoldings:
        """The report that we send to other survivors."""
        window, partials = self.window, sorted(self._partials.values(), key=lambda partial: partial.first)
        parts = [(p.first, p.count, p.length, p.size, p.held()) for p in partials[:HOLDINGS_MAX]]
        high = max([window.high, self._announced, *(partial.stop - 1 for partial in partials)])
        return GroupHoldings(
            self.source,
            stamp,
            start=window.forgotten,
            delivered=window.delivered,
            high=high,
            ranges=window.held()[:HOLDINGS_MAX],
            parts=parts,
            lost=self._given_up.ranges()[-HOLDINGS_MAX:],
            is_answer=False,
            stable=window.stable,
        )

    def give_up(self, lost: list[Range]) -> None:
        """No survivor has these events."""
        for start, stop in lost:
            self.window.lose(start, stop)
            self._given_up.add(start, stop)
            for first in [f for f, partial in self._partials.items() if f < stop and partial.stop > start]:
                del self._partials[first]

    def partials(self, start: int, stop: int) -> list[Partial]:
        """The incomplete batches of `[start, stop)`."""
        return [partial for first, partial in self._partials.items() if first < stop and partial.stop > start]

    # -- gaps

    def _notice(self, now: float) -> None:
        """If there may be a gap, look for it after a small random delay: another member may request it first."""
        window = self.window
        if window.delivered >= max(window.high, self._announced) and not self._partials:
            self.requests.cancel()
        else:
            self.requests.schedule(now)

    def gaps(self) -> tuple[list[Range], BatchPieces]:
        """The events, and the pieces of batches, that were certainly sent and have not arrived."""
        top = max(self._announced + 1, self._seen)
        lacking = SeqSet.from_ranges(self.window.missing(top))
        pieces = {}
        for first, partial in sorted(self._partials.items()):
            lacking.discard(first, partial.stop)
            missing = partial.missing(all_sent=partial.stop <= max(top, self.window.high))
            if missing:
                pieces[first] = SeqSet.from_ranges(missing)
        return lacking.ranges(), pieces

    def heard(self, message: GroupRecover, now: float) -> None:
        """Another member requests these: our own request can wait."""
        pieces = {first: SeqSet.from_ranges(clean(ranges)) for first, ranges in message.pieces[:RANGES_MAX]}
        self.requests.heard(SeqSet.from_ranges(clean(message.ranges)), pieces, now)

    def request(self, now: float, others: list[bytes]) -> GroupRecover | None:
        """The request that is due, to the sender first, then to others in turn; None if all was requested recently."""
        attempts = self.requests.attempts
        due = self.requests.next_request(*self.gaps(), now)
        if due is None:
            return None
        ranges, pieces = due
        asked = self._whom(others, attempts)
        return GroupRecover(self.source, asked, ranges, [(f, p.ranges()) for f, p in pieces.items()])

    def _whom(self, others: list[bytes], attempts: int) -> bytes:
        """The sender, twice; then any other member in turn, since all hold recent events."""
        if self.departure is not None:
            return self.departure.holder(self.window.delivered + 1, attempts, others) or self.source
        if attempts < 2 or not others:
            return self.source
        choices = [self.source, *others]
        return choices[attempts % len(choices)]

    # -- acks

    def owe_ack(self, now: float) -> None:
        """The application has more."""
        self.ack.note(self.window.acked, now)

    def is_ack_due(self, now: float) -> bool:
        """Whether an ack is to be sent now."""
        return self.ack.is_due(self.window, now)

    def ack_sent(self) -> None:
        """An ack for everything in the window that is acked was sent."""
        self.ack.was_sent(self.window.acked, self.window.bytes_acked)
