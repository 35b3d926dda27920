"""Faults in the journal, as far as the one in memory shares them with the one on disk."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

RETENTION: Final = "reknit.store.log.retention"
SERIES: Final = "reknit.store.index.series"
QUERIES: Final = "reknit.store.engine.queries"
STAGING: Final = "reknit.store.engine.staging"
MEMORY: Final = "reknit.store.memory"

MUTANTS: Final = (
    Mutant(
        name="purge-past-the-floor",
        module=RETENTION,
        old="        if segment.end > floor or not",
        new="        if segment.start > floor or not",
        breaks="retention spares events that a durable subscriber is owed",
    ),
    Mutant(
        name="purge-one-too-many",
        module=RETENTION,
        old="        held_bytes -= segment.end - segment.start\n        held_events -= segment.events\n",
        new="        held_bytes -= segment.end - segment.start\n",
        breaks="retention keeps as many of the newest events as configured",
    ),
    Mutant(
        name="purge-forgets-the-last-event",
        module=SERIES,
        old="        self.first_held = max(self.first_held, last + 1)",
        new="        self.first_held = max(self.first_held, last)",
        breaks="a journal knows which events it has removed",
    ),
    Mutant(
        name="extent-not-found",
        module=QUERIES,
        old="if head.first < stop and head.stop > start and head.source == source",
        new="if head.first < stop and head.stop > start + 1 and head.source == source",
        breaks="a journal finds the events that it holds",
    ),
    Mutant(
        name="commit-forgets-the-rest",
        module=STAGING,
        old="            chunks, self._chunks = self._chunks, []",
        new="            chunks, self._chunks = self._chunks[:7], []",
        breaks="a commit writes everything that was staged",
    ),
    Mutant(
        name="synced-data-lost",
        module=MEMORY,
        old="        stop = max(old.synced_end, min(survives or 0, old.end))",
        new="        stop = max(old.synced_end - 1, min(survives or 0, old.end))",
        breaks="what was synced survives a crash",
    ),
    Mutant(
        name="removed-records-forgotten",
        module=MEMORY,
        old="            self._on_removed(state.dropped(count))",
        new="            state.dropped(count)",
        breaks="the ledger outlives the records that retention removes",
    ),
)
