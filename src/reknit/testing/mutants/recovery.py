"""Faults in recovery: gaps that are not found, not filled, or filled wrongly."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

ROOM: Final = "reknit.protocol.recovery"
RECOVERY: Final = f"{ROOM}.recovery"
HELD: Final = f"{ROOM}.held_series"
SEARCH: Final = f"{ROOM}.search"
SERIES_SEARCH: Final = f"{ROOM}.series_search"

MUTANTS: Final = (
    Mutant(
        name="answer-claims-too-much",
        module=f"{ROOM}.cache",
        old="        reached = batches[-1].stop if room <= 0 and batches else stop",
        new="        reached = stop",
        breaks="a cache denies only what it does not hold",
    ),
    Mutant(
        name="loss-overtakes-events",
        module=RECOVERY,
        old="                self._release(out)\n                out = []\n"
        "                self._effects.append(UnrecoverableGap(series, *lost))",
        new="                self._effects.append(UnrecoverableGap(series, *lost))",
        breaks="a loss is reported in its place among the events",
    ),
    Mutant(
        name="gap-not-searched",
        module=RECOVERY,
        old="            self._want(series, track, track.known, batch.first, now)\n        self._hold",
        new="            pass\n        self._hold",
        breaks="missing events are recovered or reported as lost",
    ),
    Mutant(
        name="held-events-released-early",
        module=HELD,
        old="self._batches[0][0] != self.next:",
        new="self._batches[0][0] > self.next + 3:",
        breaks="events behind a gap wait until it is filled",
    ),
    Mutant(
        name="dropped-events-not-searched",
        module=HELD,
        old="            self._closed_from = first\n",
        new="",
        breaks="events that did not fit behind a gap are recovered later",
    ),
    Mutant(
        name="denied-range-asked-for-ever",
        module=SERIES_SEARCH,
        old="            self._denied.setdefault(cache, SeqSet()).add(*gap)",
        new="            pass",
        breaks="a range that every cache denies is lost",
    ),
    Mutant(
        name="silent-cache-waited-for",
        module=SEARCH,
        old="            self.unreachable(cache, now)\n        self._plan_all(now)\n\n    def next",
        new="            pass\n        self._plan_all(now)\n\n    def next",
        breaks="a cache that is silent is passed over, and asked again later",
    ),
    Mutant(
        name="unanswered-range-forgotten",
        module=SERIES_SEARCH,
        old='        """A request ended without an answer for these ranges."""\n        for bounds in ranges:',
        new='        """A request ended without an answer for these ranges."""\n        for bounds in ranges[:0]:',
        breaks="a range that a cache did not answer is asked for again",
    ),
    Mutant(
        name="patience-never-ends",
        module=SERIES_SEARCH,
        old="            if until <= now:",
        new="            if until <= now - 1e6:",
        breaks="a range that waited too long for silent caches is lost",
    ),
    Mutant(
        name="recovered-copy-kept",
        module=HELD,
        old="        first = max(batch.first, self.next) if self.is_open else batch.first",
        new="        first = batch.first",
        breaks="an event that came both live and recovered is delivered once",
    ),
    Mutant(
        name="resumed-search-sleeps",
        module=SEARCH,
        old='        """There is room again for the events."""\n'
        "        self._is_paused = False\n        self._plan_all(now)",
        new='        """There is room again for the events."""\n        self._is_paused = False',
        breaks="a search that was paused goes on",
    ),
    Mutant(
        name="relay-keeps-losses-to-itself",
        module="reknit.node.replication.relay",
        old="                    self._replicator.report(losses)\n",
        new="",
        breaks="a loss that a relay is told of is told at its target",
        simulation="fabric",
    ),
)
