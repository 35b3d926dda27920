"""When gaps of one sender are requested, and when again: at once after a random delay, then with a back-off.

Every member hears every request. A range that anybody requested is not requested again until a cool-down is over.
"""

from __future__ import annotations

from random import Random

from reknit.protocol.multicast.settings import GroupSettings
from reknit.seqset import Range, SeqSet

RANGES_MAX = 64
"""How many ranges, and how many batches with missing pieces, one `GroupRecover` names; the rest waits its turn."""

BatchPieces = dict[int, SeqSet]
"""Pieces of batches, by the first seq of the batch."""


def clean(ranges: list[Range]) -> list[Range]:
    """The valid ranges among those that a peer sent.

    >>> clean([(3, 5), (7, 7), (-4, 2)])
    [(3, 5)]
    """
    return [(start, stop) for start, stop in ranges[:RANGES_MAX] if 0 <= start < stop]


class GapRequests:
    """The requests for one sender's missing events and pieces."""

    def __init__(self, settings: GroupSettings, rng: Random) -> None:
        self.due_at: float | None = None
        """When to look for gaps again; None without gaps."""
        self.attempts = 0
        """Requests since events were delivered last."""
        self._settings = settings
        self._rng = rng
        self._cooling: list[tuple[float, SeqSet, BatchPieces]] = []
        """(until, events, pieces): requested, by us or by another member."""
        self._probe: tuple[int, float] = (0, 0.0)
        """(seq, when): what was requested, to measure how long the answer takes."""
        self._answer_s = settings.again_s_min / 2

    def schedule(self, now: float) -> None:
        """There is a gap: request it after a random delay, unless a request is due."""
        if self.due_at is None:
            self.due_at = now + self._rng.random() * self._settings.ask_s_max

    def cancel(self) -> None:
        """There is no gap."""
        self.due_at = None

    def heard(self, ranges: SeqSet, pieces: BatchPieces, now: float) -> None:
        """Another member requested these: our own request can wait."""
        self._cooling.append((now + self._settings.again_s_min, ranges, pieces))

    def progressed(self, delivered: int, now: float) -> None:
        """Events were delivered. If the measured request was answered, its time sets the back-off."""
        self.attempts = 0
        seq, asked_at = self._probe
        if seq and delivered >= seq:
            self._answer_s += (now - asked_at - self._answer_s) / 4
            self._probe = (0, 0.0)

    def next_request(
        self, ranges: list[Range], pieces: BatchPieces, now: float
    ) -> tuple[list[Range], BatchPieces] | None:
        """The parts of these gaps to request now; None while all of them were requested recently."""
        self._cooling = [entry for entry in self._cooling if entry[0] > now]
        if not ranges and not pieces:
            self.due_at = None
            return None
        fresh_ranges, fresh_pieces = self._without_cooling(ranges, pieces)
        cool_s = self._cool_s()
        self.due_at = min([entry[0] for entry in self._cooling], default=now + cool_s)
        if not fresh_ranges and not fresh_pieces:
            return None
        self._cooling.append((now + cool_s, SeqSet.from_ranges(fresh_ranges), fresh_pieces))
        self.due_at = min(self.due_at, now + cool_s)
        if not self._probe[0]:
            self._probe = (min([*(start for start, _ in ranges), *pieces]), now)
        self.attempts += 1
        return fresh_ranges, fresh_pieces

    def _without_cooling(self, ranges: list[Range], pieces: BatchPieces) -> tuple[list[Range], BatchPieces]:
        lacking = SeqSet.from_ranges(ranges)
        pieces = dict(pieces)
        for _, asked, asked_pieces in self._cooling:
            for run in asked.ranges():
                lacking.discard(*run)
            for first, which in asked_pieces.items():
                if first in pieces:
                    pieces[first] = pieces[first] - which
            for first in [first for first in pieces if first in asked]:
                del pieces[first]  # the whole batch was requested, and is coming in
        whole = {first: which for first, which in pieces.items() if which}
        return lacking.ranges()[:RANGES_MAX], dict(list(whole.items())[:RANGES_MAX])

    def _cool_s(self) -> float:
        backoff = 1 << min(max(self.attempts - 1, 0), 4)
        low, high = self._settings.again_s_min, self._settings.again_s_max
        return min(max(2 * self._answer_s, low) * backoff, high)
