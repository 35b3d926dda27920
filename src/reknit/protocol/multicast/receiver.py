"""One sender, seen from a member: its window, the pieces of incomplete batches, and what to ask for when."""

from __future__ import annotations

from random import Random

from reknit.batch import Batch
from reknit.frame import Buffer
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.multicast.survivor_agreement import SurvivorAgreement
from reknit.protocol.multicast.window import Window
from reknit.seqset import Range, SeqSet
from reknit.wire.groups import GroupHoldings, GroupPiece, GroupRecover, GroupStart
from reknit.wire.pieces import Partial, parse_batch

RANGES_MAX = 64
"""How many ranges, and how many batches with missing pieces, one `GroupRecover` names; the rest waits its turn."""
HOLDINGS_MAX = 256
"""How many ranges, and how many incomplete batches, are told to other survivors; the rest counts as lost."""
CAPACITY_MAX = 1 << 20
WINDOW_BYTES_MAX = 256 << 20
"""What a sender may ask us to hold at most, whatever it says."""

Held = tuple[Batch, int]
"""A batch, and the size of the pieces that its sender cut it into."""


def clean(ranges: list[Range]) -> list[Range]:
    """What a peer sent as ranges, without what is none.

    >>> clean([(3, 5), (7, 7), (-4, 2)])
    [(3, 5)]
    """
    return [(start, stop) for start, stop in ranges[:RANGES_MAX] if 0 <= start < stop]


class GroupReceiver:
    """The receiving half for one sender."""

    def __init__(
        self, source: bytes, start: GroupStart, offset: int, settings: GroupSettings, rng: Random
    ) -> None:
        self.source = source
        self._rng = rng
        self.window = Window[Held](1, offset)
        self.fit(start)
        self.departure: SurvivorAgreement | None = None
        self.untold_at: int | None = None
        """Where we began for want of better, where the sender was gone before it told us where to start."""
        self.ack_at: float | None = None
        self.ask_at: float | None = None
        self.active_at = float("-inf")
        self.told = offset
        """The last ack that was sent."""
        self._told_bytes = 0
        buffer_bytes = min(start.buffer_bytes, settings.buffer_bytes)
        self._ack_bytes = max(1, min(self.window.bytes_max, buffer_bytes) // 4)
        self._settings = settings
        self._partials: dict[int, Partial] = {}
        self._announced = offset
        self._given_up = SeqSet()
        """What the survivors of this sender found that none of them has."""
        self._seen = 0
        """The highest first seq of any batch of which something came: all before it was sent."""
        self._cooling: list[tuple[float, SeqSet, dict[int, SeqSet]]] = []
        self._tries = 0
        self._probe: tuple[int, float] = (0, 0.0)
        self._answer_s = settings.again_s_min / 2

    def fit(self, start: GroupStart) -> None:
        """Hold as much as the sender's own window, within reason."""
        self.window.capacity = min(max(start.capacity, 1), CAPACITY_MAX)
        self.window.bytes_max = min(max(start.window_bytes, 1), WINDOW_BYTES_MAX)

    # -- taking in

    def take_in(self, piece: GroupPiece, now: float) -> bool:
        """True if a batch became whole and is in the window."""
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
        """Events were delivered: what was asked for and came says how long answers take."""
        self._tries = 0
        seq, asked_at = self._probe
        if seq and self.window.delivered >= seq:
            self._answer_s += (now - asked_at - self._answer_s) / 4
            self._probe = (0, 0.0)
        if self._partials:
            for first in [first for first in self._partials if first <= self.window.delivered]:
                del self._partials[first]

    def announced(self, high: int, now: float) -> None:
        """The sender said how far it got. What has no room yet is asked for when the application took more."""
        high = min(high, self.window.acked + self.window.capacity)
        self._announced = max(self._announced, high)
        self._notice(now)

    def skip(self, seq: int) -> None:
        """Everything up to and including seq that lacks can't be had."""
        self.window.skip(seq)
        for first in [first for first in self._partials if first <= seq]:
            del self._partials[first]

    # -- after the sender is gone

    def begin(self, seq: int) -> None:
        """Now it is known where to start. Unless we have had something, nothing up to and including seq was for us."""
        if self.untold_at == self.window.delivered < seq:
            is_final = self.window.is_final
            self.window = Window[Held](self.window.capacity, seq, self.window.bytes_max)
            self.window.is_final = is_final
        self.untold_at = None

    def holdings(self, stamp: int) -> GroupHoldings:
        """What we say to other survivors."""
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
        """No survivor has these."""
        for start, stop in lost:
            self.window.lose(start, stop)
            self._given_up.add(start, stop)
            for first in [f for f, partial in self._partials.items() if f < stop and partial.stop > start]:
                del self._partials[first]

    def partials(self, start: int, stop: int) -> list[Partial]:
        """What there is in pieces of `[start, stop)`."""
        return [partial for first, partial in self._partials.items() if first < stop and partial.stop > start]

    # -- asking

    def _notice(self, now: float) -> None:
        """Where there may be a gap, look for it after a small random delay: another may ask first."""
        window = self.window
        if window.delivered >= max(window.high, self._announced) and not self._partials:
            self.ask_at = None
        elif self.ask_at is None:
            self.ask_at = now + self._rng.random() * self._settings.ask_s_max

    def gaps(self) -> tuple[list[Range], dict[int, SeqSet]]:
        """What was surely sent and is not here: events, and pieces of batches."""
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
        """Another member asks for this: the same question can wait."""
        pieces = {first: SeqSet.from_ranges(clean(ranges)) for first, ranges in message.pieces[:RANGES_MAX]}
        ranges = SeqSet.from_ranges(clean(message.ranges))
        self._cooling.append((now + self._settings.again_s_min, ranges, pieces))

    def ask(self, now: float, others: list[bytes]) -> GroupRecover | None:
        """The question that is due, to the sender first, then to others in turn; None while all is asked."""
        self._cooling = [entry for entry in self._cooling if entry[0] > now]
        ranges, pieces = self.gaps()
        if not ranges and not pieces:
            self.ask_at = None
            return None
        fresh_ranges, fresh_pieces = self._without_cooling(ranges, pieces)
        cool_s = self._cool_s()
        self.ask_at = min([entry[0] for entry in self._cooling], default=now + cool_s)
        if not fresh_ranges and not fresh_pieces:
            return None
        self._cooling.append((now + cool_s, SeqSet.from_ranges(fresh_ranges), fresh_pieces))
        self.ask_at = min(self.ask_at, now + cool_s)
        if not self._probe[0]:
            self._probe = (min([*(start for start, _ in ranges), *pieces]), now)
        asked = self._whom(others)
        self._tries += 1
        return GroupRecover(
            self.source, asked, fresh_ranges, [(f, p.ranges()) for f, p in fresh_pieces.items()]
        )

    def _without_cooling(
        self, ranges: list[Range], pieces: dict[int, SeqSet]
    ) -> tuple[list[Range], dict[int, SeqSet]]:
        lacking = SeqSet.from_ranges(ranges)
        pieces = dict(pieces)
        for _, asked, asked_pieces in self._cooling:
            for run in asked.ranges():
                lacking.discard(*run)
            for first, which in asked_pieces.items():
                if first in pieces:
                    pieces[first] = pieces[first] - which
            for first in [first for first in pieces if first in asked]:
                del pieces[first]  # the whole batch was asked for, and is coming in
        whole = {first: which for first, which in pieces.items() if which}
        return lacking.ranges()[:RANGES_MAX], dict(list(whole.items())[:RANGES_MAX])

    def _cool_s(self) -> float:
        backoff = 1 << min(max(self._tries - 1, 0), 4)
        low, high = self._settings.again_s_min, self._settings.again_s_max
        return min(max(2 * self._answer_s, low) * backoff, high)

    def _whom(self, others: list[bytes]) -> bytes:
        """The sender knows best; but any holder may answer, so after two questions the others are tried."""
        if self.departure is not None:
            return self.departure.holder(self.window.delivered + 1, self._tries, others) or self.source
        if self._tries < 2 or not others:
            return self.source
        choices = [self.source, *others]
        return choices[self._tries % len(choices)]

    # -- acking

    def owe(self, now: float) -> None:
        if self.ack_at is None and self.window.acked > self.told:
            self.ack_at = now + self._settings.ack_s

    def is_ack_due(self, now: float) -> bool:
        """At a quarter of the window or of the buffers that bound it, or when one was owed for long enough."""
        window = self.window
        return (
            (self.ack_at is not None and self.ack_at <= now)
            or window.acked - self.told >= max(1, window.capacity // 4)
            or window.bytes_acked - self._told_bytes >= self._ack_bytes
        )

    def told_ack(self) -> None:
        self.told, self._told_bytes, self.ack_at = self.window.acked, self.window.bytes_acked, None
