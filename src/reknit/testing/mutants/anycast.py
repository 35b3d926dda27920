"""Faults in events that go to one of many: outcomes that are false, early, or never told."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

MACHINE: Final = "reknit.protocol.anycast.machine"
NOTIFIER: Final = "reknit.node.anycast.outcome_notifier"
PROMISES: Final = "reknit.node.anycast.promises"

MUTANTS: Final = (
    Mutant(
        name="in-doubt-is-said-to-be-released",
        module=MACHINE,
        old="(delivery, Outcome.MODIFIED, Code.UNKNOWN, text, now, path=path.name)",
        new="(delivery, Outcome.RELEASED, Code.UNKNOWN, text, now, path=path.name)",
        breaks="RELEASED means that nobody processed the event",
        simulation="fabric",
    ),
    Mutant(
        name="rejected-is-said-to-be-accepted",
        module=MACHINE,
        old="            Outcome(fate.outcome),\n            fate.code,\n            fate.text,\n            now,",
        new="            Outcome.ACCEPTED,\n            fate.code,\n            fate.text,\n            now,",
        breaks="a sender is told the outcome that a worker gave",
        simulation="fabric",
    ),
    Mutant(
        name="a-lost-worker-keeps-its-events",
        module=MACHINE,
        old="        path = self._paths.detach(key)\n        if path is not None:",
        new="        path = self._paths.detach(key)\n        if path is not None and is_clean:",
        breaks="the events of a worker that is gone have an outcome",
        simulation="fabric",
    ),
    Mutant(
        name="missed-outcome-is-not-told",
        module=NOTIFIER,
        old="        for start, end, how in self._ledger.ends(series, want.first, SEQ_MAX):",
        new="        for start, end, how in self._ledger.ends(series, want.first, want.kept + 1):",
        breaks="a sender that was cut off is told the outcomes that it missed",
        simulation="fabric",
    ),
    Mutant(
        name="new-path-is-not-told",
        module=NOTIFIER,
        old="            if has_path == watcher.has_path:\n                continue",
        new="            if has_path:\n                continue",
        breaks="a sender that waits for a subscriber goes on when one comes",
        simulation="fabric",
    ),
    Mutant(
        name="outcome-is-told-before-the-sync",
        module=PROMISES,
        old="        return bool(self.waiting) and self.waiting[0][0] <= durable_number",
        new="        return bool(self.waiting)",
        breaks="an outcome that a sender was told is durable",
        simulation="fabric",
    ),
)
