"""Faults in schedules: events that are published twice, too early, or never."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

SCHEDULE: Final = "reknit.protocol.schedule.schedule"
SCHEDULING: Final = "reknit.node.core.scheduling"
RETENTION: Final = "reknit.node.core.retention"

MUTANTS: Final = (
    Mutant(
        name="scheduled-event-forgotten-at-start",
        module=SCHEDULING,
        old="        for _, _, scheduled in sorted(batches, key=lambda one: one[:2]):",
        new="        for _, _, scheduled in sorted(batches, key=lambda one: one[:2])[1:]:",
        breaks="a node that restarts knows which events it has to publish later",
    ),
    Mutant(
        name="published-event-waits-after-a-restart",
        module=SCHEDULING,
        old="                waiting = self._handled(source).waiting(published)",
        new="                waiting = published",
        breaks="a scheduled event is published once, also if the node restarts",
    ),
    Mutant(
        name="publication-without-record",
        module=SCHEDULING,
        old="        journal.stage_record(record)\n        try:",
        new="        try:",
        breaks="that a scheduled event is published is recorded with it",
    ),
    Mutant(
        name="scheduled-event-removed-by-retention",
        module=RETENTION,
        old="(self._dead_letters.floor(), self._scheduling.floor())",
        new="(self._dead_letters.floor(),)",
        breaks="retention spares events that are to be published later",
    ),
    Mutant(
        name="moved-event-waits-twice",
        module=SCHEDULE,
        old="(events, first):\n                    del self._waiting[one.source, one.seq]\n",
        new="(events, first):\n",
        breaks="an event that is stored again for retention is published once",
    ),
    Mutant(
        name="cancelled-event-is-due",
        module=SCHEDULE,
        old="            if self._is_waiting(one):\n                del self._waiting[one.source, one.seq]",
        new="            if True:\n                self._waiting.pop((one.source, one.seq), None)",
        breaks="a cancelled event is never published",
    ),
    Mutant(
        name="scheduled-event-too-early",
        module=SCHEDULE,
        old="        now_us = self._zero_us + round(now * 1e6)",
        new="        now_us = self._zero_us + round(now * 1e6) + 50_000",
        breaks="no event is published before its time",
    ),
)
